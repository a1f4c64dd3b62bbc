"""Comparing the first files of a listing with the protected files, on another core, while the listing continues."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pyarrow as pa
import pyarrow.compute as pc

from delta_log.storage.storage import Storage
from delta_maintenance.listing.listing import LISTING_SCHEMA, ListingCollector
from delta_maintenance.vacuum.plan.planner import unprotected
from delta_maintenance.vacuum.plan.protected_files import ProtectedFiles

_LOOKED_UP_ROWS = 1 << 13
#: A comparison of fewer files costs more than it saves.
_LEAST_FILES = 1 << 15


class EarlyComparison:
    """Compares the files that a listing has so far with what was protected when the listing began.

    Every comparison reads the hashes of all protected keys. So each waits until the listing has new files for an eighth of
    the protected ones. If something else is protected when the listing has ended, :meth:`unprotected` ignores the early
    results and compares anew.
    """

    def __init__(
        self,
        storage: Storage,
        pool: ThreadPoolExecutor,
        protected: Future[ProtectedFiles] | None,
        least_files: int = _LEAST_FILES,
    ) -> None:
        """
        :param pool: has one thread, which makes the comparisons after it has read the protected files.
        :param protected: the protected files, once the pool has read them; ``None``: nothing is compared early.
        """
        self._storage, self._pool, self._protected, self._least_files = storage, pool, protected, least_files
        self._parts: list[Future[pa.Table]] = []
        self._batches = self._rows = 0

    def offer(self, collector: ListingCollector) -> None:
        """Start a comparison of the files that a listing has so far, if the last one has ended and it pays.

        :param collector: the same one in every call.
        """
        if self._protected is None or not all(future.done() for future in (self._protected, *self._parts)):
            return
        if self._protected.exception() is not None:  # the log is read again after the listing
            return
        protected = self._protected.result()
        batches = collector.held(self._batches)
        rows = sum(batch.num_rows for batch in batches)
        if rows >= max(self._least_files, protected.num_keys // 8):
            files = pa.Table.from_batches(batches, LISTING_SCHEMA)
            self._parts.append(self._pool.submit(self._compared, files, protected))
            self._batches, self._rows = self._batches + len(batches), self._rows + rows

    def unprotected(self, files: pa.Table, protected: ProtectedFiles) -> pa.Table:
        """Select the files that are not protected. May be called once; rows that were compared early have times and sizes.

        :param files: of the whole listing; those that were offered come first.
        """
        if not self._parts or self._protected is None or protected is not self._protected.result():
            return unprotected(files, protected)
        rest = self._compared(files.slice(self._rows), protected)
        # Forgotten here, so that each copy is freed as soon as the caller is done with it.
        parts, self._parts = self._parts, []
        return pa.concat_tables([*(part.result() for part in parts), rest])

    def _compared(self, files: pa.Table, protected: ProtectedFiles) -> pa.Table:
        return with_times(self._storage, unprotected(files, protected))


def with_times(storage: Storage, found: pa.Table) -> pa.Table:
    """Look up the times and sizes that a listing did not tell.

    Files that are gone meanwhile are left out, as are symbolic links and files behind them.
    """
    unknown = pc.is_null(found.column("modification_time_ms"))
    if not found.num_rows or not pc.any(unknown).as_py():
        return found
    keys = found.filter(unknown).column("key")
    batches = [*_looked_up(storage, keys)]
    known = found.filter(pc.invert(unknown))
    return pa.concat_tables([known, pa.Table.from_batches(batches, LISTING_SCHEMA)])


def _looked_up(storage: Storage, keys: pa.ChunkedArray) -> Iterator[pa.RecordBatch]:
    for start in range(0, len(keys), _LOOKED_UP_ROWS):
        part = keys.slice(start, _LOOKED_UP_ROWS).combine_chunks()
        sizes, times = storage.sizes_and_times(part.to_pylist())
        found = pa.record_batch(
            [part, pa.array(sizes, pa.int64()), pa.array(times, pa.int64())], schema=LISTING_SCHEMA
        )
        yield found if None not in times else found.filter(pc.is_valid(found.column(2)))
