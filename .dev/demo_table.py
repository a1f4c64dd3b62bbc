"""The table of the demo: written, and read again afterwards, by delta-rs, which shares no code with this project."""

from __future__ import annotations

import hashlib
import random
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

_DAYS = 6
_BATCHES = 84
_ROWS_PER_BATCH = 1200
_KINDS = ("click", "view", "order", "refund")


@dataclass(frozen=True)
class TableState:
    """What one version of the table amounts to."""

    version: int
    num_files: int
    size_bytes: int
    num_rows: int
    digest: str

    @property
    def mean_file_bytes(self) -> int:
        return self.size_bytes // max(1, self.num_files)


def write_small_files(path: Path, seed: int = 7) -> None:
    """Batches as a stream would append them, each to every day; amid them some rows are deleted and updated."""
    source = random.Random(seed)  # noqa: S311 - the same table every time
    start = date(2026, 1, 1)
    for batch in range(_BATCHES):
        first = batch * _ROWS_PER_BATCH
        ids = range(first, first + _ROWS_PER_BATCH)
        rows = pa.table(
            {
                "id": pa.array(ids, pa.int64()),
                "day": pa.array([start + timedelta(days=i % _DAYS) for i in ids], pa.date32()),
                "kind": [source.choice(_KINDS) for _ in ids],
                "amount": [round(source.lognormvariate(3, 1), 2) for _ in ids],
                "note": [None if source.random() < 0.5 else f"note {source.randrange(10**9)}" for _ in ids],
            }
        )
        write_deltalake(
            str(path), rows, mode="append", partition_by=["day"], name="events" if not batch else None
        )
        if batch == _BATCHES // 2:
            _change_some_rows(path)


def _change_some_rows(path: Path) -> None:
    table = DeltaTable(str(path))
    table.delete("kind = 'refund' AND id % 12 = 1")
    table.update(predicate="kind = 'order' AND id % 12 = 2", updates={"amount": "amount * 2"})


def read_state(path: Path, version: int | None = None) -> TableState:
    """By delta-rs; the digest is over all rows, in the order of their ids."""
    table = DeltaTable(str(path), version=version)
    rows = table.to_pyarrow_table().sort_by("id")
    rows = rows.select(sorted(rows.column_names)).combine_chunks()
    digest = hashlib.sha256()
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as stream:
        stream.write_table(rows)
    digest.update(sink.getvalue())
    files = pa.table(table.get_add_actions())
    sizes = files["size_bytes"].to_pylist()
    return TableState(table.version(), len(sizes), sum(sizes), rows.num_rows, digest.hexdigest())


def read_commit(path: Path) -> dict[str, Any]:
    """The newest commit's own account of itself."""
    return dict(DeltaTable(str(path)).history(1)[0])
