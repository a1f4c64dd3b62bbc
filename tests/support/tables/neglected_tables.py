"""Random tables that were left to themselves: small files, deleted rows, removed files, long logs, and what no run may touch.

pyarrow writes the data files, and the log is written by hand. A seed gives always the same table, but for the moment that its
times are counted back from.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from delta_log import Table
from delta_log.checkpoint.writer import write_checkpoint
from delta_log.data.deletion_vector import write_deletion_vectors
from delta_log.data.row_bitmap import RowBitmap
from delta_log.runtime import Runtime
from delta_log.snapshot.version_checksum import write_version_checksum

DAY_MS = 86_400_000
#: Rows of the data files that tables are made of.
_ROWS = (1, 30, 300, 1500, 3000)
_COLUMN_TYPES = {
    "string": ["x", "y z", "it's", "é", None],
    "integer": ["1", "-7", None],
    "date": ["2026-01-31", None],
}
#: Features that stop a rewrite.
REFUSED_FEATURES = ("clustering", "collations", "anUnknownFeature")


@dataclass
class NeglectedTable:
    """
    :ivar vacuumed_until_ms: files that were removed before this moment are not there any more.
    """

    path: Path
    rng: random.Random
    now_ms: int
    days: int
    partition_by: Mapping[str, str]
    properties: Mapping[str, str]
    vacuumed_until_ms: int
    live: dict[str, dict[str, Any]] = field(default_factory=dict)
    #: Whether this package knows all its features, so that it can write checkpoints.
    is_known: bool = True
    versions: int = 0
    files: int = 0

    def write(self, parts: Path) -> None:
        """
        :param parts: a directory for data files that tables share, as copies.
        """
        rng, commits = self.rng, self.rng.choice([1, 2, 4, 12, 20])
        checkpointed = rng.choice([None, rng.randrange(commits)])
        start_ms = self.now_ms - self.days * DAY_MS
        for number in range(commits):
            time_ms = start_ms + (self.days * DAY_MS - 60_000) * number // commits
            actions = self._first_actions() if number == 0 else [{"commitInfo": self._info(time_ms)}]
            changed = rng.sample(sorted(self.live), min(len(self.live), rng.choice([0, 0, 1, 2])))
            actions += [self._add(parts, time_ms) for _ in range(rng.choice([0, 1, 1, 2, 5]))]
            for path in changed:
                actions += self._changed(path, time_ms)
            self._commit(actions, time_ms)
            if number == checkpointed and self.is_known:
                self._checkpoint(time_ms)
        if rng.random() < 0.3 and self.is_known:
            table = Table(str(self.path))
            write_version_checksum(table.storage, table.snapshot(), None)

    def _first_actions(self) -> list[dict[str, Any]]:
        fields = [
            {"name": name, "type": kind, "nullable": True, "metadata": {}}
            for name, kind in {**self.partition_by, "value": "long"}.items()
        ]
        refused = [self.rng.choice(REFUSED_FEATURES)] if self.rng.random() < 0.05 else []
        self.is_known = "anUnknownFeature" not in refused
        protocol = {
            "minReaderVersion": 3,
            "minWriterVersion": 7,
            "readerFeatures": ["deletionVectors"],
            "writerFeatures": ["deletionVectors", "domainMetadata", *refused],
        }
        metadata = {
            "id": str(uuid.UUID(int=7)),
            "format": {"provider": "parquet", "options": {}},
            "schemaString": json.dumps({"type": "struct", "fields": fields}),
            "partitionColumns": list(self.partition_by),
            "configuration": dict(self.properties),
        }
        actions: list[dict[str, Any]] = [{"protocol": protocol}, {"metaData": metadata}]
        if refused == ["clustering"]:
            clustered = {"clusteringColumns": [["value"]], "domainName": "delta.clustering"}
            domain = {"domain": "delta.clustering", "configuration": json.dumps(clustered), "removed": False}
            actions.append({"domainMetadata": domain})
        return actions

    def _info(self, time_ms: int) -> dict[str, Any]:
        operation = self.rng.choice(["WRITE", "MERGE", "OPTIMIZE", "VACUUM END", None, 7])
        return {"operation": operation, "timestamp": time_ms, "engineInfo": "by hand"}

    def _add(self, parts: Path, time_ms: int) -> dict[str, Any]:
        rows = self.rng.choice(_ROWS)
        self.files += 1
        name = f"part-{self.files:03}.parquet"
        shutil.copyfile(_part(parts, rows), self.path / name)
        os.utime(self.path / name, (time_ms / 1000,) * 2)
        is_foreign = self.rng.random() < 0.05
        if is_foreign:
            elsewhere = self.path.parent / f"elsewhere-{name}"
            (self.path / name).rename(elsewhere)
            name = str(elsewhere)
        body = {
            "path": name,
            "size": Path(self.path, name).stat().st_size,
            "partitionValues": {
                column: self.rng.choice(_COLUMN_TYPES[kind]) for column, kind in self.partition_by.items()
            },
            "modificationTime": time_ms,
            "dataChange": True,
            "stats": json.dumps({"numRecords": rows}),
        }
        if self.rng.random() < 0.1:
            del body["stats"]
        self.live[name] = {**body, "rows": rows}
        return {"add": body}

    def _changed(self, path: str, time_ms: int) -> list[dict[str, Any]]:
        """Remove a file, or some of its rows."""
        file = self.live.pop(path)
        kept: dict[str, Any] = {
            name: file[name] for name in ("partitionValues", "size", "deletionVector") if name in file
        }
        more = {"deletionTimestamp": time_ms, "dataChange": True, "extendedFileMetadata": True}
        remove = {"path": path, **more, **kept}
        if "deletionVector" in file or self.rng.random() < 0.5:
            if time_ms < self.vacuumed_until_ms:
                Path(self.path, path).unlink()
            return [{"remove": remove}]
        storage, rows = Table(str(self.path)).storage, file["rows"]
        deleted = sorted(
            self.rng.sample(range(rows), max(1, int(rows * self.rng.choice([0.01, 0.08, 0.6, 1]))))
        )
        (vector,) = write_deletion_vectors(
            storage, [RowBitmap(deleted)], uuid.UUID(int=self.rng.getrandbits(128))
        )
        stats = {"stats": json.dumps({"numRecords": rows, "tightBounds": False})} if "stats" in file else {}
        body = {**file, "deletionVector": msgspec.to_builtins(vector), **stats}
        self.live[path] = body
        return [{"remove": remove}, {"add": {name: value for name, value in body.items() if name != "rows"}}]

    def _commit(self, actions: list[dict[str, Any]], time_ms: int) -> None:
        commit = self.path / "_delta_log" / f"{self.versions:020}.json"
        commit.write_text("".join(json.dumps(action) + "\n" for action in actions))
        os.utime(commit, (time_ms / 1000,) * 2)
        self.versions += 1

    def _checkpoint(self, time_ms: int) -> None:
        table = Table(str(self.path))
        for key in write_checkpoint(table.storage, table.snapshot(), Runtime(now_ms=lambda: time_ms)).keys:
            os.utime(self.path / key, (time_ms / 1000,) * 2)


def write_neglected(path: Path, seed: int, parts: Path, now_ms: int) -> NeglectedTable:
    """Write the table of a seed."""
    rng = random.Random(seed)
    days = rng.choice([1, 20, 90])
    properties = {"delta.targetFileSize": rng.choice(["4kb", "16kb", "64kb", "1gb"])}
    if rng.random() < 0.3:
        properties["delta.logRetentionDuration"] = "interval 3 days"
    if rng.random() < 0.3:
        properties["delta.deletedFileRetentionDuration"] = "interval 1 day"
    kinds = [rng.choice(sorted(_COLUMN_TYPES)) for _ in range(rng.choice([0, 1, 1, 2]))]
    table = NeglectedTable(
        path,
        rng,
        now_ms,
        days,
        {f"p{number}": kind for number, kind in enumerate(kinds)},
        properties,
        now_ms - rng.choice([0, 8, 100]) * DAY_MS,
    )
    (path / "_delta_log").mkdir(parents=True)
    table.write(parts)
    return table


@cache
def _part(parts: Path, rows: int) -> Path:
    path = parts / f"{rows}.parquet"
    parts.mkdir(exist_ok=True)
    values = pa.array([number * 7_919 for number in range(rows)], pa.int64())
    pq.write_table(pa.table({"value": values}), path, compression="none")
    return path
