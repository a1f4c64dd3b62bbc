"""Logs of tables in which another writer's statements follow each other."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from delta_log import Table
from delta_log.log.file_names import commit_key
from delta_log.storage.local.local_storage import LocalStorage


def write_statements(
    table: Path, part: str, times: int, *, every_seconds: float, took_seconds: float, until_ms: int
) -> None:
    """Commit statements of another writer in one partition of the column ``part``.

    They add a file anew as it is, so that no row changes.

    :param until_ms: when the last one was committed, in milliseconds since the epoch.
    """
    columns = ["path", "size", "partition_values", "stats", "deletion_vector"]
    file = next(
        file
        for file in Table(str(table)).snapshot().files(columns).to_pylist()
        if dict(file["partition_values"])["part"] == part and file["deletion_vector"] is None
    )
    add = {
        "path": file["path"],
        "partitionValues": {"part": part},
        "size": file["size"],
        "modificationTime": 1,
        "dataChange": True,
        "stats": file["stats"],
    }
    for number in range(times):
        info = {
            "timestamp": until_ms - round(1000 * every_seconds * (times - 1 - number)),
            "operation": "UPDATE",
            "operationMetrics": {"executionTimeMs": str(round(1000 * took_seconds))},
            "isBlindAppend": False,
        }
        _commit(table, {"commitInfo": info}, {"add": add})


def _commit(table: Path, *actions: dict[str, Any]) -> None:
    version = Table(str(table)).snapshot().version + 1
    body = "".join(json.dumps(action) + "\n" for action in actions)
    assert LocalStorage(str(table)).put_if_absent(commit_key(version), body.encode())
