"""What the snapshot benchmark measures: one function a contender, each returning facts that both sides must share."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq  # noqa: F401 - an import, so not part of what is measured

from delta_log import Table
from delta_log.snapshot.snapshot import Snapshot  # noqa: F401 - the same

# The first conversion of a Python list imports pandas where it is installed; that is an import as well.
pa.array([1])

_LIST = ["path", "partition_values", "size", "deletion_vector"]


def our_paths(uri: str) -> dict[str, Any]:
    files = Table(uri).snapshot().files(["path"])
    return {"files": files.num_rows}


def delta_rs_paths(uri: str) -> dict[str, Any]:
    return {"files": len(deltalake.DeltaTable(uri).file_uris())}


def our_files(uri: str) -> dict[str, Any]:
    return _facts(Table(uri).snapshot().files(_LIST))


def our_files_with_stats(uri: str) -> dict[str, Any]:
    return _facts(Table(uri).snapshot().files([*_LIST, "stats"]))


def our_streamed_stats(uri: str) -> dict[str, Any]:
    snapshot = Table(uri).snapshot()
    count = size = 0
    for batch in snapshot.file_batches([*_LIST, "stats"]):
        snapshot.parsed_stats(batch.column("stats"))
        count += batch.num_rows
        size += pc.sum(batch.column("size")).as_py()
    return {"files": count, "bytes": size}


def our_held_stats(uri: str) -> dict[str, Any]:
    snapshot = Table(uri).snapshot()
    files = snapshot.files([*_LIST, "stats"])
    parsed = snapshot.parsed_stats(files.column("stats"))
    assert len(parsed) == files.num_rows
    return _facts(files)


def delta_rs_add_actions(uri: str) -> dict[str, Any]:
    adds = pa.table(deltalake.DeltaTable(uri).get_add_actions(flatten=True))
    return {"files": adds.num_rows, "bytes": pc.sum(adds.column("size_bytes")).as_py()}


def our_refresh(uri: str) -> dict[str, Any]:
    """The refresh alone is measured, on a table that just got one more commit."""
    table = Table(uri)
    before = table.snapshot()
    before.files(_LIST)
    assert before.num_files
    log = Path(uri) / "_delta_log"
    version = before.version + 1
    commit = log / f"{version:020d}.json"
    source = json.loads((log / f"{before.version:020d}.json").read_text().splitlines()[1])
    source["add"]["path"] = f"new-{version}.parquet"
    commit.write_text(json.dumps(source) + "\n")
    try:
        started = time.perf_counter()
        after = table.snapshot(refresh_from=before)
        facts = {"version": after.version - version, "files": after.num_files - before.num_files}
        added, removed = after.changes_since(before.version)
        facts |= {"added": added.num_rows, "removed": removed.num_rows}
        return {"measured_seconds": time.perf_counter() - started, **facts}
    finally:
        commit.unlink()


def _facts(files: pa.Table) -> dict[str, Any]:
    return {"files": files.num_rows, "bytes": pc.sum(files.column("size")).as_py()}
