"""Tables whose commits Unity Catalog ratifies, and a writer of them that shares no code with the product."""

from __future__ import annotations

import json
import shutil
import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

from delta_log.testing.fake_catalogs import FakeUnityCatalog
from tests.support.tables.small_tables import write_days

NAME = "prod.sales.events"
_PROTOCOL = {
    "minReaderVersion": 3,
    "minWriterVersion": 7,
    "readerFeatures": ["catalogManaged"],
    "writerFeatures": ["appendOnly", "catalogManaged", "inCommitTimestamp", "invariants"],
}
#: The version from which on the catalog ratifies commits.
FIRST = 6
_FIRST_MS = 1_700_000_000_000


def commit_path(table: Path, version: int) -> Path:
    return table / "_delta_log" / f"{version:020d}.json"


def write_managed(table: Path) -> pa.Table:
    """Write a table of six small files and two partitions, whose version 6 hands it to a catalog. Returns its rows, sorted by `id`."""
    rows = write_days(table)
    lines = [json.loads(line) for line in commit_path(table, 0).read_text().splitlines()]
    (metadata,) = (line["metaData"] for line in lines if "metaData" in line)
    metadata["configuration"] = {
        "delta.enableInCommitTimestamps": "true",
        "delta.inCommitTimestampEnablementVersion": str(FIRST),
        "delta.inCommitTimestampEnablementTimestamp": str(_FIRST_MS),
    }
    info = {"inCommitTimestamp": _FIRST_MS, "operation": "SET TBLPROPERTIES", "txnId": uuid.uuid4().hex}
    actions = [{"commitInfo": info}, {"protocol": _PROTOCOL}, {"metaData": metadata}]
    commit_path(table, FIRST).write_text("".join(json.dumps(action) + "\n" for action in actions))
    return rows


class OtherWriter:
    """Appends as another client of the catalog would, step by step."""

    def __init__(self, table: Path, catalog: FakeUnityCatalog) -> None:
        self.table, self.managed = table, catalog.managed(NAME)
        self._key = catalog.tables[tuple(NAME.split("."))].key

    def stage(self, number: int) -> dict[str, Any]:
        """Stage a commit with one row for the next version, and return what the catalog is told of it."""
        version = self.managed.latest_version + 1
        name = f"{uuid.uuid4().hex}.parquet"
        pq.write_table(pa.table({"id": pa.array([number], pa.int64()), "text": ["other"]}), self.table / name)
        timestamp_ms = _FIRST_MS + version
        add = {
            "path": name,
            "size": (self.table / name).stat().st_size,
            "partitionValues": {"day": "2024-01-01"},
            "modificationTime": timestamp_ms,
            "dataChange": True,
            "stats": '{"numRecords": 1}',
        }
        info = {"inCommitTimestamp": timestamp_ms, "operation": "WRITE", "txnId": uuid.uuid4().hex}
        body = "".join(json.dumps(action) + "\n" for action in ({"commitInfo": info}, {"add": add}))
        staged = self.table / "_delta_log" / "_staged_commits" / f"{version:020d}.{uuid.uuid4()}.json"
        staged.parent.mkdir(exist_ok=True)
        staged.write_text(body)
        return {
            "version": version,
            "timestamp": timestamp_ms,
            "file-name": staged.name,
            "file-size": len(body),
            "file-modification-timestamp": int(staged.stat().st_mtime * 1000),
        }

    def append(self, number: int) -> int:
        """Commit a row with an `id`, and publish nothing. Returns the version."""
        commit = self.stage(number)
        requirements = [{"type": "assert-table-uuid", "uuid": self._key}]
        refusal = self.managed.update(
            self._key, {"requirements": requirements, "updates": [{"action": "add-commit", "commit": commit}]}
        )
        assert refusal is None, refusal
        return int(commit["version"])


def unmanaged_copy(table: Path, copy: Path) -> str:
    """Copy what is published of a table, without the feature that readers by address do not know, and return where it is."""
    shutil.copytree(table, copy, ignore=shutil.ignore_patterns("_staged_commits", "*checkpoint*", "*.crc"))
    first = commit_path(copy, FIRST)
    lines = [json.loads(line) for line in first.read_text().splitlines()]
    for protocol in (line["protocol"] for line in lines if "protocol" in line):
        for features in (protocol["readerFeatures"], protocol["writerFeatures"]):
            features.remove("catalogManaged")
    first.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return str(copy)


def ids_of_delta_rs(table: str) -> list[int]:
    """The `id` of each row that delta-rs reads."""
    return sorted(DeltaTable(table).to_pyarrow_table(columns=["id"])["id"].to_pylist())
