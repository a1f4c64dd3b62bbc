"""Measuring a table whenever it has a new version: its deleted rows, or its health. All calls block.

A poll without news costs one request. For a new version the snapshot is refreshed by the new commits alone. Before deleted rows
are counted, the version's checksum file is read, which often says that there are none.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowFailException

from airflow_delta.triggers.table_wait import Outcome, refusal
from delta_log.printable import printable_logger

if TYPE_CHECKING:
    from airflow_delta.triggers.watched_store import WatchedStore
    from delta_log.snapshot.snapshot import Snapshot
    from delta_log.storage.storage import Storage
    from delta_log.tail.commit_follower import CommitFollower

log = printable_logger(__name__)

#: Partitions that a finding names, the worst first; the others are named when these have been rewritten.
MAX_PARTITIONS = 1000


class TableMeasure(ABC):
    """Measures one table; used by one thread at a time.

    :param limits: JSON values, see the subclasses.
    """

    def __init__(self, table: str, store: WatchedStore, limits: Mapping[str, Any]) -> None:
        self.table, self.store, self.limits = table, store, dict(limits)
        self._tail: CommitFollower | None = None
        self._snapshot: Snapshot | None = None
        self.failures = 0

    @abstractmethod
    def finding(self, storage: Storage, version: int) -> dict[str, Any] | None:
        """What passes the limits at a version or a later one; ``None`` if nothing does."""

    def look(self) -> Outcome | None:
        """Look once on behalf of a sensor; returns the outcome, or ``None`` if it is too early."""
        from delta_log.errors import AccessDenied, NotATable, StorageError, TableError

        try:
            found = self._look()
        except NotATable:
            return None
        except (TableError, AccessDenied, AirflowFailException) as error:
            return refusal(error)
        except StorageError as error:
            self.failures += 1
            self._tail = None
            if self.failures == 1:
                log.warning("%s Trying again, less and less often.", error)
            return None
        self.failures = 0
        return None if found is None else {"status": "found", "finding": found}

    def seconds(self, poll_interval: float, jitter: float) -> float:
        """How long to wait until the next look."""
        from delta_log.tail.commit_follower import wait_seconds

        return wait_seconds(poll_interval, self.failures, jitter)

    def _look(self) -> dict[str, Any] | None:
        from delta_log.tail.commit_follower import CommitFollower

        storage = self.store.open(self.table)
        if self._tail is None:
            self._tail = CommitFollower.at_latest(storage)
        elif not self._tail.poll():
            return None
        return self.finding(storage, self._tail.position) if self._tail.position >= 0 else None

    def snapshot(self, storage: Storage, version: int) -> Snapshot:
        """A snapshot of a version or a later one."""
        from delta_log.log.log_segment import find_log_segment
        from delta_log.snapshot.snapshot import Snapshot

        known = self._snapshot
        if known is None:
            known = Snapshot(storage, find_log_segment(storage))
        elif known.version < version:
            known = known.refreshed()
        self._snapshot = known
        return known


class DeletedRowsMeasure(TableMeasure):
    """Measures deleted rows. Its limits are ``ratio``, ``file_ratio``, ``files`` and ``size_bytes`` of
    :class:`~delta_log.snapshot.deletion_ratio.DeletionLimits`, and ``per_partition``."""

    def finding(self, storage: Storage, version: int) -> dict[str, Any] | None:
        from delta_log.snapshot.deletion_ratio import (
            DeletionLimits,
            deleted_rows,
            has_no_deleted_rows,
            of_table,
            predicate_of,
        )

        limits = DeletionLimits(**{name: v for name, v in self.limits.items() if name != "per_partition"})
        if has_no_deleted_rows(storage, version):
            self._snapshot = None
            return None
        snapshot = self.snapshot(storage, version)
        if not snapshot.num_deleted_rows:
            self._snapshot = None
            return None
        partitions = deleted_rows(snapshot, limits.file_ratio)
        whole = of_table(snapshot, partitions)
        if self.limits.get("per_partition", True):
            partitions = [one for one in partitions if limits.are_passed_by(one)]
        elif not limits.are_passed_by(whole):
            partitions = []
        if not partitions:
            return None
        named = partitions[:MAX_PARTITIONS]
        return {
            "table": self.table,
            "version": snapshot.version,
            **{name: value for name, value in whole.to_dict().items() if name != "partition"},
            "numPartitions": len(partitions),
            "partitions": [one.to_dict() for one in named],
            "where": predicate_of(snapshot, named),
        }


class HealthMeasure(TableMeasure):
    """Counts what maintenance would reduce. Its limits are ``small_files`` (of less than ``small_file_bytes``),
    ``commits_since_checkpoint`` and ``tombstones``."""

    def finding(self, storage: Storage, version: int) -> dict[str, Any] | None:
        import pyarrow.compute as pc

        snapshot = self.snapshot(storage, version)
        facts = {"commits_since_checkpoint": snapshot.commits_since_checkpoint}
        if self.limits.get("small_files") is not None:
            sizes = snapshot.files(["size"]).column("size")
            facts["small_files"] = pc.sum(pc.less(sizes, self.limits["small_file_bytes"])).as_py() or 0
        if self.limits.get("tombstones") is not None:
            facts["tombstones"] = snapshot.tombstones(["path"]).num_rows
        passed = [
            name
            for name, count in facts.items()
            if self.limits.get(name) is not None and count > self.limits[name]
        ]
        if not passed:
            return None
        names = {
            "small_files": "numSmallFiles",
            "commits_since_checkpoint": "numCommitsSinceCheckpoint",
            "tombstones": "numTombstones",
        }
        counts = {names[name]: count for name, count in facts.items()}
        return {
            "table": self.table,
            "version": snapshot.version,
            "numFiles": snapshot.num_files,
            "sizeInBytes": snapshot.size_bytes,
            **counts,
            "passed": [names[name] for name in passed],
        }
