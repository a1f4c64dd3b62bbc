"""Divides rows between the buckets of a layout, and sorts the rows of a bucket.

The rule follows from a sample of the rows (:class:`Sample`). Processes that share a bin draw samples of their own, and one of them makes
the rule of all samples together. Random numbers come from a seed, so a repetition divides the same rows in the same way.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct, field

from delta_maintenance.layout.bucketing import Bucketing, random_noise
from delta_maintenance.layout.layout import Layout
from delta_maintenance.layout.ranks import Uint64s
from delta_maintenance.rewrite.limits import MAX_BUCKETS, SAMPLED_ROWS
from delta_maintenance.rewrite.task import RewriteTask

#: Where the numbers that order the rows of a bucket are kept beside the rows; and for a row map, the number of each row.
ORDER, NUMBER = "\0order", "\0number"
#: And the bucket of each row, where rows are divided between files first.
BUCKET = "\0bucket"

_Int64s = npt.NDArray[np.int64]


class Sample(Struct):
    """Values of the layout's columns in rows that are spread evenly over all rows.

    :param limit_rows: about the most rows of the sample.
    :param every: one of so many rows is taken, a power of two; doubled when the sample becomes too large.
    """

    limit_rows: int = SAMPLED_ROWS
    every: int = 1
    _seen: int = 0
    _parts: list[pa.RecordBatch] = field(default_factory=list)

    def add(self, columns: pa.RecordBatch) -> None:
        first = -self._seen % self.every
        self._seen += columns.num_rows
        self._parts.append(columns.take(pa.array(np.arange(first, columns.num_rows, self.every))))
        if sum(part.num_rows for part in self._parts) > 2 * self.limit_rows:
            self._thin(2)

    def include(self, other: Sample) -> None:
        """Add the sample of other rows."""
        self._thin(max(1, other.every // self.every))
        other._thin(max(1, self.every // other.every))
        self._parts += other._parts
        if sum(part.num_rows for part in self._parts) > 2 * self.limit_rows:
            self._thin(2)

    @property
    def rows(self) -> pa.RecordBatch:
        """The values, a column for each of the layout. There has to be a part."""
        return one_batch(self._parts, self._parts[0].schema)

    @classmethod
    def given(cls, rows: pa.RecordBatch, every: int) -> Sample:
        """A sample that another process has drawn."""
        return cls(every=every, _parts=[rows])

    def _thin(self, times: int) -> None:
        self.every *= times
        if times == 1 or not self._parts:
            return
        whole = pa.Table.from_batches(self._parts)
        thinned = whole.take(pa.array(np.arange(0, whole.num_rows, times)))
        self._parts = thinned.combine_chunks().to_batches() or [self._parts[0].slice(0, 0)]


class DivisionRule(Struct, frozen=True, eq=False):
    """Gives rows their buckets.

    :param buckets_of_a_file: a file is made of so many consecutive buckets.
    """

    layout: Layout
    bucketing: Bucketing
    num_files: int
    buckets_of_a_file: int

    @classmethod
    def of(cls, task: RewriteTask, sample: Sample, decoded_bytes: int, row_group_bytes: int) -> DivisionRule:
        """
        :param decoded_bytes: decoded size of all rows.
        :param row_group_bytes: about the decoded bytes of a bucket.
        """
        assert task.layout is not None
        files = task.num_outputs
        buckets_of_a_file = max(1, round(decoded_bytes / files / row_group_bytes))
        buckets_of_a_file = min(buckets_of_a_file, max(1, MAX_BUCKETS // files))
        columns = sample.rows.columns
        noise = random_noise(f"{task.bin_id} sample", 0, len(columns[0]))
        bucketing = Bucketing.of(task.layout.kind, columns, files, buckets_of_a_file, noise)
        return cls(task.layout, bucketing, files, buckets_of_a_file)

    @property
    def num_buckets(self) -> int:
        return self.num_files * self.buckets_of_a_file

    def divided(
        self, rows: pa.RecordBatch, seed: str, chunk: int, first: int | None
    ) -> dict[int, pa.RecordBatch]:
        """Divide rows between buckets, each with the number that orders it (column :data:`ORDER`).

        :param seed: seed of the bin; ``chunk``: the number of these rows in it. Together they give the random numbers.
        :param first: the number of the first row among the live rows of the sources, if rows are to keep their numbers (column
            :data:`NUMBER`).
        """
        if not rows.num_rows:
            return {}
        placed, buckets = self._placed(rows, seed, chunk, first)
        return _runs(placed, buckets)

    def divided_by_file(
        self, rows: pa.RecordBatch, seed: str, chunk: int, first: int | None
    ) -> dict[int, pa.RecordBatch]:
        """Divide rows as :meth:`divided` does, but between files. Rows know their bucket (column :data:`BUCKET`)."""
        if not rows.num_rows:
            return {}
        placed, buckets = self._placed(rows, seed, chunk, first)
        placed = placed.append_column(pa.field(BUCKET, pa.uint32()), pa.array(buckets.astype(np.uint32)))
        return _runs(placed, buckets // self.buckets_of_a_file)

    def _placed(
        self, rows: pa.RecordBatch, seed: str, chunk: int, first: int | None
    ) -> tuple[pa.RecordBatch, _Int64s]:
        """Sort rows by their buckets, and return both."""
        columns = layout_columns(rows, self.layout).columns
        buckets, order = self.bucketing(columns, random_noise(seed, chunk, rows.num_rows))
        by_bucket = stable_order(buckets.astype(np.uint64))
        rows = rows.append_column(pa.field(ORDER, pa.uint64()), pa.array(order))
        if first is not None:
            numbers = np.arange(first, first + len(order), dtype=np.uint64)
            rows = rows.append_column(pa.field(NUMBER, pa.uint64()), pa.array(numbers))
        return rows.take(pa.array(by_bucket)), buckets[by_bucket]


def by_bucket(rows: pa.RecordBatch) -> dict[int, pa.RecordBatch]:
    """Divide rows of a file between its buckets, which they know from :meth:`DivisionRule.divided_by_file`."""
    buckets = rows.column(BUCKET).to_numpy().astype(np.int64)
    return _runs(rows.drop_columns([BUCKET]), buckets)


def _runs(rows: pa.RecordBatch, numbers: _Int64s) -> dict[int, pa.RecordBatch]:
    """Cut rows where their ascending numbers change."""
    starts = np.flatnonzero(np.diff(numbers, prepend=-1))
    ends = [*starts[1:].tolist(), len(numbers)]
    return {
        number: rows.slice(start, end - start)
        for number, start, end in zip(numbers[starts].tolist(), starts.tolist(), ends, strict=True)
    }


def divided_schema(schema: pa.Schema, *, with_numbers: bool) -> pa.Schema:
    """Return the schema of divided rows."""
    divided = schema.append(pa.field(ORDER, pa.uint64()))
    return divided.append(pa.field(NUMBER, pa.uint64())) if with_numbers else divided


def sorted_rows(rows: pa.Table, schema: pa.Schema) -> tuple[Iterator[pa.RecordBatch], Uint64s | None]:
    """Sort the rows of a bucket.

    :param rows: divided rows.
    :param schema: schema of the table's own columns.
    :return: these columns, sorted, and the numbers of the rows if they have some.
    """
    order = stable_order(rows.column(ORDER).to_numpy())
    numbers = rows.column(NUMBER).to_numpy()[order] if NUMBER in rows.column_names else None
    own = rows.select(schema.names).combine_chunks().take(pa.array(order))
    return iter(own.to_batches()), numbers


def stable_order(keys: Uint64s) -> _Int64s:
    """Return the places of keys in ascending order; equal keys keep their order.

    A key and its place in one number of 64 bits are sorted several times faster than by a stable sort.
    """
    if not len(keys):
        return np.empty(0, np.int64)
    bits = (len(keys) - 1).bit_length()
    least = keys.min()
    if int(keys.max() - least).bit_length() + bits > 64:
        return np.argsort(keys, kind="stable")
    numbers = (keys - least) << np.uint64(bits)
    numbers |= np.arange(len(keys), dtype=np.uint64)
    numbers.sort()
    places: _Int64s = (numbers & np.uint64((1 << bits) - 1)).astype(np.int64)
    return places


def one_batch(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> pa.RecordBatch:
    table = pa.Table.from_batches(batches, schema).combine_chunks()
    arrays = [
        column.chunk(0)
        if column.num_chunks == 1
        else pa.concat_arrays([*column.chunks, pa.nulls(0, column.type)])
        for column in table.columns
    ]
    return pa.record_batch(arrays, schema=schema)


def layout_columns(rows: pa.RecordBatch, layout: Layout) -> pa.RecordBatch:
    """The values of the layout's columns; those within a struct that is null are null."""
    columns = []
    for top, *members in layout.columns:
        column = rows.column(top)
        columns.append(pc.struct_field(column, members) if members else column)
    return pa.record_batch(columns, names=[str(number) for number in range(len(columns))])


def layout_names(layout: Layout) -> set[str]:
    """The top-level columns that a layout needs."""
    return {path[0] for path in layout.columns}


def sample_of(rows: Sequence[pa.RecordBatch], schema: pa.Schema, layout: Layout, limit_rows: int) -> Sample:
    """Draw a sample of some rows, perhaps of none.

    :param schema: schema of the rows.
    """
    sample = Sample(limit_rows)
    sample.add(layout_columns(one_batch([], schema), layout))
    for batch in rows:
        sample.add(layout_columns(batch, layout))
    return sample
