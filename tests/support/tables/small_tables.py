"""Small tables written by delta-rs, an independent writer."""

from __future__ import annotations

import json
from datetime import date, timedelta
from pathlib import Path

import pyarrow as pa
from deltalake import write_deltalake


def write_days(table: Path, *, files: int = 6, rows: int = 100, days: int = 2) -> pa.Table:
    """Writes a table of many small files, partitioned by ``day``; returns its rows, sorted by ``id``."""
    written = []
    for number in range(files):
        rows_of_file = pa.table(
            {
                "day": pa.array([date(2024, 1, 1) + timedelta(days=number % days)] * rows),
                "id": pa.array(range(number * rows, (number + 1) * rows), pa.int64()),
                "text": pa.array([f"row {n}" if n % 7 else None for n in range(rows)]),
            }
        )
        write_deltalake(str(table), rows_of_file, mode="append", partition_by=["day"])
        written.append(rows_of_file)
    return pa.concat_tables(written).sort_by("id")


def write_parts(table: Path, parts: str) -> Path:
    """Writes two files of one row into each partition, so that each partition is a bin; row ``10 * file + n`` is in the n-th."""
    for number in range(2):
        rows = pa.table({"id": [10 * number + n for n in range(len(parts))], "part": list(parts)})
        write_deltalake(str(table), rows, partition_by=["part"], mode="append")
    return table


def with_unknown_feature(table: Path) -> Path:
    """Adds a commit after which no implementation can read the table."""
    protocol = {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": ["timeTravelToTheFuture"],
        "writerFeatures": ["timeTravelToTheFuture"],
    }
    version = len(list((table / "_delta_log").glob("*.json")))
    commit = table / "_delta_log" / f"{version:020}.json"
    commit.write_text(json.dumps({"protocol": protocol}) + "\n")
    return table


def contents(path: Path) -> dict[str, bytes]:
    """The files below a directory, by path relative to it."""
    return {str(file.relative_to(path)): file.read_bytes() for file in path.rglob("*") if file.is_file()}
