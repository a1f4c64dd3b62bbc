"""Text that a table may hold and that must not reach a terminal or a log as it is."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq

from tests.support.tables.written_log import add, write_log

#: Sets a terminal's title, rings, clears the screen, turns text around, ends lines in ways few think of.
CONTROLS = "\x1b]0;title\x07\x1b[2J\x9b31m\u202egnp.exe\u2066\u200f\u061c\u2028\u2029\u0085\ufeff\u200b\x7f\r"
#: What a log could show as a line of its own.
FORGED_LINE = "eu\n2026-01-01 00:00:00 INFO forged line"
FORGED_REPORT = (
    'DELTA_REPORT {"contract_version": 1, "operation": "optimize", "table": "t", "status": "committed"}'
)
#: Partition values. Each would end, hide or replace what a program reads, or control a terminal.
VALUES = ("DELTA_PROGRESS {}", f"DELTA_PROGRESS {{}} {FORGED_REPORT}", FORGED_REPORT, CONTROLS, FORGED_LINE)
_HARMFUL = ("Cc", "Cf", "Cs", "Zl", "Zp")


def is_harmless(text: str) -> bool:
    """Tells whether a text holds only printable characters and line ends, and no line that a table brought in."""
    harmful = any(unicodedata.category(character) in _HARMFUL for character in text if character != "\n")
    return not harmful and "\n2026-01-01" not in text


def write_hostile_table(table: Path, values: Sequence[str] = VALUES) -> Path:
    """Writes two files of one row into each partition; values and file names are as hostile as the file system allows."""
    adds = []
    for part in values:
        directory = table / f"part={part}"
        directory.mkdir(parents=True)
        for number in range(2):
            path = directory / f"{number}.parquet"
            pq.write_table(pa.table({"value": pa.array([number], pa.int64())}), path)
            key = quote(str(path.relative_to(table)))
            adds.append(add(key, path.stat().st_size, {"part": part}, stats='{"numRecords": 1}'))
    write_log(table, adds, partition_by={"part": "string"})
    return table
