"""Brings the rows of a bin into the order of a layout.

1. Threads decode the sources. While the rows fit into memory, they are kept.
2. A sample of the layout's columns gives the rule by which rows get a bucket (:mod:`delta_maintenance.rewrite.sort.row_division`). Where
   the rows do not fit, the columns are read once more, and nothing else of the rows.
3. Threads divide the rows between the buckets (:mod:`delta_maintenance.rewrite.sort.bucket_store`), and decode the rest of the sources.
4. Threads sort and encode one bucket each.

Random numbers come from a seed, and rows are taken in the order of the sources. A chunk holds whole row groups of the sources, so large
row groups need more memory.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from itertools import chain

import pyarrow as pa
from msgspec import Struct
from msgspec.structs import replace

from delta_log.arrow.row_hash import RowHash
from delta_maintenance.layout.layout import Layout
from delta_maintenance.layout.ranks import Uint64s
from delta_maintenance.rewrite.bin_context import BinContext
from delta_maintenance.rewrite.limits import CHUNK_BYTES, SAMPLED_ROWS
from delta_maintenance.rewrite.read.row_reader import LiveRows
from delta_maintenance.rewrite.read.segment_pool import SegmentPool
from delta_maintenance.rewrite.read.segments import Segment, segments
from delta_maintenance.rewrite.read.sources import Sources
from delta_maintenance.rewrite.sort.bucket_store import BucketStore
from delta_maintenance.rewrite.sort.row_division import (
    DivisionRule,
    Sample,
    divided_schema,
    layout_columns,
    layout_names,
    one_batch,
    sample_of,
    sorted_rows,
)
from delta_maintenance.rewrite.task import RewriteTask


class Bucket(Struct, frozen=True, eq=False):
    """Rows that a thread sorts and encodes.

    :param number: number of the bucket; ``count``: the number of buckets.
    :param file: the number of the new file.
    :param batches: function that returns the sorted rows.
    :param numbers: function that returns the numbers of these rows among the live rows of the sources, once, after the rows were
        taken; ``None``: the task asks for no row map.
    """

    number: int
    count: int
    file: int
    batches: Callable[..., Iterator[pa.RecordBatch]]
    numbers: Callable[[], Uint64s] | None


class _Chunk(Struct, frozen=True, eq=False):
    """Decoded rows of some sources, in their order.

    :param number: number of the chunk in the bin.
    :param first: the number of its first row among the live rows of the sources.
    """

    number: int
    segment: Segment
    rows: pa.RecordBatch
    read: RowHash
    first: int = 0

    @property
    def bytes_in(self) -> int:
        return sum(part.opened.source.size_bytes for part in self.segment if part.is_last)


@dataclass(slots=True)
class LaidOutRows:
    """The rows of one task, in the order of its layout. As a context, it keeps the rows until all buckets are encoded.

    :ivar read: the checksum of the rows as they were read, if the task asks for ``verify="full"``.
    """

    context: BinContext
    sources: Sources
    pool: SegmentPool
    read: RowHash = field(default_factory=RowHash)
    _store: BucketStore = field(init=False)
    _kept_bytes: int = 0
    _numbers: dict[int, Uint64s] = field(default_factory=dict)

    def __post_init__(self) -> None:
        schema = divided_schema(self.live.schema, with_numbers=self.task.keeps_row_map)
        self._store = BucketStore(schema, self.pool.row_memory)

    def __enter__(self) -> LaidOutRows:
        return self

    def __exit__(self, *_: object) -> None:
        self._give_back()
        self._store.close()

    def buckets(self, on_read: Callable[[Segment], None]) -> Generator[Bucket, None, None]:
        """Read all rows, then yield the buckets in the order of the files.

        :param on_read: function that is called with each segment whose rows were divided.
        :raises NoTemporarySpace: the rows fit neither into memory nor onto the disk.
        """
        with closing(self._chunks()) as chunks:
            kept, is_whole = self._fitting(chunks)
            rule = self._rule(kept, is_whole)
            todo = chain(self._taken(kept), chunks)
            divided = self.pool.in_order(partial(self._divided, rule), todo, self.pool.threads + 1)
            with closing(divided):
                for chunk, _ in divided:
                    self.read = self.read.plus(chunk.read)
                    on_read(chunk.segment)
        for number in range(rule.num_buckets):
            numbers = partial(self._numbers.pop, number) if self.task.keeps_row_map else None
            file = number // rule.buckets_of_a_file
            batches = partial(sorted_bucket, self._store, self.live.schema, self._numbers, number)
            yield Bucket(number, rule.num_buckets, file, batches, numbers)

    @property
    def task(self) -> RewriteTask:
        return self.context.task

    @property
    def live(self) -> LiveRows:
        return self.context.live

    @property
    def _layout(self) -> Layout:
        assert self.task.layout is not None
        return self.task.layout

    def _chunks(self) -> Generator[_Chunk, None, None]:
        """Decode the sources, a few chunks ahead."""
        numbered = enumerate(self._segments(self.sources))
        first = 0
        with closing(self.pool.in_order(self._decoded, numbered, self.pool.threads + 1)) as found:
            for _, chunk in found:
                yield replace(chunk, first=first)
                first += chunk.rows.num_rows

    def _segments(self, sources: Sources) -> Iterator[Segment]:
        return segments(sources, self.task.bytes_in, CHUNK_BYTES, self.pool.threads)

    def _decoded(self, numbered: tuple[int, Segment]) -> _Chunk:
        number, segment = numbered
        rows = one_batch(self.live.batches(segment), self.live.schema)
        return _Chunk(number, segment, rows, RowHash.of(rows) if self.task.verify == "full" else RowHash())

    def _fitting(self, chunks: Iterator[_Chunk]) -> tuple[list[_Chunk], bool]:
        """Return the chunks that fit into memory and the first one that does not; and whether that is all of them."""
        kept: list[_Chunk] = []
        for chunk in chunks:
            kept.append(chunk)
            if not self.pool.row_memory.take(chunk.rows.nbytes):
                return kept, False
            self._kept_bytes += chunk.rows.nbytes
        return kept, True

    def _taken(self, kept: list[_Chunk]) -> Iterator[_Chunk]:
        """Yield chunks and forget them. Their memory is free for the buckets, which hold the same rows."""
        self._give_back()
        kept.reverse()
        while kept:
            yield kept.pop()

    def _give_back(self) -> None:
        self.pool.row_memory.give_back(self._kept_bytes)
        self._kept_bytes = 0

    def _rule(self, kept: Sequence[_Chunk], is_whole: bool) -> DivisionRule:
        """Return the rule that gives rows their buckets.

        :param kept: the first chunks.
        :param is_whole: ``True``: there are no others.
        """
        decoded_bytes = sum(chunk.rows.nbytes for chunk in kept)
        known = [chunk.rows for chunk in kept] if is_whole else []
        sample = sample_of(known, self.live.schema, self._layout, SAMPLED_ROWS)
        if not is_whole:
            read_bytes = sum(chunk.bytes_in for chunk in kept)
            decoded_bytes = decoded_bytes * self.task.bytes_in // max(1, read_bytes)
            self._read_sample(sample)
        return DivisionRule.of(self.task, sample, decoded_bytes, self.context.settings.row_group_bytes)

    def _divided(self, rule: DivisionRule, chunk: _Chunk) -> None:
        first = chunk.first if self.task.keeps_row_map else None
        pieces = rule.divided(chunk.rows, self.task.bin_id, chunk.number, first)
        self._store.add(chunk.number, pieces)

    def _read_sample(self, sample: Sample) -> None:
        """Read the layout's columns of all rows."""
        names = layout_names(self._layout)

        def read(segment: Segment) -> pa.RecordBatch:
            parts = (batch for part in segment for batch in self.live.columns_of(part, names))
            return layout_columns(one_batch(parts, self.live.schema_of(names)), self._layout)

        again = self._segments(Sources(self.task, self.sources.storage))
        with closing(self.pool.in_order(read, again, self.pool.threads + 1)) as found:
            for _, columns in found:
                sample.add(columns)


def sorted_bucket(
    store: BucketStore, schema: pa.Schema, numbers: dict[int, Uint64s], number: int, **_: object
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a bucket in their order.

    :param schema: schema of the table's own columns.
    :param numbers: dictionary that gets the numbers of the rows, if they have some.
    """
    rows = store.take(number)
    if not rows.num_rows:
        return
    batches, found = sorted_rows(rows, schema)
    if found is not None:
        numbers[number] = found
    del rows
    yield from batches
