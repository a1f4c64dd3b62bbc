"""A table of three files in memory: commits of other writers to it, and a compaction of ours."""

from __future__ import annotations

import json
from typing import Any

from delta_log.log.actions import Add, Remove
from delta_log.log.file_names import commit_key
from delta_log.log.log_segment import find_log_segment
from delta_log.runtime import Runtime
from delta_log.snapshot.snapshot import Snapshot
from delta_log.storage.storage import Storage
from delta_log.table_config.features import Operation
from delta_log.testing import MemoryStorage
from delta_log.transaction.commit_body import Change, FileGroup
from delta_log.transaction.transaction import CommitResult, Transaction

SCHEMA = json.dumps(
    {"type": "struct", "fields": [{"name": "x", "type": "long", "nullable": True, "metadata": {}}]}
)
PROTOCOL = {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}
METADATA = {"metaData": {"id": "t", "schemaString": SCHEMA, "partitionColumns": [], "configuration": {}}}
NO_WAIT = Runtime(now_ms=lambda: 1_000, sleep=lambda seconds: None)


def add(path: str) -> dict[str, Any]:
    return {
        "add": {"path": path, "size": 1, "modificationTime": 1, "dataChange": True, "partitionValues": {}}
    }


def remove(path: str, vector: int = 0) -> dict[str, Any]:
    body: dict[str, Any] = {"path": path, "deletionTimestamp": 1, "dataChange": True}
    if vector:
        body["deletionVector"] = {
            "storageType": "i", "pathOrInlineDv": f"v{vector}", "sizeInBytes": 4, "cardinality": vector,
        }  # fmt: skip
    return {"remove": body}


def write(storage: Storage, version: int, *actions: dict[str, Any]) -> None:
    assert storage.put_if_absent(commit_key(version), "".join(json.dumps(a) + "\n" for a in actions).encode())


def table_of_three() -> MemoryStorage:
    """Make a table whose version 0 holds the files a, b and c."""
    storage = MemoryStorage()
    write(storage, 0, PROTOCOL, METADATA, add("a"), add("b"), add("c"))
    return storage


def snapshot_of(storage: Storage, version: int | None = None) -> Snapshot:
    return Snapshot(storage, find_log_segment(storage, version))


def compaction(transaction: tuple[str, int] | None = None) -> Change:
    """a and b become ab."""
    return Change(
        operation="OPTIMIZE",
        groups=[
            FileGroup(
                [Add(path="ab", size=2, dataChange=False, partitionValues={})],
                [Remove(path=path, deletionTimestamp=1, dataChange=False) for path in ("a", "b")],
            )
        ],
        parameters={"predicate": ["x > 1"], "auto": False},
        metrics={"numAddedFiles": 1},
        transaction=transaction,
    )


def commit(storage: Storage, change: Change, read_version: int | None = 0) -> CommitResult:
    snapshot = snapshot_of(storage, read_version)
    return Transaction(storage, snapshot, Operation.OPTIMIZE, NO_WAIT).commit(change)


def live(storage: Storage) -> set[str]:
    return set(snapshot_of(storage).files(["key"]).column(0).to_pylist())


def actions_of(storage: Storage, version: int) -> list[dict[str, Any]]:
    return [json.loads(line) for line in storage.read(commit_key(version)).splitlines()]


def new_file(path: str, **more: Any) -> Add:
    return Add(path=path, size=2, dataChange=False, partitionValues={}, **more)


def old_file(path: str, **more: Any) -> Remove:
    return Remove(path=path, deletionTimestamp=1, dataChange=False, **more)


def metadata(**changed: Any) -> dict[str, Any]:
    return {"metaData": {**METADATA["metaData"], **changed}}
