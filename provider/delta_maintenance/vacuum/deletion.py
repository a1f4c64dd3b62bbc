"""Deleting the files that a plan names, batch by batch.

Before each batch, commits that are newer than the plan are read. A file that such a commit names is not deleted, whatever
the plan took it for.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import pyarrow as pa
import pyarrow.compute as pc

from delta_log.arrow.prefetch import map_ordered
from delta_log.errors import DeltaLogError, StorageError
from delta_log.log.actions import decode_commit
from delta_log.log.file_names import commit_key
from delta_log.log.log_segment import list_log
from delta_log.snapshot.snapshot import Snapshot
from delta_log.snapshot.table_identity import require_same_log
from delta_log.storage.storage import Storage
from delta_maintenance.errors import VacuumIncomplete
from delta_maintenance.progress import ProgressReporter
from delta_maintenance.units import counted, format_bytes
from delta_maintenance.vacuum.commit_reader import commit_bodies
from delta_maintenance.vacuum.nested_tables import require_same_table
from delta_maintenance.vacuum.plan.plan import VacuumPlan
from delta_maintenance.vacuum.plan.protected_files import mentions_of

#: Keys in one request of a bulk delete, and requests that run at the same time.
_REQUEST_KEYS, _REQUESTS = 1_000, 4
_BATCH_FILES = _REQUEST_KEYS * _REQUESTS


class Deletion:
    """The deletion of one plan's files and directories, while it runs.

    :param snapshot: the version that was planned on.
    :param copy_files: function that is called with the rows of each batch before it is deleted; a quarantine keeps copies this way.
    :ivar num_files: files deleted so far; ``size_bytes``: their bytes.
    :ivar num_spared: files left alone, since newer commits name them.
    :ivar num_absent: files of an unseen plan that were not there.
    :ivar num_young: files of an unseen plan that were written after the cutoff and left alone.
    """

    def __init__(
        self,
        storage: Storage,
        snapshot: Snapshot,
        plan: VacuumPlan,
        progress: ProgressReporter,
        copy_files: Callable[[pa.Table], None] | None = None,
    ) -> None:
        self._storage, self._snapshot, self._plan, self._progress = storage, snapshot, plan, progress
        self._copy_files = copy_files
        self._spared = pa.chunked_array([], pa.string())
        self.num_files = self.size_bytes = self.num_spared = self.num_absent = self.num_young = 0
        self.num_directories = 0

    @property
    def snapshot(self) -> Snapshot:
        """The newest version that was looked at."""
        return self._snapshot

    def run(self) -> None:
        """Delete the files, then the directories that they leave empty.

        :raises VacuumIncomplete: the store failed, or the table was replaced; the counts say how far the deletion came.
        """
        candidates = self._plan.candidates
        total = candidates.num_rows
        self._progress.message(f"deleting {counted(total, 'file')}, {format_bytes(self._plan.size_bytes)}")
        for start in range(0, total, _BATCH_FILES):
            self._run_batch(candidates.slice(start, _BATCH_FILES))
            self._progress.step(
                f"deleted {self.num_files:,} of {total:,} files, {format_bytes(self.size_bytes)}"
            )
        for directory in self._plan.directories:
            self.num_directories += self._storage.remove_dir(directory)

    def spare_new_commits(self, newest: Snapshot | None = None) -> None:
        """Spare the files that commits since the last look name.

        :param newest: the latest version, if the caller knows it.
        """
        known = self._snapshot
        listing = list_log(self._storage, known.version) if newest is None else None
        require_same_log(self._storage, known, listing)
        newest = newest or known.refreshed(listing)
        if newest is known:
            return
        require_same_table(known, newest)
        keys = [commit_key(version) for version in range(known.version + 1, newest.version + 1)]
        bodies = commit_bodies(self._storage, keys, "Nothing more is deleted.")
        for key, body in zip(keys, bodies, strict=True):
            named = mentions_of(decode_commit(body, key), 0, self._storage.uri).column("key")
            self._spared = pa.chunked_array([*self._spared.chunks, *named.chunks], pa.string())
        self._snapshot = newest

    def _run_batch(self, batch: pa.Table) -> None:
        has_begun = False
        try:
            if self._plan.is_unseen:
                batch = self._old_files(batch)
            self.spare_new_commits()
            batch = self._without_spared(batch)
            has_begun = True
            self._delete(batch)
        except (DeltaLogError, OSError) as error:
            if has_begun:
                self._count_deleted(batch)
            done = self.num_files + self.num_spared + self.num_absent + self.num_young
            num_left = self._plan.candidates.num_rows - done
            raise VacuumIncomplete(error, self.num_files, self.size_bytes, num_left) from error
        self.num_files += batch.num_rows
        self.size_bytes += pc.sum(batch.column("size")).as_py() or 0

    def _without_spared(self, batch: pa.Table) -> pa.Table:
        if not len(self._spared):
            return batch
        spared = pc.is_in(batch.column("key"), value_set=self._spared)
        self.num_spared += pc.sum(spared).as_py() or 0
        return batch.filter(pc.invert(spared))

    def _old_files(self, batch: pa.Table) -> pa.Table:
        """Look up the files of an unseen plan: selects those that are there and old enough, with their sizes."""
        keys = batch.column("key").to_pylist()
        infos = list(self._storage.head_many(keys))
        cutoff_ms = self._plan.retention.cutoff_ms
        is_old = [info is not None and info.modification_time_ms < cutoff_ms for info in infos]
        num_absent = infos.count(None)
        self.num_absent += num_absent
        self.num_young += len(keys) - num_absent - sum(is_old)
        sizes = pa.array([None if info is None else info.size for info in infos], pa.int64())
        position = batch.schema.get_field_index("size")
        return batch.set_column(position, "size", sizes).filter(pa.array(is_old, pa.bool_()))

    def _delete(self, batch: pa.Table) -> None:
        keys = batch.column("key").to_pylist()
        if self._copy_files is not None:
            self._copy_files(batch)
        if self._storage.concurrency == 1 or len(keys) <= _REQUEST_KEYS:
            self._storage.delete(keys)
            return
        requests = [keys[start : start + _REQUEST_KEYS] for start in range(0, len(keys), _REQUEST_KEYS)]
        for _ in map_ordered(self._storage.delete, requests, _REQUESTS):
            pass

    def _count_deleted(self, batch: pa.Table) -> None:
        """Count the files of a failed batch that are gone. A file that cannot be looked up counts as left."""
        keys, sizes = batch.column("key").to_pylist(), batch.column("size").to_pylist()
        with suppress(StorageError, OSError):
            for info, size in zip(self._storage.head_many(keys), sizes, strict=True):
                if info is None:
                    self.num_files += 1
                    self.size_bytes += size or 0
