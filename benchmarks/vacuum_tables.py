"""The tables of the vacuum benchmark: 200,000 files in 2,000 partitions, of which 20,000 may go. All of it is a month old.

In each partition 90 files are live, 5 were removed, and 5 are orphans. The log is a checkpoint of everything that was
added and ten commits that remove.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import deltalake

PARTITIONS, LIVE, REMOVED, ORPHANS = 2_000, 90, 5, 5
REMOVING_COMMITS = 10
_AGE_SECONDS = 30 * 86_400
_SCHEMA = {
    "type": "struct",
    "fields": [
        {"name": name, "type": kind, "nullable": True, "metadata": {}}
        for name, kind in (("day", "string"), ("id", "long"), ("name", "string"))
    ],
}


def local(root: Path) -> str:
    table = root / "vacuum-table"
    if not table.exists():
        scratch = root / "vacuum-table.part"
        shutil.rmtree(scratch, ignore_errors=True)
        _write(scratch)
        scratch.rename(table)
    return str(table)


def on_minio(bucket: Path, name: str) -> None:
    """Put the table into a bucket by way of its server's disk: 200,000 requests would take longer than all the rest.

    :param bucket: the directory in which MinIO keeps it; it holds the object ``template``, of which each data file becomes
        a copy. A small object is one file, in which its name is not written.
    """
    template = (bucket / "template" / "xl.meta").read_bytes()
    for partition in range(PARTITIONS):
        for file in (*_live(partition), *_removed(partition), *_orphans(partition)):
            directory = bucket / name / file
            directory.mkdir(parents=True)
            (directory / "xl.meta").write_bytes(template)


def log_files(root: Path) -> Iterator[Path]:
    yield from sorted((root / "vacuum-table" / "_delta_log").iterdir())


def _write(table: Path) -> None:
    (table / "_delta_log").mkdir(parents=True)
    long_ago = int(time.time()) - _AGE_SECONDS
    for partition in range(PARTITIONS):
        (table / _directory(partition)).mkdir()
        for file in (*_live(partition), *_removed(partition), *_orphans(partition)):
            path = table / file
            path.write_bytes(b"data")
            os.utime(path, (long_ago, long_ago))
    every = [(p, file) for p in range(PARTITIONS) for file in (*_live(p), *_removed(p))]
    metadata = {
        "id": "vacuum-benchmark",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps(_SCHEMA),
        "partitionColumns": ["day"],
        "configuration": {},
        "createdTime": long_ago * 1000,
    }
    first: list[dict[str, object]] = [
        {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
        {"metaData": metadata},
    ]
    _commit(table, 0, [*first, *(_add(p, file, long_ago * 1000) for p, file in every)])
    deltalake.DeltaTable(str(table)).create_checkpoint()
    removed = [(p, file) for p in range(PARTITIONS) for file in _removed(p)]
    share = len(removed) // REMOVING_COMMITS
    for number in range(REMOVING_COMMITS):
        part = removed[number * share : (number + 1) * share]
        _commit(table, number + 1, [_remove(p, file, long_ago * 1000 + number) for p, file in part])
    for path in [*table.glob("_delta_log/*"), *table.iterdir()]:
        os.utime(path, (long_ago, long_ago))


def _commit(table: Path, version: int, actions: list[dict[str, object]]) -> None:
    info = {"commitInfo": {"operation": "WRITE", "timestamp": 1}}
    body = "".join(json.dumps(action) + "\n" for action in [info, *actions])
    (table / "_delta_log" / f"{version:020d}.json").write_text(body)


def _directory(partition: int) -> str:
    return f"day={partition:05d}"


def _live(partition: int) -> list[str]:
    return [_file(partition, number, "c000") for number in range(LIVE)]


def _removed(partition: int) -> list[str]:
    return [_file(partition, number, "c001") for number in range(REMOVED)]


def _orphans(partition: int) -> list[str]:
    return [_file(partition, number, "c002") for number in range(ORPHANS)]


def _file(partition: int, number: int, kind: str) -> str:
    return f"{_directory(partition)}/part-{number:05d}-{partition:08x}-5f3a-4c1b-9d2e-{number:012x}.{kind}.snappy.parquet"


def _add(partition: int, file: str, time_ms: int) -> dict[str, object]:
    stats = {
        "numRecords": 10,
        "minValues": {"id": 0, "name": "a"},
        "maxValues": {"id": 9, "name": "z"},
        "nullCount": {"id": 0, "name": 0},
    }
    return {
        "add": {
            "path": file,
            "partitionValues": {"day": f"{partition:05d}"},
            "size": 4,
            "modificationTime": time_ms,
            "dataChange": True,
            "stats": json.dumps(stats),
        }
    }


def _remove(partition: int, file: str, time_ms: int) -> dict[str, object]:
    return {
        "remove": {
            "path": file,
            "deletionTimestamp": time_ms,
            "dataChange": True,
            "extendedFileMetadata": True,
            "partitionValues": {"day": f"{partition:05d}"},
            "size": 4,
        }
    }
