"""Deleting what a plan names, batch by batch, and seeing afterwards that everything alive is there.

Before each batch the log is looked at: what a newer commit names leaves the plan, whatever it was taken for.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from delta_log.errors import DeltaLogError, StorageError
from delta_log.log.actions import decode_actions
from delta_log.log.file_names import commit_key
from delta_log.log.log_segment import list_log
from delta_log.snapshot.snapshot import Snapshot
from delta_log.snapshot.table_identity import require_same_log
from delta_log.storage.storage import Storage
from delta_maintenance.errors import LiveFilesMissing, VacuumIncomplete
from delta_maintenance.listing.distributed import DistributedListing
from delta_maintenance.listing.hidden_names import HiddenNames
from delta_maintenance.listing.listing import Listing, not_listed
from delta_maintenance.partitions.partition_scope import PartitionScope
from delta_maintenance.progress import ProgressReporter
from delta_maintenance.units import format_bytes
from delta_maintenance.vacuum.candidates import list_files, require_same_table
from delta_maintenance.vacuum.commit_bodies import commit_bodies
from delta_maintenance.vacuum.plan.plan import VacuumPlan
from delta_maintenance.vacuum.plan.protected_files import mentions_of, vector_keys

#: What one request of a bulk delete takes, and how many of them are under way together.
_REQUEST_KEYS, _REQUESTS = 1_000, 4
_EXAMPLES = 5
#: So many live files are looked at where there is no listing.
_PROBED_FILES = 64


class Deletion:
    """The course of one vacuum.

    :param snapshot: that was planned on.
    :param keep: given the rows of files that are about to be deleted.
    :ivar num_files: deleted so far, of ``size_bytes``; ``num_spared``: left alone, since newer commits name them. Of what
        nobody had looked at before: ``num_absent`` were not there, ``num_young`` were written lately and left alone.
    """

    def __init__(
        self,
        storage: Storage,
        snapshot: Snapshot,
        plan: VacuumPlan,
        progress: ProgressReporter,
        keep: Callable[[pa.Table], None] | None = None,
    ) -> None:
        self._keep = keep
        self._storage, self._snapshot, self._plan, self._progress = storage, snapshot, plan, progress
        self._spared = pa.chunked_array([], pa.string())
        self.num_files = self.size_bytes = self.num_spared = self.num_absent = self.num_young = 0
        self.num_directories = 0

    @property
    def snapshot(self) -> Snapshot:
        """The newest that was looked at."""
        return self._snapshot

    def run(self) -> None:
        """
        :raises VacuumIncomplete: the store failed, or the table turned out to be another one; counts say how far it came.
        """
        candidates = self._plan.candidates
        step = _REQUEST_KEYS * _REQUESTS
        total = candidates.num_rows
        self._progress.message(f"deleting {total:,} files, {format_bytes(self._plan.size_bytes)}")
        done = 0
        for start in range(0, total, step):
            batch, is_under_way = candidates.slice(start, step), False
            try:
                if self._plan.is_unseen:
                    batch = self._seen(batch)
                self.look_again()
                batch = self._without_spared(batch)
                is_under_way = True
                self._delete(batch)
            except (DeltaLogError, OSError) as error:
                if is_under_way:
                    self._count_deleted(batch)
                left = total - self.num_files - self.num_spared - self.num_absent - self.num_young
                raise VacuumIncomplete(error, self.num_files, self.size_bytes, left) from error
            self.num_files += batch.num_rows
            self.size_bytes += pc.sum(batch.column("size")).as_py() or 0
            if done < (done := (start + step) * 10 // total):
                self._progress.message(
                    f"deleted {self.num_files:,} of {total:,} files, {format_bytes(self.size_bytes)}"
                )
        for directory in self._plan.directories:
            self.num_directories += self._storage.remove_dir(directory)

    def look_again(self, newest: Snapshot | None = None) -> None:
        """Take what commits since the last look name out of the plan.

        :param newest: the latest version, where it is known already.
        """
        known = self._snapshot
        listing = list_log(self._storage, known.version) if newest is None else None
        require_same_log(self._storage, known, listing)
        newest = newest or known.refreshed(listing)
        if newest is known:
            return
        require_same_table(known, newest)
        keys = [commit_key(version) for version in range(known.version + 1, newest.version + 1)]
        named = [
            mentions_of(decode_actions(body, key), 0, self._storage.uri).column("key")
            for key, body in zip(
                keys, commit_bodies(self._storage, keys, "Nothing more is deleted."), strict=True
            )
        ]
        chunks = [chunk for column in named for chunk in column.chunks]
        self._spared = pa.chunked_array([*self._spared.chunks, *chunks], pa.string())
        self._snapshot = newest

    def _without_spared(self, batch: pa.Table) -> pa.Table:
        if not len(self._spared):
            return batch
        spared = pc.is_in(batch.column("key"), value_set=self._spared)
        self.num_spared += pc.sum(spared).as_py() or 0
        return batch.filter(pc.invert(spared))

    def _seen(self, batch: pa.Table) -> pa.Table:
        """The same with sizes and times, but for what is not there or young."""
        keys = batch.column("key").to_pylist()
        infos = list(self._storage.head_many(keys))
        cutoff = self._plan.retention.cutoff_ms
        is_old = [info is not None and info.modification_time_ms < cutoff for info in infos]
        absent = infos.count(None)
        self.num_absent += absent
        self.num_young += len(keys) - absent - sum(is_old)
        sizes = pa.array([None if info is None else info.size for info in infos], pa.int64())
        at = batch.schema.get_field_index("size")
        return batch.set_column(at, "size", sizes).filter(pa.array(is_old, pa.bool_()))

    def _delete(self, batch: pa.Table) -> None:
        keys = batch.column("key").to_pylist()
        if self._keep is not None:
            self._keep(batch)
        if self._storage.concurrency == 1 or len(keys) <= _REQUEST_KEYS:
            self._storage.delete(keys)
            return
        parts = [keys[start : start + _REQUEST_KEYS] for start in range(0, len(keys), _REQUEST_KEYS)]
        with ThreadPoolExecutor(_REQUESTS) as pool:
            for _ in pool.map(self._storage.delete, parts):
                pass

    def _count_deleted(self, batch: pa.Table) -> None:
        """Of a batch that failed, what is gone; what cannot be looked at counts as left."""
        keys, sizes = batch.column("key").to_pylist(), batch.column("size").to_pylist()
        with suppress(StorageError, OSError):
            for info, size in zip(self._storage.head_many(keys), sizes, strict=True):
                if info is None:
                    self.num_files += 1
                    self.size_bytes += size or 0


def missing_live_files(
    storage: Storage, snapshot: Snapshot, listing: Listing, hidden: HiddenNames
) -> list[str]:
    """Live files below the root that are not there: what a listing does not show is looked at one by one."""
    live = live_keys(snapshot, storage.uri)
    unlisted = not_listed(live, listing).to_pylist()
    checked = [key for key in unlisted if not _left_out(key, listing, hidden)]
    return [key for key, info in zip(checked, storage.head_many(checked), strict=True) if info is None]


def live_keys(snapshot: Snapshot, table_uri: str) -> pa.ChunkedArray:
    """Live files and their deletion vectors, below the root."""
    files = snapshot.files(["key", "deletion_vector"])
    vectors = vector_keys(files.column("deletion_vector"), table_uri)
    keys = pa.chunked_array([*files.column("key").chunks, *vectors.chunks], pa.string())
    return keys.filter(pc.invert(pc.or_(pc.starts_with(keys, "/"), pc.match_substring(keys, "://"))))


def _left_out(key: str, listing: Listing, hidden: HiddenNames) -> bool:
    if hidden.hides(key):
        return True
    directory = key.rpartition("/")[0]
    while directory:
        if directory in listing.not_entered:
            return True
        directory = directory.rpartition("/")[0]
    return False


def confirm_live_files(
    storage: Storage,
    snapshot: Snapshot,
    plan: VacuumPlan,
    progress: ProgressReporter,
    hidden: HiddenNames,
    lister: DistributedListing | None = None,
) -> dict[str, Any]:
    """See that nothing alive is gone.

    A full vacuum lists once more, the same partitions; the others, which are for those who do not want to list, ask the log
    alone, and look at some.

    :raises LiveFilesMissing: something is.
    """
    live = live_keys(snapshot, storage.uri)
    keys = plan.candidates.column("key")
    if plan.mode != "full":
        named = keys.filter(pc.is_in(keys, value_set=live)).to_pylist() + some_of(live)
        gone = [key for key, info in zip(named, storage.head_many(named), strict=True) if info is None]
    else:
        progress.message("looking whether every live file is there")
        scope = PartitionScope.of(snapshot, plan.where) if plan.where is not None else None
        if lister is None:
            listing = list_files(storage, hidden, scope, progress)
        else:
            listing = lister.list_files(hidden, scope, live, progress, wants_files=False)
        gone = missing_live_files(storage, snapshot, listing, hidden)
    if gone:
        raise LiveFilesMissing(snapshot.version, gone)
    return {"liveFilesConfirmed": len(live), "confirmedBy": "listing" if plan.mode == "full" else "log"}


def some_of(keys: pa.ChunkedArray) -> list[str]:
    """At most :data:`_PROBED_FILES`, evenly spread."""
    if not len(keys):
        return []
    step = -(-len(keys) // _PROBED_FILES)
    found: list[str] = keys.take(pa.array(range(0, len(keys), step), pa.int64())).to_pylist()
    return found
