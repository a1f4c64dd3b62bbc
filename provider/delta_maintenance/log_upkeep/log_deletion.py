"""Deleting what a log cleanup's plan names, step by step, and seeing afterwards that the log is whole.

Before each request the table is looked at: whether it is still the same, allows it, and has its anchor. Sidecars are
looked at once more when their turn comes, since a checkpoint may have been written meanwhile that names them.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from delta_log.errors import CorruptLog, DeltaLogError, StorageError, TableReplaced
from delta_log.log.checkpoint_reader import UnreadableCheckpoint
from delta_log.log.file_names import LOG_DIRECTORY, LogFileKind, commit_key
from delta_log.log.log_segment import find_log_segment, list_log
from delta_log.runtime import Runtime
from delta_log.snapshot.snapshot import Snapshot
from delta_log.snapshot.table_identity import require_same_log
from delta_log.storage.storage import Storage
from delta_log.storage.store_clock import require_store_clock
from delta_log.table_config import features as table_features
from delta_log.table_config.features import Operation
from delta_log.upkeep.checkpoint_audit import referenced_sidecars
from delta_log.upkeep.classic_copy import write_classic_copy
from delta_maintenance.errors import ConcurrentCleanup, LogCleanupIncomplete, LogCleanupRefused
from delta_maintenance.log_upkeep.plan.log_cleanup import (
    ExpiredFile,
    LogCleanupPlan,
    by_reason,
    is_cleanup_enabled,
)
from delta_maintenance.progress import ProgressReporter

#: What one request of a bulk delete takes.
_REQUEST_KEYS = 1_000


class LogDeletion:
    """The course of one log cleanup.

    :param snapshot: snapshot that the plan was made on.
    """

    def __init__(
        self, storage: Storage, snapshot: Snapshot, plan: LogCleanupPlan, progress: ProgressReporter
    ) -> None:
        self._storage, self._snapshot, self._plan, self._progress = storage, snapshot, plan, progress
        self._deleted: list[ExpiredFile] = []
        self._spared = 0
        self._readable: tuple[int, int] | None = None

    def run(self, runtime: Runtime) -> None:
        """
        :raises LogCleanupRefused: before anything was deleted.
        :raises TableReplaced: the same.
        :raises ConcurrentCleanup: the same.
        :raises ClockAhead: the same.
        :raises LogCleanupIncomplete: after something was; counts say how far it came.
        """
        plan = self._plan
        try:
            self._look_again()
            require_store_clock(self._storage, plan.retention.now_ms, LOG_DIRECTORY, new_id=runtime.new_id)
            if plan.compatible_copy_of is not None:
                write_classic_copy(self._storage, plan.compatible_copy_of, runtime)
            self._progress.message(f"deleting {len(plan.files):,} files of the log")
            self._delete(plan.entry_points)
            self._delete(plan.rest)
            self._delete(self._still_orphans())
            self._confirm()
        except (DeltaLogError, OSError) as error:
            if not self._deleted:
                raise
            size_bytes = sum(file.size for file in self._deleted)
            left = len(plan.files) - len(self._deleted) - self._spared
            raise LogCleanupIncomplete(error, len(self._deleted), size_bytes, left) from error

    def facts(self) -> dict[str, Any]:
        """What was deleted, by reason, and which versions can be read afterwards."""
        readable = None if self._readable is None else list(self._readable)
        return {
            "deleted": by_reason(self._deleted),
            "numSparedFiles": self._spared,
            "readableVersions": readable,
        }

    def metrics(self) -> dict[str, int]:
        return {
            "numDeletedFiles": len(self._deleted),
            "sizeOfDeletedData": sum(file.size for file in self._deleted),
        }

    def _delete(self, files: Sequence[ExpiredFile]) -> None:
        for start in range(0, len(files), _REQUEST_KEYS):
            batch = files[start : start + _REQUEST_KEYS]
            self._look_again()
            try:
                self._storage.delete([file.key for file in batch])
            except (StorageError, OSError):
                self._deleted += self._gone(batch)
                raise
            self._deleted += batch

    def _gone(self, batch: Sequence[ExpiredFile]) -> list[ExpiredFile]:
        """The files of a failed batch that are gone. A file that cannot be looked at counts as left."""
        found: list[ExpiredFile] = []
        with suppress(StorageError, OSError):
            found.extend(file for file in batch if self._storage.head(file.key) is None)
        return found

    def _look_again(self) -> None:
        known = self._snapshot
        listing = list_log(self._storage, known.version)
        require_same_log(self._storage, known, listing)
        newest = known.refreshed(listing)
        table_features.require(newest.protocol, Operation.CHECKPOINT)
        anchor = self._plan.anchor
        if newest.metadata.id != known.metadata.id or newest.version < known.version:
            why = f"its id was {known.metadata.id}, and is now {newest.metadata.id}"
            raise TableReplaced(self._storage.uri, known.version, why)
        if not is_cleanup_enabled(newest.properties):
            raise LogCleanupRefused(
                f"{self._storage.uri}: log cleanup was switched off a moment ago. Nothing more is deleted."
            )
        for file in anchor.files if anchor is not None and self._touches_versions else ():
            found = self._storage.head(file.key)
            if found is None or found.size != file.info.size:
                raise ConcurrentCleanup(file.key)
        self._snapshot = newest

    def _still_orphans(self) -> list[ExpiredFile]:
        """The sidecars of the plan that still no checkpoint names."""
        sidecars = self._plan.sidecars
        if not sidecars:
            return []
        checkpoints = [
            checkpoint
            for checkpoint in list_log(self._storage).checkpoints
            if checkpoint.files[0].kind is not LogFileKind.MULTI_PART_CHECKPOINT
        ]
        try:
            referenced = referenced_sidecars(self._storage, checkpoints)
        except UnreadableCheckpoint:
            self._spared = len(sidecars)
            return []
        orphans = [file for file in sidecars if file.key.rpartition("/")[2] not in referenced]
        self._spared = len(sidecars) - len(orphans)
        return orphans

    def _confirm(self) -> None:
        """
        :raises CorruptLog: the newest version cannot be opened, or one that had to stay cannot be reconstructed.
        """
        Snapshot(self._storage, find_log_segment(self._storage))
        anchor = self._plan.anchor
        if anchor is None or not self._touches_versions:
            return
        listing = list_log(self._storage)
        # Another cleanup may have gone further meanwhile.
        first = max(anchor.version, listing.earliest)
        for version in range(first + 1, listing.latest + 1):
            if version not in listing.commits:
                raise CorruptLog(commit_key(version), "after the cleanup this commit is missing")
        self._readable = (first, listing.latest)

    @property
    def _touches_versions(self) -> bool:
        """Whether the plan deletes commits, or files from which a reader can start."""
        return bool(self._plan.entry_points) or any(
            file.reason == "expired_commit" for file in self._plan.rest
        )
