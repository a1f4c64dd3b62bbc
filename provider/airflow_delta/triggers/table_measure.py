"""Measuring a table whenever it has a new version: its deleted rows, or its health. All calls block.

A poll without news costs one request. For a new version the snapshot is refreshed by the new commits alone. Before deleted rows
are counted, the version's checksum file is read, which often says that there are none.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowFailException

from airflow_delta.triggers.look_log import LookLog
from airflow_delta.triggers.table_wait import Outcome, refusal
from delta_log.printable import printable_logger
from delta_maintenance.units import counted, format_bytes

if TYPE_CHECKING:
    from airflow_delta.hooks.watched_store import WatchedStore
    from delta_log.snapshot.deletion_ratio import DeletedRows, DeletionLimits
    from delta_log.snapshot.snapshot import Snapshot
    from delta_log.storage.storage import Storage
    from delta_log.tail.commit_follower import CommitFollower

log = printable_logger(__name__)

#: What :class:`HealthMeasure` counts: the limit, and the name in a finding. The cheapest count comes first.
_COUNTS = {
    "commits_since_checkpoint": "numCommitsSinceCheckpoint",
    "small_files": "numSmallFiles",
    "tombstones": "numTombstones",
}
_WORDS = {
    "commits_since_checkpoint": "commits since the newest checkpoint",
    "small_files": "files that OPTIMIZE would merge",
    "tombstones": "removed files that the log names",
}

#: Partitions that a finding names, the worst first; the others are named when these have been rewritten.
MAX_PARTITIONS = 1000


class TableMeasure(ABC):
    """Measures one table; used by one thread at a time.

    :param limits: JSON values, see the subclasses.
    :ivar measured: description for people: what :meth:`finding` has measured last, and against which limits.
    """

    def __init__(self, table: str, store: WatchedStore, limits: Mapping[str, Any]) -> None:
        self.table, self.store, self.limits = table, store, dict(limits)
        self._tail: CommitFollower | None = None
        self._snapshot: Snapshot | None = None
        self._looks = LookLog(log)
        self.measured = ""
        self.failures = 0

    @abstractmethod
    def finding(self, storage: Storage, version: int) -> dict[str, Any] | None:
        """What passes the limits at a version or a later one; ``None`` if nothing does."""

    def look(self) -> Outcome | None:
        """Look once on behalf of a sensor; returns the outcome, or ``None`` if it is too early."""
        from delta_log.errors import AccessDenied, NotATable, NotInCatalog, StorageError, TableError

        try:
            found = self._look()
        except NotATable as error:
            self._looks.tell(
                str(error) if isinstance(error, NotInCatalog) else f"{self.table} is no Delta table yet."
            )
            return None
        except (TableError, AirflowFailException) as error:
            return refusal(error)
        except StorageError as error:
            if not error.retryable:
                return refusal(error)
            if isinstance(error, AccessDenied):
                # Credentials have expired. The next look opens the table with what the connection says by then.
                self.store.forget_credentials()
            self.failures += 1
            self._tail = None
            if self.failures == 1:
                log.warning("%s Trying again, less and less often.", error)
            return None
        if self.failures:
            log.info("%s answers again.", self.table)
        self.failures = 0
        position = self._tail.position if self._tail is not None else -1
        if position >= 0:
            self._looks.tell(f"{self.table}, version {position}: {self.measured}.")
        else:
            self._looks.tell(f"{self.table} is no Delta table yet.")
        return None if found is None else {"status": "found", "finding": found}

    def seconds(self, poll_interval: float, jitter: float) -> float:
        """How long to wait until the next look."""
        from delta_log.tail.commit_follower import wait_seconds

        return wait_seconds(poll_interval, self.failures, jitter)

    def _look(self) -> dict[str, Any] | None:
        from delta_log.tail.commit_follower import CommitFollower

        storage = self.store.open(self.table)
        if self._tail is None or self._tail.storage.uri != storage.uri:
            self._tail = CommitFollower.at_latest(storage)
        elif not self._tail.poll():
            return None
        if self._tail.position < 0:
            return None
        from delta_log.snapshot.table_identity import noticing_a_drop

        with noticing_a_drop(storage, lambda: True):
            return self.finding(storage, self._tail.position)

    def snapshot(self, storage: Storage, version: int) -> Snapshot:
        """A snapshot of a version or a later one."""
        from delta_log.log.log_segment import find_log_segment
        from delta_log.snapshot.snapshot import Snapshot

        known = self._snapshot
        # A name in a catalog may lead elsewhere by now.
        if known is None or known.table_uri != storage.uri:
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
        self.measured = f"no row is deleted; {_limits_text(limits)}"
        if has_no_deleted_rows(storage, version):
            self._snapshot = None
            return None
        snapshot = self.snapshot(storage, version)
        if not snapshot.num_deleted_rows:
            self._snapshot = None
            return None
        partitions = deleted_rows(snapshot, limits.file_ratio)
        whole = of_table(snapshot, partitions)
        measured = partitions[0] if self.limits.get("per_partition", True) and partitions else whole
        self.measured = f"{_deleted_text(measured, limits)}; {_limits_text(limits)}"
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
            "where": predicate_of(snapshot, [one.partition for one in named]),
        }


def _deleted_text(found: DeletedRows, limits: DeletionLimits) -> str:
    where = "/".join(
        f"{name}={'null' if value is None else value}" for name, value in found.partition.items()
    )
    text = f"{found.num_deleted_rows:,} of {counted(found.num_rows, 'row')} deleted ({found.ratio:.1%})"
    if limits.files is not None or limits.size_bytes is not None:
        text += (
            f", {counted(found.num_files_over, 'file')} of {format_bytes(found.size_bytes_over)} with "
            f"{limits.file_ratio:.0%} of their rows or more"
        )
    return f"{text} in the worst partition, {where}" if where else text


def _limits_text(limits: DeletionLimits) -> str:
    found = [
        f"{limits.ratio:.1%} of the rows" if limits.ratio is not None else "",
        counted(limits.files, "file") if limits.files is not None else "",
        format_bytes(limits.size_bytes) if limits.size_bytes is not None else "",
    ]
    return f"limit: more than {' or '.join(text for text in found if text)}"


class HealthMeasure(TableMeasure):
    """Counts what maintenance would reduce. Its limits are ``small_files`` (of less than ``small_file_bytes``, that OPTIMIZE
    would merge), ``commits_since_checkpoint`` and ``tombstones``.

    A version's checksum often shows that there are not enough files for the first limit. Then no list of files is read.
    """

    def finding(self, storage: Storage, version: int) -> dict[str, Any] | None:
        counts = {
            name: self._count(name, storage, version) for name in _COUNTS if self.limits.get(name) is not None
        }
        self.measured = "; ".join(self._text(name, count) for name, count in counts.items())
        known = {name: count for name, count in counts.items() if count is not None}
        passed = [name for name, count in known.items() if count > self.limits[name]]
        if not passed:
            return None
        snapshot = self.snapshot(storage, version)
        known.setdefault("commits_since_checkpoint", snapshot.commits_since_checkpoint)
        return {
            "table": self.table,
            "version": snapshot.version,
            "numFiles": snapshot.num_files,
            "sizeInBytes": snapshot.size_bytes,
            **{_COUNTS[name]: count for name, count in known.items()},
            "passed": [_COUNTS[name] for name in passed],
        }

    def _text(self, name: str, count: int | None) -> str:
        limit = self.limits[name]
        found = f"not more than {limit:,}" if count is None else f"{count:,}"
        return f"{_WORDS[name]}: {found} (limit: more than {limit:,})"

    def _count(self, name: str, storage: Storage, version: int) -> int | None:
        """The number that a limit is for; ``None``: it cannot pass the limit, and was not counted."""
        if name == "small_files":
            return self._small_files(storage, version)
        if name == "tombstones":
            return int(self.snapshot(storage, version).tombstones(["path"]).num_rows)
        from delta_log.log.log_segment import find_log_segment

        # A snapshot that was refreshed knows of no checkpoint that was written meanwhile.
        return len(find_log_segment(storage).commits)

    def _small_files(self, storage: Storage, version: int) -> int | None:
        """
        :raises TableError: OPTIMIZE refuses the table.
        """
        from delta_log.errors import CorruptLog
        from delta_log.snapshot.version_checksum import read_version_checksum
        from delta_maintenance.health.planned_rewrites import files_to_merge, most_files_to_merge

        small_file_bytes = self.limits["small_file_bytes"]
        with suppress(CorruptLog):
            checksum = read_version_checksum(storage, version)
            if checksum is not None:
                most = most_files_to_merge(checksum, small_file_bytes)
                if most <= self.limits["small_files"]:
                    return None
        # No partition counts as hot, so the time plays no part.
        return files_to_merge(self.snapshot(storage, version), small_file_bytes, now_ms=0)
