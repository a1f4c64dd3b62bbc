"""Divides the rows of a bin into work for threads: segments to encode, and row groups to copy.

There are four ways in which rows come: in their order into one file, in their order into several files, in the order of a layout,
and from other processes that have read the sources.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Iterable, Iterator
from functools import partial

import pyarrow as pa
from msgspec import Struct

from delta_log.data.data_file import DataFile
from delta_maintenance.layout.ranks import Uint64s
from delta_maintenance.rewrite.bin_context import BinContext
from delta_maintenance.rewrite.limits import BLOOM_FILTER_FILES, PARTS_AHEAD
from delta_maintenance.rewrite.read.segment_pool import SegmentPool
from delta_maintenance.rewrite.read.segments import Segment, segments
from delta_maintenance.rewrite.read.sources import Sources, SourceSlice
from delta_maintenance.rewrite.sort.laid_out_rows import LaidOutRows
from delta_maintenance.rewrite.sort.shuffled_file import ReceivedFile

#: Called with the bytes of each source after its rows were written.
OnProgress = Callable[[int], None]


class PartWork(Struct, frozen=True):
    """A segment of the rows that a thread has to encode, or row groups to copy.

    :param file: the number of the new file that the rows belong to.
    :param sources_done: bytes of each source whose rows end with this segment.
    :param copied: the row groups to copy; their rows are needed for a checksum only.
    :param numbers: function that returns what the row map says of these rows.
    """

    file: int
    batches: Callable[..., Iterable[pa.RecordBatch]]
    bloom_filters: frozenset[str]
    sources_done: tuple[int, ...]
    copied: SourceSlice | None = None
    numbers: Callable[[], Uint64s] | None = None


def work_of(
    context: BinContext,
    sources: Sources,
    pool: SegmentPool,
    moved: LaidOutRows | ReceivedFile | None,
    on_progress: OnProgress | None,
) -> tuple[Generator[PartWork, None, None], int]:
    """Return the work for the threads, and how many parts are begun before the first one is asked for.

    :param moved: the rows, if a layout or other processes have moved them.
    """
    ahead = pool.threads + PARTS_AHEAD
    if isinstance(moved, ReceivedFile):
        return _received(moved), ahead
    if moved is not None:
        return _laid_out(moved, on_progress), ahead
    if context.task.num_outputs > 1:
        # The caller's thread decodes while one thread encodes.
        return _pieces(context, sources), 1
    return _segments(context, sources, pool.threads), ahead


def _segments(context: BinContext, sources: Sources, threads: int) -> Generator[PartWork, None, None]:
    """Divide the sources of one new file. The threads that encode read them, too."""
    live, row_group_bytes = context.live, context.settings.row_group_bytes
    for segment in segments(sources, context.task.bytes_in, row_group_bytes, threads):
        done = _done(segment)
        if segment[0].is_copied:
            yield PartWork(0, partial(live.batches, segment), frozenset(), done, segment[0])
        else:
            # A table goes into one row group, whole.
            rows = partial(live.rows, segment, at_once_bytes=row_group_bytes * 3 // 8)
            yield PartWork(0, rows, bloom_filters_of(segment), done)


def _pieces(context: BinContext, sources: Sources) -> Generator[PartWork, None, None]:
    """Divide the rows between several new files. The caller's thread reads them, since a cut may be anywhere in a source."""
    bloom_filters: set[str] = set()
    done: list[int] = []

    def rows() -> Iterator[pa.RecordBatch]:
        for opened in sources:
            if len(sources.source_rows) <= BLOOM_FILTER_FILES:
                bloom_filters.update(opened.data_file.bloom_filters)
            yield from context.live.batches([SourceSlice(opened)], on_all_processors=True)
            done.append(opened.source.size_bytes)

    cut = _Cut(rows(), _rows_of_a_file(context))
    file = 0
    while cut.has_more():
        pending: list[pa.RecordBatch] = []
        pending_bytes = 0
        for batch in cut.piece():
            pending.append(batch)
            pending_bytes += batch.nbytes
            if pending_bytes >= context.settings.row_group_bytes:
                yield PartWork(file, partial(_given, pending), frozenset(bloom_filters), _taken(done))
                pending, pending_bytes = [], 0
        if pending:
            yield PartWork(file, partial(_given, pending), frozenset(bloom_filters), _taken(done))
        file += 1


def _given(batches: list[pa.RecordBatch], **_: object) -> list[pa.RecordBatch]:
    return batches


def _taken(done: list[int]) -> tuple[int, ...]:
    taken = tuple(done)
    done.clear()
    return taken


def _rows_of_a_file(context: BinContext) -> int:
    """Return the rows of each file but the last."""
    task, storage = context.task, context.storage
    rows = sum(DataFile(storage, source.key, task.mapping_mode).num_rows for source in task.sources)
    hidden = sum(int((source.deletion_vector or {}).get("cardinality", 0)) for source in task.sources)
    return max(1, -(-(rows - hidden) // task.num_outputs))


def _laid_out(rows: LaidOutRows, on_progress: OnProgress | None) -> Generator[PartWork, None, None]:
    """Sort the rows by the layout. Half of the progress is that they were read, the other half that they were written."""
    bloom_filters: set[str] = set()
    reported = 0

    def on_read(segment: Segment) -> None:
        nonlocal reported
        if not bloom_filters:
            bloom_filters.update(bloom_filters_of(segment))
        half = sum(_done(segment)) // 2
        reported += half
        if on_progress is not None:
            on_progress(half)

    with contextlib.closing(rows.buckets(on_read)) as buckets:
        left = 0
        for bucket in buckets:
            left = left or rows.context.task.bytes_in - reported
            start, end = (left * (bucket.number + more) // bucket.count for more in (0, 1))
            done = (end - start,)
            yield PartWork(
                bucket.file, bucket.batches, frozenset(bloom_filters), done, numbers=bucket.numbers
            )


def _received(rows: ReceivedFile) -> Generator[PartWork, None, None]:
    for bucket in rows.buckets():
        yield PartWork(bucket.file, bucket.batches, rows.bloom_filters, (), numbers=bucket.numbers)


def bloom_filters_of(segment: Segment) -> frozenset[str]:
    files = [part.opened.data_file for part in segment[:BLOOM_FILTER_FILES]]
    return frozenset().union(*(file.bloom_filters for file in files))


def _done(segment: Segment) -> tuple[int, ...]:
    return tuple(part.opened.source.size_bytes for part in segment if part.is_last)


class _Cut:
    """Cuts a stream of batches into pieces of a number of rows."""

    def __init__(self, batches: Iterator[pa.RecordBatch], rows: int) -> None:
        self._batches, self._rows = batches, rows
        self._next: pa.RecordBatch | None = None

    def has_more(self) -> bool:
        if self._next is None:
            self._next = next(self._batches, None)
        return self._next is not None

    def piece(self) -> Iterator[pa.RecordBatch]:
        missing = self._rows
        while missing > 0 and self.has_more():
            batch, self._next = self._next, None
            assert batch is not None
            if batch.num_rows > missing:
                batch, self._next = batch.slice(0, missing), batch.slice(missing)
            missing -= batch.num_rows
            yield batch
