"""An error about a table says what is at fault, and asks for a file only where a file is broken."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.tables.written_log import add, write_log

from delta_log import Table
from delta_log.checkpoint.writer import write_checkpoint
from delta_log.errors import CorruptLog, DeltaLogError
from delta_log.log.data_path import resolve
from delta_log.log.file_names import checksum_key, commit_key
from delta_log.runtime import Runtime
from delta_log.snapshot.version_checksum import write_version_checksum
from delta_maintenance.optimize.options import OptimizeOptions
from delta_maintenance.optimize.plan.planner import plan_optimize


def absurd_sizes(table: Path) -> None:
    snapshot = write_log(table, [add("small", 1), add("huge", 1 << 61)])
    plan_optimize(snapshot, OptimizeOptions(), 0)


def totals_beyond_64_bits(table: Path) -> None:
    _ = write_log(table, [add(f"f{n}", (1 << 63) - 1) for n in range(2)]).counts


def climbing_path(table: Path) -> None:
    resolve("/../x", str(table))


def root_as_path(table: Path) -> None:
    resolve("a/..", str(table))


def two_live_adds(table: Path) -> None:
    vector = {"storageType": "i", "pathOrInlineDv": "x", "sizeInBytes": 1, "cardinality": 1}
    write_log(table, [add("f", 1), add("f", 1, deletionVector=vector)]).files()


def no_protocol(table: Path) -> None:
    write_log(table, [])
    (table / commit_key(0)).write_text('{"commitInfo":{}}\n')
    Table(str(table)).snapshot()


def contradicting_checksum(table: Path) -> None:
    snapshot = write_log(table, [add("f", 1)])
    storage = Table(str(table)).storage
    write_version_checksum(storage, snapshot, None)
    stated = json.loads(storage.read(checksum_key(0)))
    del stated["fileSizeHistogram"]
    storage.put(checksum_key(0), json.dumps({**stated, "numFiles": 2}).encode())
    write_checkpoint(storage, snapshot, Runtime(now_ms=lambda: time.time_ns() // 1_000_000))


@pytest.mark.parametrize(
    ("cause", "named", "remedy"),
    [
        (absurd_sizes, "huge", "ask the writer of the commit"),
        (totals_beyond_64_bits, "add.size", "ask the writer of the commit"),
        (climbing_path, "/../x", "ask the writer of the commit"),
        (root_as_path, "a/..", "ask the writer of the commit"),
        (two_live_adds, "f", "ask the writer of the commit"),
        (no_protocol, "_delta_log", "restore its first commits, or a checkpoint"),
        (contradicting_checksum, checksum_key(0), "--repair-checksum"),
    ],
)
def test_what_is_not_the_fault_of_a_file_is_not_mended_by_restoring_one(
    tmp_path: Path, cause: Callable[[Path], None], named: str, remedy: str
) -> None:
    with pytest.raises(CorruptLog) as caught:
        cause(tmp_path)
    assert named in str(caught.value)
    assert remedy in str(caught.value)
    assert "Restore that file" not in str(caught.value)


def test_a_broken_file_is_to_be_restored(tmp_path: Path) -> None:
    write_log(tmp_path, [])
    (tmp_path / commit_key(0)).write_text("{")
    with pytest.raises(DeltaLogError, match="Restore that file, or ask its writer"):
        Table(str(tmp_path)).snapshot()
