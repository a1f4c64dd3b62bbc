"""Two million candidates: what a vacuum holds in memory from the listing to the last deletion.

The store is a fake whose data files have no contents: their names are made up while they are listed. Besides them
a hundred thousand files are live. No commit ever named the candidates (:func:`ours`), or commits removed half of them
(:func:`tombstones`), so that the log's tail has a million tombstones.
"""

from __future__ import annotations

import io
import json
import os
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from delta_log.log.log_segment import find_log_segment
from delta_log.runtime import Runtime
from delta_log.snapshot.snapshot import Snapshot
from delta_log.storage.opening import open_storage
from delta_log.storage.storage import EnterDirectories, FileInfo, TreePage
from delta_log.testing import MemoryStorage
from delta_maintenance.progress import SilentProgress
from delta_maintenance.vacuum.candidates import find_candidates
from delta_maintenance.vacuum.execution import execute_plan
from delta_maintenance.vacuum.options import VacuumOptions

NOW_MS = 1_800_000_000_000
LONG_AGO_MS = NOW_MS - 30 * 86_400_000
ORPHANS, LIVE = 2_000_000, 100_000
REMOVING_COMMITS, REMOVED_BY_EACH = 10, 100_000
_PAGE = 1_000
_SCHEMA = json.dumps(
    {"type": "struct", "fields": [{"name": "x", "type": "long", "nullable": True, "metadata": {}}]}
)


class ManyFiles(MemoryStorage):
    """A storage of many files that counts deletions.

    :ivar deleted: number of deleted files.
    """

    def __init__(self) -> None:
        super().__init__("memory://table")
        self.deleted = 0

    def list_tree(self, enter: EnterDirectories) -> Iterator[TreePage]:
        for kind, total in (("live", LIVE), ("orphan", ORPHANS)):
            if self.deleted and kind != "live":
                continue
            for start in range(0, total, _PAGE):
                keys = [key_of(kind, number) for number in range(start, start + _PAGE)]
                yield TreePage(keys, [1_000] * _PAGE, [LONG_AGO_MS] * _PAGE)

    def head(self, key: str) -> FileInfo | None:
        return super().head(key) if key.startswith("_delta_log/") else FileInfo(key, key, 1_000, LONG_AGO_MS)

    def delete(self, keys: Iterable[str]) -> None:
        self.deleted += len(list(keys))


def key_of(kind: str, number: int) -> str:
    return f"day={number % 2000:05d}/part-{number:05d}-{number:08x}-5f3a-4c1b-9d2e-{number:012x}.{kind}.snappy.parquet"


def ours() -> dict[str, Any]:
    return _vacuumed(ManyFiles(), removing_commits=0)


def tombstones() -> dict[str, Any]:
    return _vacuumed(ManyFiles(), removing_commits=REMOVING_COMMITS)


def _vacuumed(storage: ManyFiles, removing_commits: int) -> dict[str, Any]:
    protocol = {"minReaderVersion": 1, "minWriterVersion": 2}
    metadata = {
        "id": "t",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": _SCHEMA,
        "partitionColumns": [],
        "configuration": {},
    }
    adds = (_add(key_of("live", number)) for number in range(LIVE))
    _commit(storage, 0, chain([{"protocol": protocol}, {"metaData": metadata}], adds))
    for commit in range(removing_commits):
        numbers = range(commit * REMOVED_BY_EACH, (commit + 1) * REMOVED_BY_EACH)
        _commit(storage, commit + 1, (_remove(key_of("orphan", number)) for number in numbers))
    before = _resident_mb()
    snapshot = Snapshot(storage, find_log_segment(storage))
    found = find_candidates(storage, open_storage, snapshot, VacuumOptions(), NOW_MS, SilentProgress())
    planned = _peak_mb()
    storage._clock_ms = NOW_MS
    outcome = execute_plan(storage, found, SilentProgress(), Runtime(now_ms=lambda: NOW_MS), {})
    assert outcome.metrics["numDeletedFiles"] == storage.deleted == ORPHANS
    return {
        "measured": {"peak_mb": _peak_mb() - before},
        "files": found.plan.candidates.num_rows,
        "planned_mb": round(planned - before),
    }


def _add(key: str) -> dict[str, Any]:
    return {
        "add": {"path": key, "partitionValues": {}, "size": 1_000, "modificationTime": 1, "dataChange": True}
    }


def _remove(key: str) -> dict[str, Any]:
    return {
        "remove": {
            "path": key,
            "deletionTimestamp": LONG_AGO_MS,
            "dataChange": True,
            "extendedFileMetadata": True,
            "partitionValues": {},
            "size": 1_000,
        }
    }


def _peak_mb() -> float:
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def _commit(storage: MemoryStorage, version: int, actions: Iterable[dict[str, Any]]) -> None:
    # Line by line: memory that is freed before the measurement would be used again in it.
    body = io.BytesIO()
    for action in actions:
        body.write(json.dumps(action).encode() + b"\n")
    storage.objects[f"_delta_log/{version:020d}.json"] = (body.getvalue(), LONG_AGO_MS)
