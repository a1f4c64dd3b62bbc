"""Which files of a listing are not protected, found out on another core while the rest of it is still to come."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pyarrow as pa
import pyarrow.compute as pc

from delta_log.storage.storage import Storage
from delta_maintenance.listing.listing import LISTING_SCHEMA, ListingCollector
from delta_maintenance.vacuum.plan.planner import unprotected
from delta_maintenance.vacuum.plan.protected_files import ProtectedFiles

_LOOKED_AT_ONCE = 1 << 13
#: Fewer are not worth a comparison of their own.
_LEAST_FILES = 1 << 15


class EarlyComparison:
    """Compares what a listing has by now with what was protected when it began.

    Every comparison goes through the hashes of all protected keys. So there are few: each waits for an eighth as many
    files as are protected.
    What comes of them is an advance: :meth:`unprotected` leaves it aside where something else is protected by then.
    """

    def __init__(
        self,
        storage: Storage,
        pool: ThreadPoolExecutor,
        protected: Future[ProtectedFiles] | None,
        least_files: int = _LEAST_FILES,
    ) -> None:
        """
        :param protected: on its way in the pool, in which the comparisons are made, too; ``None``: none is made before the
            listing has ended.
        """
        self._storage, self._pool, self._protected, self._least_files = storage, pool, protected, least_files
        self._parts: list[Future[pa.Table]] = []
        self._batches = self._rows = 0

    def offer(self, collector: ListingCollector) -> None:
        """Take what a listing has by now, if that is worth while; the same collector every time."""
        if self._protected is None or not all(future.done() for future in (self._protected, *self._parts)):
            return
        if self._protected.exception() is not None:  # to be found out again where the listing has ended
            return
        protected = self._protected.result()
        batches = collector.held(self._batches)
        rows = sum(batch.num_rows for batch in batches)
        if rows >= max(self._least_files, protected.num_keys // 8):
            files = pa.Table.from_batches(batches, LISTING_SCHEMA)
            self._parts.append(self._pool.submit(self._compared, files, protected))
            self._batches, self._rows = self._batches + len(batches), self._rows + rows

    def unprotected(self, files: pa.Table, protected: ProtectedFiles) -> pa.Table:
        """Those of some files that are not protected, once; where any were compared before, with times and sizes.

        :param files: of the whole listing; what was offered comes first.
        """
        if not self._parts or self._protected is None or protected is not self._protected.result():
            return unprotected(files, protected)
        rest = self._compared(files.slice(self._rows), protected)
        # No copy is kept longer than it is needed.
        parts, self._parts = self._parts, []
        return pa.concat_tables([*(part.result() for part in parts), rest])

    def _compared(self, files: pa.Table, protected: ProtectedFiles) -> pa.Table:
        return with_times(self._storage, unprotected(files, protected))


def with_times(storage: Storage, found: pa.Table) -> pa.Table:
    """Rows of a listing with times and sizes, looked up where it told none.

    What is gone meanwhile, or has become a link or lies behind one, is left out.
    """
    unknown = pc.is_null(found.column("modification_time_ms"))
    if not found.num_rows or not pc.any(unknown).as_py():
        return found
    keys = found.filter(unknown).column("key")
    batches = [*_looked_up(storage, keys)]
    known = found.filter(pc.invert(unknown))
    return pa.concat_tables([known, pa.Table.from_batches(batches, LISTING_SCHEMA)])


def _looked_up(storage: Storage, keys: pa.ChunkedArray) -> Iterator[pa.RecordBatch]:
    for start in range(0, len(keys), _LOOKED_AT_ONCE):
        part = keys.slice(start, _LOOKED_AT_ONCE).combine_chunks()
        sizes, times = storage.sizes_and_times(part.to_pylist())
        found = pa.record_batch(
            [part, pa.array(sizes, pa.int64()), pa.array(times, pa.int64())], schema=LISTING_SCHEMA
        )
        yield found if None not in times else found.filter(pc.is_valid(found.column(2)))
