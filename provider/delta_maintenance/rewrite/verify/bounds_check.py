"""Checks the statistics that a new file and its ``add`` carry against the file's rows. A wrong bound loses rows of readers.

The rows are read back. Values compare as readers compare them: numbers with their sign, texts and binary values by unsigned
bytes.

====================================  =================================================================================
statistics of a row group's leaf      bounds hold all values and the count of nulls is right (in a list or a map, not too
                                      large: before release 26 Arrow leaves out nulls of empty lists of structs, and no
                                      reader skips rows by it); a leaf with a NaN has no bounds; a zero is a lower bound
                                      as -0.0 and an upper bound as 0.0
its column index, page by page        likewise, for the rows that the offset index gives to each page; pages of nulls are
                                      named as such, and bounds grow or fall as the index says
statistics of the file in the log     ``numRecords`` and ``nullCount`` are right, bounds hold all values, none for NaN
====================================  =================================================================================

Rows come in batches of any size. Between two batches only the extremes of each page are kept.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterator
from datetime import date, datetime, timedelta, timezone
from decimal import Context, Decimal
from itertools import count, pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct, field

from delta_log.stats.file_stats import NUM_INDEXED_COLUMNS, leaf_values, parse_stats, stats_columns
from delta_log.storage.storage import Storage
from delta_log.table_config.schema import StructType, arrow_schema
from delta_maintenance.errors import BoundsMismatch
from delta_maintenance.rewrite.encode.footer_stats import file_leaves
from delta_maintenance.rewrite.limits import PAGE_INDEX_BYTES
from delta_maintenance.rewrite.task import OutputFile
from parquet_parts import page_index as parquet
from parquet_parts.footer import END_BYTES, footer_length
from parquet_parts.page_index import ColumnIndex, PageLocation
from parquet_parts.thrift import CorruptThrift, Fields

Rows = npt.NDArray[np.int64]

_EXACT = Context(prec=100)
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


class Extremes(Struct):
    """Counts and extremes of one leaf in some rows; ``low`` and ``high`` are :func:`comparable`."""

    values: int = 0
    nulls: int = 0
    nan: bool = False
    low: Any = None
    high: Any = None

    def plus(self, other: Extremes) -> Extremes:
        ends = [end for end in (self.low, other.low, self.high, other.high) if end is not None]
        return Extremes(
            self.values + other.values,
            self.nulls + other.nulls,
            self.nan or other.nan,
            min(ends, default=None),
            max(ends, default=None),
        )


def all_leaves(
    fields: list[pa.Field], path: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], pa.DataType]]:
    for member in fields:
        kind, names = member.type, (*path, member.name)
        if pa.types.is_map(kind):
            yield from all_leaves([kind.key_field, kind.item_field], names)
        elif pa.types.is_nested(kind):
            yield from all_leaves([kind.field(n) for n in range(kind.num_fields)], names)
        else:
            yield names, kind


def leaf_slots(array: pa.Array, rows: Rows, empty: Rows) -> Iterator[tuple[pa.Array, Rows, Rows]]:
    """Yield for each leaf its values, their rows, and the rows of its null slots.

    A leaf of a list or a map has a *slot* for each item, and a null slot for each row, struct or list without items: the format counts
    these as nulls.

    :param rows: the row of each item of the array.
    :param empty: the rows of surrounding lists without items.
    """
    if pa.types.is_struct(array.type):
        for member in array.flatten():
            yield from leaf_slots(member, rows, empty)
    elif pa.types.is_nested(array.type):
        offsets = np.frombuffer(array.buffers()[1], np.int32)[array.offset : array.offset + len(array) + 1]
        first, lengths = int(offsets[0]), np.diff(offsets)
        hidden = None
        if array.null_count:
            valid = array.is_valid().to_numpy(zero_copy_only=False)
            hidden = pa.array(np.repeat(valid, lengths)) if lengths[~valid].any() else None
            lengths = np.where(valid, lengths, 0)
        inner_rows, inner_empty = np.repeat(rows, lengths), np.concatenate([empty, rows[lengths == 0]])
        for items in (array.keys, array.items) if pa.types.is_map(array.type) else (array.values,):
            inner = items.slice(first, int(offsets[-1]) - first)
            yield from leaf_slots(inner if hidden is None else inner.filter(hidden), inner_rows, inner_empty)
    elif array.null_count:
        valid = array.is_valid().to_numpy(zero_copy_only=False)
        yield array.drop_null(), rows[valid], np.concatenate([empty, rows[~valid]])
    else:
        yield array, rows, empty


def extremes(values: pa.Array) -> Extremes:
    """Find the extremes of values without nulls."""
    kind, number = values.type, len(values)
    if pa.types.is_floating(kind):
        nan = pc.is_nan(values)
        if pc.any(nan).as_py():
            values = values.filter(pc.invert(nan))
            if not len(values):
                return Extremes(number, nan=True)
            has_nan = True
        else:
            has_nan = False
        ends = pc.min_max(values)
        return Extremes(number, 0, has_nan, ends["min"].as_py(), ends["max"].as_py())
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        values = values.view(pa.int32() if pa.types.is_date32(kind) else pa.int64())
    elif pa.types.is_string(kind):
        values = values.view(pa.binary())
    ends = pc.min_max(values)
    low, high = ends["min"].as_py(), ends["max"].as_py()
    return Extremes(number, 0, False, comparable(low, kind), comparable(high, kind))


def comparable(value: Any, kind: pa.DataType) -> Any:
    """Turn a value of a column, or a bound of the log, into a number or bytes that compare as readers compare the value."""
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, datetime):
        moment = value if value.tzinfo else value.replace(tzinfo=timezone.utc)
        return (moment - _EPOCH) // timedelta(microseconds=1)
    if isinstance(value, date):
        return (value - _EPOCH.date()).days
    if isinstance(value, Decimal):
        return int(_EXACT.scaleb(value, kind.scale))
    return value


_Int64s = npt.NDArray[np.int64]

#: Forms of a bound by the physical type of Parquet.
_FORMS = {0: "<?", 1: "<i", 2: "<q", 4: "<f", 5: "<d"}


class _Untrue(Exception):
    """Carries the place and the reason of a :class:`BoundsMismatch` out of the checks."""


class _Chunk(Struct, frozen=True):
    """One leaf in one row group, as the file describes it.

    :param first_page: the number of its first page among the leaf's pages.
    """

    meta: Fields
    index: ColumnIndex | None
    first_page: int
    num_pages: int


class _Leaf(Struct):
    """One leaf of the file: what the file says of it, and what its rows hold.

    :param is_repeated: ``True``: the leaf is in a list or a map.
    :param first_rows: the first row of each page, counted from the file's first row.
    :param found: the extremes of each page.
    """

    name: str
    kind: pa.DataType
    is_repeated: bool
    chunks: list[_Chunk] = field(default_factory=list)
    first_rows: list[int] = field(default_factory=list)
    found: list[Extremes] = field(default_factory=list)

    def take(self, values: pa.Array, rows: _Int64s, null_rows: _Int64s) -> None:
        """Add values with their rows, and the rows of nulls."""
        starts = np.asarray(self.first_rows, np.int64)
        for page, number in zip(*np.unique(_page_of(starts, null_rows), return_counts=True), strict=True):
            self.found[page].nulls += int(number)
        if not len(rows):
            return
        first, last = (int(page) for page in _page_of(starts, rows[[0, -1]]))
        cuts = [0, *np.searchsorted(rows, starts[first + 1 : last + 1]).tolist(), len(rows)]
        for page, (start, stop) in enumerate(pairwise(cuts), start=first):
            if stop > start:
                self.found[page] = self.found[page].plus(extremes(values.slice(start, stop - start)))

    def check(self) -> None:
        for number, chunk in enumerate(self.chunks):
            pages = self.found[chunk.first_page : chunk.first_page + chunk.num_pages]
            self._check_group(f"{self.name} in row group {number}", chunk, pages)

    def _check_group(self, where: str, chunk: _Chunk, pages: list[Extremes]) -> None:
        whole = Extremes()
        for page in pages:
            whole = whole.plus(page)
        physical, statistics = (
            chunk.meta.required_number(parquet.PHYSICAL_TYPE),
            chunk.meta.struct(parquet.STATISTICS),
        )
        if chunk.meta.number(parquet.NUM_VALUES) != whole.values + whole.nulls:
            raise _Untrue(where, f"it has {whole.values + whole.nulls} values and nulls")
        if statistics is not None:
            self._check_statistics(where, statistics, physical, whole)
        if chunk.index is not None:
            self._check_index(where, chunk.index, physical, pages)

    def _check_statistics(self, where: str, statistics: Fields, physical: int, whole: Extremes) -> None:
        nulls = statistics.number(parquet.NULL_COUNT)
        if nulls is not None and self._is_wrong_count(nulls, whole.nulls):
            raise _Untrue(where, f"{nulls} nulls are said to be there, and there are {whole.nulls}")
        for low, high in (parquet.BOUNDS, parquet.OLD_BOUNDS):
            ends = [
                None if raw is None else self._decoded(raw, physical)
                for raw in map(statistics.binary, (low, high))
            ]
            _check_bounds(where, whole, ends[0], ends[1])

    def _check_index(self, where: str, index: ColumnIndex, physical: int, pages: list[Extremes]) -> None:
        if len(index.null_pages) != len(pages):
            raise _Untrue(where, f"its column index has {len(index.null_pages)} pages of {len(pages)}")
        bounds = []
        for number, page in enumerate(pages):
            here = f"{where}, page {number}"
            if index.null_pages[number] != (not page.values):
                raise _Untrue(here, f"it has {page.values} values")
            if index.null_counts is not None and self._is_wrong_count(index.null_counts[number], page.nulls):
                raise _Untrue(
                    here, f"{index.null_counts[number]} nulls are said to be there, not {page.nulls}"
                )
            if page.values:
                ends = [self._decoded(raw[number], physical) for raw in (index.min_values, index.max_values)]
                bounds.append(ends)
                _check_bounds(here, page, ends[0], ends[1])
        _check_order(where, index.boundary_order, bounds)

    def _is_wrong_count(self, said: int, found: int) -> bool:
        return said > found if self.is_repeated else said != found

    def _decoded(self, raw: bytes, physical: int) -> Any:
        if physical in _FORMS:
            try:
                return struct.unpack(_FORMS[physical], raw)[0]
            except struct.error as error:
                raise _Untrue(self.name, f"a bound has {len(raw)} bytes") from error
        return int.from_bytes(raw, "big", signed=True) if pa.types.is_decimal(self.kind) else raw


class BoundsCheck:
    """Checks one new file. The caller gives it all rows in their order with :meth:`update`, then calls :meth:`finish`.

    :param stored: the columns of the file.
    :raises BoundsMismatch: the file has no footer, or no page index where the footer says.
    """

    def __init__(self, bin_id: str, storage: Storage, output: OutputFile, stored: StructType) -> None:
        self._bin_id, self._output = bin_id, output
        schema = arrow_schema(stored, physical=True)
        #: Numbers of the leaves outside lists and maps, by path.
        self._numbers = {path: number for path, number, _ in file_leaves(list(schema), (), count())}
        self._leaves = [
            _Leaf(".".join(path), kind, path not in self._numbers)
            for path, kind in all_leaves(list(schema), ())
        ]
        self._columns = stats_columns(stored, properties={NUM_INDEXED_COLUMNS: "-1"})
        self._null_rows = dict.fromkeys((column.path for column in self._columns), 0)
        self._rows = 0
        try:
            self._said_rows = self._describe(_FileEnd(storage, output.key, output.size_bytes))
        except CorruptThrift as error:
            raise BoundsMismatch(bin_id, output.key, "its footer", str(error)) from None

    def update(self, batch: pa.RecordBatch) -> None:
        rows = np.arange(self._rows, self._rows + batch.num_rows, dtype=np.int64)
        if not batch.num_rows or rows[-1] >= self._said_rows:
            self._rows += batch.num_rows
            return
        slots = (leaf for column in batch.columns for leaf in leaf_slots(column, rows, rows[:0]))
        for leaf, (values, value_rows, null_rows) in zip(self._leaves, slots, strict=True):
            leaf.take(values, value_rows, null_rows)
        for path in self._null_rows:
            values = leaf_values(batch, path)
            assert values is not None
            self._null_rows[path] += values.null_count
        self._rows += batch.num_rows

    def finish(self) -> None:
        """Compare what the file says with the rows.

        :raises BoundsMismatch: a statement of the file or of its statistics is wrong.
        """
        try:
            if self._rows != self._said_rows:
                raise _Untrue("its footer", f"it says {self._said_rows} rows, and there are {self._rows}")
            for leaf in self._leaves:
                leaf.check()
            self._check_stats()
        except _Untrue as untrue:
            raise BoundsMismatch(self._bin_id, self._output.key, *untrue.args) from None

    def _describe(self, tail: _FileEnd) -> int:
        """Note what the footer and the page index say. Return the number of rows."""
        starts = [0]
        for number, leaf, chunk in parquet.column_chunks(tail.footer):
            if leaf == 0:
                starts.append(starts[-1] + parquet.num_rows(tail.footer, number))
            if leaf >= len(self._leaves):
                raise CorruptThrift(0, f"the file has more than {len(self._leaves)} leaves")
            meta, places = parquet.chunk_meta(chunk), tail.offset_index(chunk)
            first_rows = [place.first_row for place in places] or [0]
            rows = starts[-1] - starts[-2]
            # A page may be empty: with tiny pages, Arrow begins the values of a list with an empty one.
            if first_rows[0] or any(a > b for a, b in pairwise([*first_rows, rows])):
                raise CorruptThrift(0, f"pages begin with the rows {first_rows[:9]} of {rows}")
            there = self._leaves[leaf]
            there.chunks.append(_Chunk(meta, tail.column_index(chunk), len(there.found), len(first_rows)))
            there.first_rows += [starts[-2] + row for row in first_rows]
            there.found += [Extremes() for _ in first_rows]
        return starts[-1]

    def _check_stats(self) -> None:
        if self._output.stats is None:
            return
        said = parse_stats(self._output.stats, self._columns)
        if said.num_records != self._rows:
            raise _Untrue(
                "numRecords in the log", f"it is {said.num_records}, and there are {self._rows} rows"
            )
        for column in self._columns:
            where, nulls = f"{'.'.join(column.path)} in the log", self._null_rows[column.path]
            if said.null_count.get(column.path, nulls) != nulls:
                raise _Untrue(where, f"nullCount is {said.null_count[column.path]}, and there are {nulls}")
            if column.path in self._numbers:
                leaf, whole = self._leaves[self._numbers[column.path]], Extremes()
                for page in leaf.found:
                    whole = whole.plus(page)
                low, high = (bounds.get(column.path) for bounds in (said.min_values, said.max_values))
                _check_bounds(where, whole, comparable(low, leaf.kind), comparable(high, leaf.kind))


class _FileEnd:
    """The footer and the page index of a file, read with one request where they are small."""

    def __init__(self, storage: Storage, key: str, size: int) -> None:
        wanted = min(size, PAGE_INDEX_BYTES)
        for _ in range(3):
            tail = storage.read(key, size - wanted, wanted)
            needed = min(size, footer_length(tail[-END_BYTES:]) + END_BYTES)
            if needed <= wanted:
                before, self.footer = parquet.split_footer(tail)
                first = parquet.page_index_start(self.footer, size - needed)
                needed = size - min(first, size)
            if needed <= wanted:
                self._bytes, self._start = before, size - wanted
                return
            wanted = needed
        raise CorruptThrift(0, "the page index lies outside of the file")

    def offset_index(self, chunk: Fields) -> tuple[PageLocation, ...]:
        content = self._content(chunk, parquet.OFFSET_INDEX, parquet.OFFSET_INDEX_LENGTH)
        return () if content is None else parquet.offset_index(content)

    def column_index(self, chunk: Fields) -> ColumnIndex | None:
        content = self._content(chunk, parquet.COLUMN_INDEX, parquet.COLUMN_INDEX_LENGTH)
        return None if content is None else ColumnIndex.from_bytes(content)

    def _content(self, chunk: Fields, offset: int, length: int) -> bytes | None:
        if offset not in chunk:
            return None
        start = chunk.required_number(offset) - self._start
        return self._bytes[start : start + chunk.required_number(length)]


def _page_of(first_rows: _Int64s, rows: _Int64s) -> _Int64s:
    return np.searchsorted(first_rows, rows, "right") - 1


def _check_bounds(where: str, found: Extremes, low: Any, high: Any) -> None:
    if low is None and high is None:
        return
    if found.nan:
        raise _Untrue(where, f"it has the bounds {_shown(low)} and {_shown(high)}, and holds a NaN")
    if low is not None and (low != low or (found.low is not None and low > found.low)):  # noqa: PLR0124
        raise _Untrue(where, f"its lower bound is {_shown(low)}, and it holds {_shown(found.low)}")
    if high is not None and (high != high or (found.high is not None and high < found.high)):  # noqa: PLR0124
        raise _Untrue(where, f"its upper bound is {_shown(high)}, and it holds {_shown(found.high)}")
    for bound, sign in ((low, -1.0), (high, 1.0)):
        if isinstance(bound, float) and bound == 0 and math.copysign(1.0, bound) != sign:
            raise _Untrue(where, f"a bound is {bound}, and zeros of the other sign lie outside of it")


def _check_order(where: str, order: int, bounds: list[list[Any]]) -> None:
    compare: dict[int, Callable[[Any, Any], bool]] = {1: lambda a, b: a <= b, 2: lambda a, b: a >= b}
    if order in compare and not all(
        compare[order](one[end], other[end]) for one, other in pairwise(bounds) for end in (0, 1)
    ):
        raise _Untrue(where, "the bounds of its pages are not in the order that its column index says")


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}…"
