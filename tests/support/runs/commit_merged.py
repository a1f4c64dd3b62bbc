"""A compaction reduced to its commit: replaces all files of a table by one that was written before."""

from __future__ import annotations

from pathlib import Path

from delta_log import Table
from delta_log.log.actions import Add, Remove
from delta_log.runtime import Runtime
from delta_log.table_config.features import Operation
from delta_log.transaction.commit_body import Change, FileGroup
from delta_log.transaction.transaction import Transaction, find_transaction

MERGED = "merged.parquet"


def commit_merged(table_uri: str) -> None:
    """Commits :data:`MERGED` in place of all live files, unless an earlier call has."""
    table = Table(table_uri)
    snapshot = table.snapshot()
    if find_transaction(snapshot, table.storage, "app", 1) is not None:
        return
    removes = [
        Remove(
            path=file["path"],
            size=file["size"],
            dataChange=False,
            deletionTimestamp=1,
            partitionValues={},
            extendedFileMetadata=True,
        )
        for file in snapshot.files().to_pylist()
    ]
    size = (Path(table_uri) / MERGED).stat().st_size
    add = Add(path=MERGED, size=size, modificationTime=1, dataChange=False, partitionValues={})
    change = Change("OPTIMIZE", [FileGroup([add], removes)], transaction=("app", 1))
    Transaction(table.storage, snapshot, Operation.OPTIMIZE, Runtime()).commit(change)
