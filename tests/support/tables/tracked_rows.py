"""Turns row tracking on for tables that others wrote, as ``ALTER TABLE`` does, and reads each row's id.

The commit is written by hand, so that none of our code assigns the ids that a rewrite has to keep.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet as pq

from delta_log import Snapshot, Table
from delta_log.data.scan import vector_of
from delta_log.log.file_names import commit_key
from delta_log.storage.local.local_storage import LocalStorage
from delta_log.table_config.features import writer_features

_COLUMNS = {
    "delta.rowTracking.materializedRowIdColumnName": "_row-id-col-42",
    "delta.rowTracking.materializedRowCommitVersionColumnName": "_row-commit-version-col-42",
}
#: Between the ids of one file and the next, as if files had come and gone.
_GAP = 10


def tracked_rows(table: Path) -> list[str]:
    """Returns every live row with its id and commit version, as sorted text."""
    snapshot = Table(str(table)).snapshot()
    rows = snapshot.scan(row_tracking=True).read_all().to_pylist()
    found = sorted((row["_row_id"], row["_row_commit_version"]) for row in rows)
    assert found == sorted(_ids(table, snapshot))
    assert len({row_id for row_id, _ in found}) == len(rows)
    return sorted(map(repr, rows))


def _ids(table: Path, snapshot: Snapshot) -> Iterator[tuple[int, int]]:
    """Ids and commit versions of the live rows, as the protocol has them: our scan and our rewriter share their code."""
    names = [snapshot.properties[name] for name in _COLUMNS]
    for file in snapshot.files().to_pylist():
        parquet = pq.ParquetFile(table / file["key"])
        count = parquet.metadata.num_rows
        stored = parquet.read(columns=[name for name in names if name in parquet.schema_arrow.names])
        ids, versions = (
            stored.column(name).to_pylist() if name in stored.column_names else [None] * count
            for name in names
        )
        hidden = vector_of(file, LocalStorage(str(table)))
        for position in range(count):
            if hidden is None or not hidden.count(position, position + 1):
                row_id, version = ids[position], versions[position]
                yield (
                    file["base_row_id"] + position if row_id is None else row_id,
                    file["default_row_commit_version"] if version is None else version,
                )


def turn_row_tracking_on(table: Path) -> None:
    """Every live file is added once more, with an id for its first row and one of the table's versions."""
    snapshot = Table(str(table)).snapshot()
    features = {*writer_features(snapshot.protocol), "rowTracking", "domainMetadata"}
    protocol = msgspec.structs.replace(snapshot.protocol, minWriterVersion=7, writerFeatures=sorted(features))
    properties = {**snapshot.properties, "delta.enableRowTracking": "true", **_COLUMNS}
    metadata = msgspec.structs.replace(snapshot.metadata, configuration=properties)
    free, adds = 0, []
    for number, file in enumerate(snapshot.files().to_pylist()):
        rows = pq.ParquetFile(table / file["key"]).metadata.num_rows
        ids = {"baseRowId": free, "defaultRowCommitVersion": number % (snapshot.version + 1)}
        adds.append({"add": _added_again(file, rows) | ids})
        free += rows + _GAP
    mark = json.dumps({"rowIdHighWaterMark": free - 1})
    actions = [
        {"commitInfo": {"timestamp": 1_700_000_000_000, "operation": "SET TBLPROPERTIES"}},
        {"protocol": protocol},
        {"metaData": metadata},
        {"domainMetadata": {"domain": "delta.rowTracking", "configuration": mark, "removed": False}},
        *adds,
    ]
    lines = [msgspec.json.encode(action).decode() + "\n" for action in actions]
    (table / commit_key(snapshot.version + 1)).write_text("".join(lines))


def _added_again(file: dict[str, Any], rows: int) -> dict[str, Any]:
    vector = file["deletion_vector"]
    return {
        "path": file["path"],
        "partitionValues": dict(file["partition_values"] or ()),
        "size": file["size"],
        "modificationTime": file["modification_time"],
        "dataChange": False,
        "stats": file["stats"] or json.dumps({"numRecords": rows}),
        **({"deletionVector": {k: v for k, v in vector.items() if v is not None}} if vector else {}),
    }


def check_given_ids(before: Snapshot, after: Snapshot) -> None:
    """Checks that new files have ids above all earlier ones, that no two files share one, and that the high-water mark covers them."""
    old = set(before.files(["base_row_id"]).column("base_row_id").to_pylist())
    mark, new_mark = (_mark(snapshot) for snapshot in (before, after))
    for file in sorted(after.files().to_pylist(), key=lambda file: int(file["base_row_id"])):
        if file["base_row_id"] not in old:
            assert file["base_row_id"] > mark
            assert before.version < file["default_row_commit_version"] <= after.version
            mark = file["base_row_id"] + json.loads(file["stats"])["numRecords"] - 1
    assert new_mark >= mark


def _mark(snapshot: Snapshot) -> int:
    mark: int = json.loads(snapshot.domain_metadata["delta.rowTracking"])["rowIdHighWaterMark"]
    return mark
