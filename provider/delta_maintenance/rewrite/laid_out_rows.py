"""Brings the rows of a bin into the order of a layout.

1. Threads decode the sources. While the rows fit into memory, they are kept.
2. A sample of the layout's columns gives the rule by which rows get a bucket (:mod:`delta_maintenance.layout.bucketing`). Where
   the rows do not fit, the columns are read once more, and nothing else of the rows.
3. Threads divide the rows between the buckets (:mod:`delta_maintenance.rewrite.bucket_store`), and decode the rest of the sources.
4. Threads sort and encode one bucket each.

Random numbers come from a seed, and rows are taken in the order of the sources. A chunk holds whole row groups of the sources, so large
row groups need more memory.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from delta_log.arrow.row_hash import RowHash
from delta_maintenance.layout.bucketing import Bucketing, random_noise
from delta_maintenance.layout.layout import Layout
from delta_maintenance.layout.ranks import Uint64s
from delta_maintenance.rewrite.bucket_store import BucketStore
from delta_maintenance.rewrite.live_rows import LiveRows
from delta_maintenance.rewrite.segment_pool import SegmentPool
from delta_maintenance.rewrite.segments import Segment, segments
from delta_maintenance.rewrite.sources import Sources
from delta_maintenance.rewrite.task import RewriteTask

#: Rows whose values decide the buckets. With a hundred files, sizes then differ by about two percent.
_SAMPLED_ROWS = 1 << 18
#: Decoded bytes that a thread takes at a time. Fewer would make too many small pieces.
_CHUNK_BYTES = 32 << 20
_MAX_BUCKETS = 1 << 14
#: Where the numbers that order the rows of a bucket are kept beside the rows; and for a row map, the number of each row.
_ORDER, _NUMBER = "\0order", "\0number"


@dataclass(frozen=True, slots=True, eq=False)
class Bucket:
    """Rows that a thread sorts and encodes.

    :param number: of the bucket, of so many (``count``).
    :param file: the number of the new file.
    :param batches: returns the sorted rows.
    :param numbers: returns the numbers of these rows among the live rows of the sources, once, after the rows were taken; ``None``: the
        task asks for no row map.
    """

    number: int
    count: int
    file: int
    batches: Callable[..., Iterator[pa.RecordBatch]]
    numbers: Callable[[], Uint64s] | None


@dataclass(slots=True)
class _Sample:
    """Values of the layout's columns in rows that are spread evenly over all rows.

    :param every: one of so many rows is taken; doubled when the sample becomes too large.
    """

    every: int = 1
    _seen: int = 0
    _parts: list[pa.RecordBatch] = field(default_factory=list)

    def add(self, columns: pa.RecordBatch) -> None:
        first = -self._seen % self.every
        self._seen += columns.num_rows
        self._parts.append(columns.take(pa.array(np.arange(first, columns.num_rows, self.every))))
        if sum(part.num_rows for part in self._parts) > 2 * _SAMPLED_ROWS:
            whole = pa.Table.from_batches(self._parts)
            thinned = whole.take(pa.array(np.arange(0, whole.num_rows, 2)))
            self._parts = thinned.combine_chunks().to_batches()
            self.every *= 2

    def columns(self) -> list[pa.Array]:
        whole = _one_batch(self._parts, self._parts[0].schema)
        return [whole.column(number) for number in range(whole.num_columns)]


@dataclass(frozen=True, slots=True, eq=False)
class _Chunk:
    """Decoded rows of some sources, in their order.

    :param number: of the chunk in the bin.
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

    :param row_group_bytes: about the decoded bytes of a bucket.
    :ivar read: the checksum of the rows as they were read, if the task asks for ``verify="full"``.
    """

    task: RewriteTask
    sources: Sources
    live: LiveRows
    row_group_bytes: int
    pool: SegmentPool
    read: RowHash = field(default_factory=RowHash)
    _store: BucketStore = field(init=False)
    _kept_bytes: int = 0
    _numbers: dict[int, Uint64s] = field(default_factory=dict)

    def __post_init__(self) -> None:
        schema = self.live.schema.append(pa.field(_ORDER, pa.uint64()))
        if self.task.keeps_row_map:
            schema = schema.append(pa.field(_NUMBER, pa.uint64()))
        self._store = BucketStore(schema, self.pool.row_memory)

    def __enter__(self) -> LaidOutRows:
        return self

    def __exit__(self, *_: object) -> None:
        self._give_back()
        self._store.close()

    def buckets(self, on_read: Callable[[Segment], None]) -> Generator[Bucket, None, None]:
        """Read all rows, then yield the buckets in the order of the files.

        :param on_read: called with each segment whose rows were divided.
        :raises NoTemporarySpace: the rows fit neither into memory nor onto the disk.
        """
        with closing(self._chunks()) as chunks:
            kept, is_whole = self._fitting(chunks)
            rule, buckets_of_a_file = self._rule(kept, is_whole)
            todo = chain(self._taken(kept), chunks)
            divided = self.pool.in_order(partial(self._divided, rule), todo, self.pool.threads + 1)
            with closing(divided):
                for chunk, pieces in divided:
                    self._store.add(pieces)
                    self.read = self.read.plus(chunk.read)
                    on_read(chunk.segment)
        count = self.task.num_outputs * buckets_of_a_file
        for number in range(count):
            numbers = partial(self._numbers.pop, number) if self.task.keeps_row_map else None
            yield Bucket(number, count, number // buckets_of_a_file, partial(self._sorted, number), numbers)

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
        return segments(sources, self.task.bytes_in, _CHUNK_BYTES, self.pool.threads)

    def _decoded(self, numbered: tuple[int, Segment]) -> _Chunk:
        number, segment = numbered
        rows = _one_batch(self.live.batches(segment), self.live.schema)
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

    def _rule(self, kept: Sequence[_Chunk], is_whole: bool) -> tuple[Bucketing, int]:
        """Return the rule that gives rows their buckets, and the number of buckets of a file.

        :param kept: the first chunks.
        :param is_whole: there are no others.
        """
        decoded_bytes = sum(chunk.rows.nbytes for chunk in kept)
        sample = _Sample()
        sample.add(_layout_columns(_one_batch([], self.live.schema), self._layout))
        if is_whole:
            for chunk in kept:
                sample.add(_layout_columns(chunk.rows, self._layout))
        else:
            read_bytes = sum(chunk.bytes_in for chunk in kept)
            decoded_bytes = decoded_bytes * self.task.bytes_in // max(1, read_bytes)
            self._read_sample(sample)
        num_outputs = self.task.num_outputs
        buckets_of_a_file = max(1, round(decoded_bytes / num_outputs / self.row_group_bytes))
        buckets_of_a_file = min(buckets_of_a_file, max(1, _MAX_BUCKETS // num_outputs))
        columns = sample.columns()
        noise = random_noise(f"{self.task.bin_id} sample", 0, len(columns[0]))
        return Bucketing.of(
            self._layout.kind, columns, num_outputs, buckets_of_a_file, noise
        ), buckets_of_a_file

    def _read_sample(self, sample: _Sample) -> None:
        """Read the layout's columns of all rows."""
        names = {path[0] for path in self._layout.columns}

        def read(segment: Segment) -> pa.RecordBatch:
            parts = (batch for part in segment for batch in self.live.columns_of(part, names))
            return _layout_columns(_one_batch(parts, self.live.schema_of(names)), self._layout)

        again = self._segments(Sources(self.task, self.sources.storage))
        with closing(self.pool.in_order(read, again, self.pool.threads + 1)) as found:
            for _, columns in found:
                sample.add(columns)

    def _divided(self, rule: Bucketing, chunk: _Chunk) -> dict[int, pa.RecordBatch]:
        """Divide rows between buckets, each with the number that orders it."""
        if not chunk.rows.num_rows:
            return {}
        columns = _layout_columns(chunk.rows, self._layout).columns
        buckets, order = rule(columns, random_noise(self.task.bin_id, chunk.number, chunk.rows.num_rows))
        by_bucket = np.argsort(buckets, kind="stable")
        rows = chunk.rows.append_column(pa.field(_ORDER, pa.uint64()), pa.array(order))
        if self.task.keeps_row_map:
            numbers = np.arange(chunk.first, chunk.first + len(order), dtype=np.uint64)
            rows = rows.append_column(pa.field(_NUMBER, pa.uint64()), pa.array(numbers))
        rows = rows.take(pa.array(by_bucket))
        ascending = buckets[by_bucket]
        starts = np.flatnonzero(np.diff(ascending, prepend=-1))
        ends = [*starts[1:].tolist(), len(ascending)]
        return {
            bucket: rows.slice(start, end - start)
            for bucket, start, end in zip(ascending[starts].tolist(), starts.tolist(), ends, strict=True)
        }

    def _sorted(self, number: int, **_: object) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a bucket in their order."""
        rows = self._store.take(number)
        if not rows.num_rows:
            return
        order = np.argsort(rows.column(_ORDER).to_numpy(), kind="stable")
        if self.task.keeps_row_map:
            self._numbers[number] = rows.column(_NUMBER).to_numpy()[order]
        rows = rows.select(self.live.schema.names)
        yield from rows.combine_chunks().take(pa.array(order)).to_batches()


def _one_batch(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> pa.RecordBatch:
    table = pa.Table.from_batches(batches, schema).combine_chunks()
    arrays = [
        column.chunk(0)
        if column.num_chunks == 1
        else pa.concat_arrays([*column.chunks, pa.nulls(0, column.type)])
        for column in table.columns
    ]
    return pa.record_batch(arrays, schema=schema)


def _layout_columns(rows: pa.RecordBatch, layout: Layout) -> pa.RecordBatch:
    """The values of the layout's columns; those within a struct that is null are null."""
    columns = []
    for top, *members in layout.columns:
        column = rows.column(top)
        columns.append(pc.struct_field(column, members) if members else column)
    return pa.record_batch(columns, names=[str(number) for number in range(len(columns))])
