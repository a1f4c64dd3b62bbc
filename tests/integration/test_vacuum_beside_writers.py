"""VACUUM again and again beside writers that append, hide rows by deletion vectors, and restore old versions.

The retention is the shortest that is safe: each vacuum may delete what no version needed since the oldest piece of work under
way began. Each writer does a fixed amount of work in a thread of its own.
"""

from __future__ import annotations

import random
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError
from tests.support.runs.vacuum_runs import files_below, run_vacuum

from delta_log import Table
from delta_log.data.deletion_vector import write_deletion_vectors
from delta_log.data.row_bitmap import RowBitmap
from delta_log.errors import CommitFailed
from delta_log.log.actions import Add, DeletionVector, Remove
from delta_log.runtime import Runtime
from delta_log.snapshot.snapshot import Snapshot
from delta_log.table_config.features import Operation
from delta_log.transaction.commit_body import Change, FileGroup
from delta_log.transaction.transaction import Transaction
from delta_maintenance.contract import JobReport

pytestmark = pytest.mark.slow

_APPENDS, _DELETES, _RESTORES, _CHECKS = 16, 16, 4, 12
_ROWS = 20
#: The times of files may be those of the last tick of the kernel's clock.
_TICK_MS = 100
_HOUR_MS = 3_600_000


class Site:
    """A table, and when each piece of work under way began."""

    def __init__(self, path: Path) -> None:
        self.path, self.table = path, Table(str(path))
        self._began: dict[object, float] = {}
        self._lock = threading.Lock()
        self.conflicts = 0

    @contextmanager
    def at_work(self) -> Iterator[None]:
        token = object()
        with self._lock:
            self._began[token] = time.time()
        try:
            yield
        finally:
            with self._lock:
                del self._began[token]

    def vacuum(self) -> JobReport:
        with self._lock:
            now = time.time()
            kept_ms = (now - min(self._began.values(), default=now)) * 1000 + _TICK_MS
        # A margin as long as the retention is added for clocks that differ.
        hours = kept_ms / 2 / _HOUR_MS
        return run_vacuum(self.path, retain_hours=hours, retention_check=False)

    def until_committed(self, act: Callable[[Snapshot], None]) -> None:
        while True:
            with self.at_work():
                try:
                    act(self.table.snapshot())
                except (CommitFailed, DeltaError):
                    self.conflicts += 1
                else:
                    return

    def commit(self, snapshot: Snapshot, change: Change) -> None:
        # The gate of OPTIMIZE lets no rows be changed; what the table needs is the same.
        Transaction(self.table.storage, snapshot, Operation.CHECKPOINT, Runtime()).commit(change)


def append(site: Site, number: int) -> None:
    rows = pa.table({"id": pa.array(range(number * _ROWS, (number + 1) * _ROWS), pa.int64())})

    def act(_: Snapshot) -> None:
        properties = CommitProperties(max_commit_retries=50)
        write_deltalake(str(site.path), rows, mode="append", commit_properties=properties)

    site.until_committed(act)


def delete(site: Site, chance: random.Random) -> None:
    """Hide some rows of a file, those that were hidden before among them."""

    def act(snapshot: Snapshot) -> None:
        file = chance.choice(snapshot.files().to_pylist())
        bitmap = RowBitmap(chance.sample(range(_ROWS), 3))
        (vector,) = write_deletion_vectors(site.table.storage, [bitmap], uuid.uuid4())
        site.commit(snapshot, Change("DELETE", [FileGroup([added(file, vector)], [removed(file)])]))

    site.until_committed(act)


def restore(site: Site) -> None:
    """Restores, some versions later, the version that is the latest now."""
    with site.at_work():
        wanted = site.table.snapshot()
        deadline = time.monotonic() + 10
        while site.table.snapshot().version < wanted.version + 4 and time.monotonic() < deadline:
            time.sleep(0.05)
        then = {row["path"]: row for row in wanted.files().to_pylist()}

        def act(snapshot: Snapshot) -> None:
            now = {row["path"]: row for row in snapshot.files().to_pylist()}
            same = {p for p in now if p in then and now[p]["deletion_vector"] == then[p]["deletion_vector"]}
            adds = [added(row, vector_of(row)) for path, row in then.items() if path not in same]
            removes = [removed(row) for path, row in now.items() if path not in same]
            if adds or removes:
                site.commit(snapshot, Change("RESTORE", [FileGroup(adds, removes)], whole_table=True))

        site.until_committed(act)


def vector_of(row: dict[str, Any]) -> DeletionVector | None:
    return DeletionVector(**row["deletion_vector"]) if row["deletion_vector"] else None


def added(row: dict[str, Any], vector: DeletionVector | None) -> Add:
    return Add(
        path=row["path"],
        size=row["size"],
        modificationTime=row["modification_time"],
        dataChange=True,
        partitionValues={},
        stats=row["stats"],
        deletionVector=vector,
    )


def removed(row: dict[str, Any]) -> Remove:
    return Remove(
        path=row["path"],
        deletionTimestamp=int(time.time() * 1000),
        dataChange=True,
        extendedFileMetadata=True,
        partitionValues={},
        size=row["size"],
        deletionVector=vector_of(row),
    )


def read(site: Site) -> None:
    """Reads every file of the latest version."""
    with site.at_work():
        site.table.snapshot().to_arrow()


def test_no_file_is_ever_missing_beside_writers(tmp_path: Path) -> None:
    path = tmp_path / "table"
    first = pa.table({"id": pa.array(range(_ROWS), pa.int64())})
    write_deltalake(
        str(path),
        first,
        configuration={"delta.enableDeletionVectors": "true", "delta.checkpointInterval": "7"},
    )
    site, chance = Site(path), random.Random(0)
    work: list[tuple[Callable[[int], None], int]] = [
        (lambda number: append(site, number + 1), _APPENDS),
        (lambda _: delete(site, chance), _DELETES),
        (lambda _: restore(site), _RESTORES),
        (lambda _: read(site), _CHECKS),
    ]

    def worked(act: Callable[[int], None], times: int) -> None:
        for number in range(times):
            act(number)

    vacuums: list[JobReport] = []
    with ThreadPoolExecutor(len(work)) as pool:
        running = [pool.submit(worked, act, times) for act, times in work]
        while not all(task.done() for task in running):
            vacuums.append(site.vacuum())
        for task in running:
            task.result()
    time.sleep(0.3)
    vacuums.append(site.vacuum())
    failed = [report.error for report in vacuums if report.error is not None]
    # A vacuum that loses a race for a version may give up; nothing else may fail.
    assert [error for error in failed if error.kind != "conflict"] == []
    deleted = sum(report.metrics.get("numDeletedFiles", 0) for report in vacuums)
    assert deleted > 0
    rows = Table(str(path)).snapshot().to_arrow()
    assert rows.num_rows > 0
    # In the end nothing is left but what the latest version needs.
    snapshot = Table(str(path)).snapshot()
    kept = set(snapshot.files(["key"]).column("key").to_pylist())
    assert {key for key in files_below(path) if key.endswith(".parquet")} == kept
    assert DeltaTable(str(path)).version() == snapshot.version
