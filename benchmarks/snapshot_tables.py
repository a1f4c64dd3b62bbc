"""The tables of the snapshot benchmark; made once, kept for the next run."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

_FIELDS = [("id", "long"), ("amount", "double"), ("name", "string"), ("at", "timestamp")]
_SCHEMA = json.dumps(
    {
        "type": "struct",
        "fields": [
            {"name": name, "type": kind, "nullable": True, "metadata": {}}
            for name, kind in [*_FIELDS, ("day", "date")]
        ],
    }
)
_PROTOCOL = {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}
_METADATA = {
    "metaData": {
        "id": "5f6b1c1e-0000-4000-8000-000000000001",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": _SCHEMA,
        "partitionColumns": ["day"],
        "configuration": {},
        "createdTime": 1_700_000_000_000,
    }
}
_ROWS = 1000


def _stats(number: int) -> str:
    low = {
        "id": number * _ROWS,
        "amount": 0.5,
        "name": f"name-{number:08d}-a",
        "at": "2024-01-01T00:00:00.000Z",
    }
    high = {
        "id": number * _ROWS + _ROWS - 1, "amount": 99.5, "name": f"name-{number:08d}-z", "at": "2024-12-31T00:00:00.000Z"
    }  # fmt: skip
    nulls = {name: 0 for name, _ in _FIELDS}
    return json.dumps({"numRecords": _ROWS, "minValues": low, "maxValues": high, "nullCount": nulls})


def _day(number: int) -> str:
    return f"2024-{number % 12 + 1:02d}-{number % 28 + 1:02d}"


def _path(number: int) -> str:
    return f"day={_day(number)}/part-{number:08d}-7b0c4d54-5f0e-4a3c-9c39-{number:012d}-c000.snappy.parquet"


def _add(number: int) -> dict[str, Any]:
    return {
        "add": {
            "path": _path(number),
            "partitionValues": {"day": _day(number)},
            "size": 1_000_000 + number % 1000,
            "modificationTime": 1_700_000_000_000 + number,
            "dataChange": True,
            "stats": _stats(number),
        }
    }


def _write(log: Path, version: int, actions: list[dict[str, Any]]) -> None:
    info = {
        "commitInfo": {
            "timestamp": 1_700_000_000_000 + version,
            "operation": "WRITE",
            "operationParameters": {},
        }
    }
    text = "".join(json.dumps(action) + "\n" for action in [info, *actions])
    (log / f"{version:020d}.json").write_text(text)


def commits(table: Path, versions: int, files: int) -> Path:
    """So many commits of so many new files each, and no checkpoint."""
    log = table / "_delta_log"
    if (log / f"{versions - 1:020d}.json").exists():
        return table
    os.makedirs(log, exist_ok=True)
    for version in range(versions):
        first: list[dict[str, Any]] = [_PROTOCOL, _METADATA] if version == 0 else []
        _write(log, version, first + [_add(version * files + n) for n in range(files)])
    return table


def checkpointed(table: Path, files: int, later: int) -> Path:
    """A classic checkpoint of so many files at version 10, and so many commits after it: adds and removes."""
    log = table / "_delta_log"
    last = 10 + later
    if (log / f"{last:020d}.json").exists():
        return table
    os.makedirs(log, exist_ok=True)
    for version in range(11):
        _write(log, version, [_PROTOCOL, _METADATA] if version == 0 else [])
    _checkpoint(log / f"{10:020d}.checkpoint.parquet", files)
    (log / "_last_checkpoint").write_text(json.dumps({"version": 10, "size": files + 2}))
    for version in range(11, last + 1):
        number = files + version
        gone = version * 1000 % files
        remove = {
            "remove": {
                "path": _path(gone),
                "deletionTimestamp": 1_700_000_000_000 + version,
                "dataChange": True,
                "extendedFileMetadata": True,
                "partitionValues": {"day": _day(gone)},
                "size": 1_000_000 + gone % 1000,
            }
        }
        _write(log, version, [_add(number), remove])
    return table


def _checkpoint(path: Path, files: int) -> None:
    strings = pa.map_(pa.string(), pa.string())
    add = pa.struct(
        [
            ("path", pa.string()),
            ("partitionValues", strings),
            ("size", pa.int64()),
            ("modificationTime", pa.int64()),
            ("dataChange", pa.bool_()),
            ("stats", pa.string()),
            ("tags", strings),
        ]
    )
    protocol = pa.struct([("minReaderVersion", pa.int32()), ("minWriterVersion", pa.int32())])
    metadata = pa.struct(
        [
            ("id", pa.string()),
            ("format", pa.struct([("provider", pa.string()), ("options", strings)])),
            ("schemaString", pa.string()),
            ("partitionColumns", pa.list_(pa.string())),
            ("configuration", strings),
            ("createdTime", pa.int64()),
        ]
    )
    schema = pa.schema([("protocol", protocol), ("metaData", metadata), ("add", add)])
    chunk = 100_000
    with pq.ParquetWriter(path, schema, compression="snappy") as writer:
        head = [_PROTOCOL, {"metaData": {**_METADATA["metaData"]}}]
        writer.write_table(pa.Table.from_pylist(head, schema))
        for start in range(0, files, chunk):
            numbers = range(start, min(start + chunk, files))
            rows = [_add(number)["add"] for number in numbers]
            adds = pa.array(
                [{**row, "partitionValues": list(row["partitionValues"].items())} for row in rows], add
            )
            columns = [pa.nulls(len(adds), protocol), pa.nulls(len(adds), metadata), adds]
            writer.write_table(pa.Table.from_arrays(columns, schema=schema), row_group_size=len(adds))


def path_sum(paths: pa.ChunkedArray) -> int:
    """Something that depends on every path, cheap on both sides."""
    return int(np.sum(pc.binary_length(paths).to_numpy()))
