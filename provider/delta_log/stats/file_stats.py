"""Statistics of a data file: ``numRecords``, ``minValues``, ``maxValues``, ``nullCount``, ``tightBounds``.

Protocol section "Per-file Statistics". Readers skip files by their bounds, so a bound that is too narrow loses rows silently.
Where the exact bound cannot be written, the writer widens it; where it cannot be widened, the writer leaves it out.

1. Names are physical and nested as the columns are. Partition columns have no statistics.
2. :func:`stats_columns` chooses the columns (``delta.dataSkippingStatsColumns``, else the first leaves by
   ``delta.dataSkippingNumIndexedCols``; clustering columns always). Each has a ``nullCount``, in which a null struct makes its
   members null. Numbers, dates, timestamps and strings have bounds, too.
3. Strings are cut to a prefix. A cut maximum ends with a character above the first one cut off, in the order of UTF-8.
   Timestamps are in milliseconds: the minimum is rounded down, the maximum up.
4. A float column with a NaN or an infinity, dates outside the years 1 to 9999 and strings that are not UTF-8 have no bounds.
   A zero minimum is written -0.0 and a zero maximum 0.0. A ``float`` is written as the ``double`` that equals it, so that a
   reader may parse it as either.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime, timedelta, timezone
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct, field

from delta_log.errors import CorruptLog, InvalidPartitionValue, InvalidProperty
from delta_log.table_config.partition_values import parse
from delta_log.table_config.schema import DataType, PrimitiveType, StructType

STATS_COLUMNS = "delta.dataSkippingStatsColumns"
NUM_INDEXED_COLUMNS = "delta.dataSkippingNumIndexedCols"
STRING_PREFIX_LENGTH = "delta.dataSkippingStringPrefixLength"
DEFAULT_NUM_INDEXED_COLUMNS = 32
DEFAULT_STRING_PREFIX_LENGTH = 32

_ASCII_LAST, _UNICODE_LAST = "\x7f", "\U0010ffff"
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_FIRST_DAY, _LAST_DAY = ((day - date(1970, 1, 1)).days for day in (date.min, date.max))
_LAST_MS = (_LAST_DAY + 1) * 86_400_000 - 1
_NANOSECONDS = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1}
# One part of a column's name, bare or in backticks.
_NAME_PART = re.compile(r"\s*(?:`((?:[^`]|``)+)`|([^`.,]+))\s*")


class StatsColumn(Struct, frozen=True):
    """A leaf column that has statistics: its physical names from the top down, and its type."""

    path: tuple[str, ...]
    type: DataType


def stats_columns(
    schema: StructType,
    *,
    partition_columns: Iterable[str] = (),
    properties: Mapping[str, str | None] | None = None,
    clustering_columns: Iterable[Sequence[str]] = (),
) -> tuple[StatsColumn, ...]:
    """Choose the columns that get statistics, in the order of the schema.

    :param partition_columns: logical names.
    :param clustering_columns: physical names from the top down, as in the domain ``delta.clustering``.
    :raises InvalidProperty: a property does not parse.
    """
    properties = properties or {}
    data_columns = schema.without(tuple(partition_columns))
    leaves = list(_leaves(data_columns, (), ()))
    chosen = {tuple(path) for path in clustering_columns}
    named = properties.get(STATS_COLUMNS)
    if named is not None:
        wanted = _column_names(named)
        chosen.update(
            column.path for logical, column in leaves if any(logical[: len(name)] == name for name in wanted)
        )
    else:
        count = _integer(properties, NUM_INDEXED_COLUMNS, DEFAULT_NUM_INDEXED_COLUMNS)
        chosen.update(column.path for _, column in (leaves if count < 0 else leaves[:count]))
    return tuple(column for _, column in leaves if column.path in chosen)


def string_prefix_length(properties: Mapping[str, str | None]) -> int:
    """Return the number of characters to which string bounds are cut."""
    return _integer(properties, STRING_PREFIX_LENGTH, DEFAULT_STRING_PREFIX_LENGTH)


def _leaves(
    struct: StructType, logical: tuple[str, ...], physical: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], StatsColumn]]:
    """Yield every leaf, depth first, with its lower-case logical path; arrays and maps are leaves."""
    for member in struct:
        names, path = (*logical, member.name.lower()), (*physical, member.physical_name)
        if isinstance(member.type, StructType):
            yield from _leaves(member.type, names, path)
        else:
            yield names, StatsColumn(path, member.type)


def _integer(properties: Mapping[str, str | None], name: str, default: int) -> int:
    value = properties.get(name)
    try:
        return default if value is None else int(value)
    except ValueError as error:
        raise InvalidProperty(name, str(value), "an integer", str(default)) from error


def _column_names(text: str) -> list[tuple[str, ...]]:
    """Parse a list such as ``a, b.c, `d.e``` into lower-case logical paths."""
    names: list[tuple[str, ...]] = []
    parts: list[str] = []
    at = 0
    while text.strip():
        match = _NAME_PART.match(text, at)
        if match is None or (match.end() < len(text) and text[match.end()] not in ".,"):
            raise InvalidProperty(STATS_COLUMNS, text, "a list of columns", "a, b.c")
        quoted, bare = match.groups()
        parts.append((quoted.replace("``", "`") if quoted else bare.strip()).lower())
        at = match.end() + 1
        if text[match.end() : at] != ".":
            names.append(tuple(parts))
            parts = []
        if at > len(text):
            break
    return names


def truncate_min(text: str, limit: int) -> str | None:
    """Return a lower bound of a string: its first ``limit`` characters. ``None`` if the limit leaves no room."""
    return text[:limit] if limit > 0 else None


def truncate_max(text: str, limit: int) -> str | None:
    """Return an upper bound of a string, cut as Spark cuts it; ``None`` if there is none within twice the limit.

    The limit counts UTF-16 units. A surrogate pair is not split.
    """
    if limit <= 0:
        return None
    end = units = 0
    while units < limit:
        if end == len(text):
            return text
        units += 1 + (text[end] > "\uffff")
        end += 1
    while units <= 2 * limit:
        if end == len(text):
            return text
        if text[end] < _ASCII_LAST:
            return text[:end] + _ASCII_LAST
        if text[end] < _UNICODE_LAST:
            return text[:end] + _UNICODE_LAST
        units += 2
        end += 1
    return None


class _Gathered(Struct):
    """Statistics of one column so far. ``bounded`` becomes false at a value for which no bound can be written.

    :param null_count: ``None``: it cannot be told.
    """

    bounded: bool
    null_count: int | None = 0
    low: Any = None
    high: Any = None

    def count(self, nulls: int | None) -> None:
        self.null_count = None if nulls is None or self.null_count is None else self.null_count + nulls

    def widen(self, low: Any, high: Any) -> None:
        self.low = low if self.low is None or low < self.low else self.low
        self.high = high if self.high is None or high > self.high else self.high


class StatsCollector(Struct):
    """Gathers the statistics of one data file while its rows are written.

    :param string_prefix_length: length of the prefixes of strings, see :func:`string_prefix_length`.
    :param tight_bounds: value of ``tightBounds``, which tables with deletion vectors need; ``None`` leaves it out.
    """

    columns: Sequence[StatsColumn]
    string_prefix_length: int = DEFAULT_STRING_PREFIX_LENGTH
    tight_bounds: bool | None = None
    num_records: int = 0
    _gathered: list[_Gathered] = field(default_factory=list)

    def __post_init__(self) -> None:
        # A copy of a collector has them.
        self._gathered = self._gathered or [
            _Gathered(_kind(column.type) in _BOUNDS) for column in self.columns
        ]

    def update(
        self, rows: pa.Table | pa.RecordBatch, columns: Collection[tuple[str, ...]] | None = None
    ) -> None:
        """Add rows with physical column names. An absent column counts as null in all of them.

        :param columns: paths of the columns to add; the caller adds the others with :meth:`add`.
        """
        self.num_records += rows.num_rows
        if rows.num_rows == 0:
            return
        for column, gathered in zip(self.columns, self._gathered, strict=True):
            if columns is not None and column.path not in columns:
                continue
            values = leaf_values(rows, column.path)
            if values is None:
                gathered.count(rows.num_rows)
                continue
            if pa.types.is_dictionary(values.type):
                chunks = values.chunks if isinstance(values, pa.ChunkedArray) else [values]
                gathered.count(sum(map(_null_count, chunks)))
                values = _distinct(chunks, values.type.value_type)
            else:
                gathered.count(values.null_count)
            if gathered.bounded:
                self._widen(gathered, column, values)

    def add(self, path: tuple[str, ...], null_count: int | None, extremes: pa.Array | None) -> None:
        """Add the known statistics of a column in more rows.

        :param null_count: ``None``: it cannot be told.
        :param extremes: values of the column that include its least and its greatest.
        """
        number = self._number(path)
        gathered = self._gathered[number]
        gathered.count(null_count)
        if gathered.bounded and extremes is not None:
            self._widen(gathered, self.columns[number], extremes)

    def leave_out(self, path: tuple[str, ...], *, nulls: bool = True) -> None:
        """Write no bounds of a column, since the bounds of some rows are unknown, and with ``nulls`` no count of nulls."""
        gathered = self._gathered[self._number(path)]
        gathered.bounded = False
        if nulls:
            gathered.null_count = None

    def include_bounds(self, other: StatsCollector) -> None:
        """Add the bounds of those columns of other rows that the other collector has. Its counts are not added."""
        for column, more in zip(other.columns, other._gathered, strict=True):
            mine = self._gathered[self._number(column.path)]
            mine.bounded = mine.bounded and more.bounded
            if more.low is not None:
                mine.widen(more.low, more.high)

    def take(self, other: StatsCollector) -> None:
        """Take over the statistics of the columns that another collector has of the same rows. The number of rows is its."""
        self.num_records = other.num_records
        for column, known in zip(other.columns, other._gathered, strict=True):
            self._gathered[self._number(column.path)] = known

    def _number(self, path: tuple[str, ...]) -> int:
        return next(n for n, column in enumerate(self.columns) if column.path == path)

    def include(self, other: StatsCollector) -> None:
        """Add the statistics of other rows of the file, gathered for the same columns."""
        self.num_records += other.num_records
        for mine, more in zip(self._gathered, other._gathered, strict=True):
            mine.count(more.null_count)
            mine.bounded = mine.bounded and more.bounded
            if more.low is not None:
                mine.widen(more.low, more.high)

    def _widen(self, gathered: _Gathered, column: StatsColumn, values: pa.Array | pa.ChunkedArray) -> None:
        if values.null_count == len(values):
            return
        try:
            bounds = _BOUNDS[_kind(column.type)].bounds(values)
        except (UnicodeDecodeError, pa.ArrowInvalid):  # not UTF-8
            bounds = None
        if bounds is None:
            gathered.bounded = False
        else:
            gathered.widen(*bounds)

    def finish(self) -> str:
        """Return the JSON text for ``add.stats``."""
        lows, highs, nulls = _Tree(), _Tree(), _Tree()
        for column, gathered in zip(self.columns, self._gathered, strict=True):
            if gathered.null_count is not None:
                nulls.put(column.path, str(gathered.null_count))
            if gathered.bounded and gathered.low is not None:
                rules = _BOUNDS[_kind(column.type)]
                low = rules.render_low(gathered.low, self.string_prefix_length)
                high = rules.render_high(gathered.high, self.string_prefix_length)
                if low is not None:
                    lows.put(column.path, low)
                if high is not None:
                    highs.put(column.path, high)
        tight = "" if self.tight_bounds is None else f',"tightBounds":{json.dumps(self.tight_bounds)}'
        return (
            f'{{"numRecords":{self.num_records},"minValues":{lows.render()},"maxValues":{highs.render()},'
            f'"nullCount":{nulls.render()}{tight}}}'
        )


class _Tree(dict[str, Any]):
    """Nested JSON objects whose leaves are JSON texts, since a float would lose digits of a decimal."""

    def put(self, path: tuple[str, ...], text: str) -> None:
        inner = self
        for name in path[:-1]:
            inner = inner.setdefault(name, _Tree())
        inner[path[-1]] = text

    def render(self) -> str:
        members = (
            f"{_json_string(name)}:{value.render() if isinstance(value, _Tree) else value}"
            for name, value in self.items()
        )
        return f"{{{','.join(members)}}}"


def leaf_values(rows: pa.Table | pa.RecordBatch, path: tuple[str, ...]) -> pa.Array | pa.ChunkedArray | None:
    """Return the values of a column, null where a struct around it is null; ``None`` if the column is absent."""
    index = rows.schema.get_field_index(path[0])
    if index < 0:
        return None
    values = rows.column(index)
    for name in path[1:]:
        at = values.type.get_field_index(name) if pa.types.is_struct(values.type) else -1
        if at < 0:
            return None
        # struct_field applies the struct's nulls to the member. It would read a name with dots as a path, a number not.
        values = pc.struct_field(values, [at])
    return values


def _null_count(chunk: pa.DictionaryArray) -> int:
    """Count rows without value: the index is null, or the index points to a null. ``pc.count`` of pyarrow 24 sees only the former."""
    if not chunk.dictionary.null_count:
        return int(chunk.null_count)
    return int(pc.fill_null(chunk.dictionary.is_null().take(chunk.indices), fill_value=True).true_count)


def _distinct(chunks: Sequence[pa.DictionaryArray], kind: pa.DataType) -> pa.ChunkedArray:
    """Return each value of a dictionary column at least once. The dictionary itself may hold values that no row has."""
    return pa.chunked_array([chunk.dictionary.take(chunk.indices.unique()) for chunk in chunks], kind)


def _kind(data_type: DataType) -> str:
    if not isinstance(data_type, PrimitiveType):
        return ""
    if data_type.decimal is not None:
        return "decimal"
    return "string" if data_type.name.startswith(("char(", "varchar(")) else data_type.name


def _min_max(values: pa.Array | pa.ChunkedArray) -> tuple[Any, Any]:
    found = pc.min_max(values)
    return found["min"].as_py(), found["max"].as_py()


def _float_bounds(values: pa.Array | pa.ChunkedArray) -> tuple[Any, Any] | None:
    # Arrow ignores NaN and Spark orders it above all numbers. JSON has neither NaN nor infinities.
    chunks = values.chunks if isinstance(values, pa.ChunkedArray) else [values]
    ends: list[float] = []
    for chunk in chunks:
        if chunk.null_count < len(chunk):
            numbers = _without_nulls(chunk)
            # Where a value is NaN, so are NumPy's extremes. They take a tenth of the time of Arrow's.
            with np.errstate(invalid="ignore"):
                found = numbers.min().item(), numbers.max().item()
            if not all(map(math.isfinite, found)):
                return None
            ends += found
    return min(ends), max(ends)


def _without_nulls(chunk: pa.Array) -> npt.NDArray[Any]:
    """Return the values of a chunk, with one of them in the place of each null."""
    if chunk.null_count:
        # Leaving the nulls out takes three times as long.
        chunk = pc.fill_null(chunk, chunk[pc.index(pc.is_valid(chunk), True).as_py()])
    numbers: npt.NDArray[Any] = chunk.to_numpy()
    return numbers


def _date_bounds(values: pa.Array | pa.ChunkedArray) -> tuple[int, int] | None:
    low, high = _min_max(values.cast(pa.date32()).cast(pa.int32()))
    return (low, high) if low >= _FIRST_DAY and high <= _LAST_DAY else None


def _timestamp_bounds(values: pa.Array | pa.ChunkedArray) -> tuple[int, int] | None:
    """Return the bounds in milliseconds, the minimum rounded down and the maximum up."""
    unit = _NANOSECONDS[values.type.unit]
    low, high = _min_max(values.cast(pa.int64()))
    low_ms, high_ms = low * unit // 1_000_000, -(-high * unit // 1_000_000)
    return (low_ms, high_ms) if low_ms >= _FIRST_DAY * 86_400_000 and high_ms <= _LAST_MS else None


def _string_bounds(values: pa.Array | pa.ChunkedArray) -> tuple[str, str]:
    # Arrow compares bytes and Python compares code points, which is the same order.
    if not (pa.types.is_string(values.type) or pa.types.is_large_string(values.type)):
        values = values.cast(pa.large_string())
    return _min_max(values)


def _json_string(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _render_timestamp(milliseconds: int) -> str:
    moment = _EPOCH + timedelta(milliseconds=milliseconds)
    return moment.replace(tzinfo=None).isoformat("T", "milliseconds")


class _Rules(Struct, frozen=True):
    """Finds the bounds of one kind of column and renders each; ``None`` if a bound cannot be found or written."""

    bounds: Callable[[Any], tuple[Any, Any] | None]
    render_low: Callable[[Any, int], str | None]
    render_high: Callable[[Any, int], str | None]


def _same(bounds: Callable[[Any], tuple[Any, Any] | None], render: Callable[[Any], str]) -> _Rules:
    return _Rules(bounds, lambda value, _: render(value), lambda value, _: render(value))


def _rendered(text: str | None) -> str | None:
    return None if text is None else _json_string(text)


_BOUNDS: dict[str, _Rules] = {
    **dict.fromkeys(("byte", "short", "integer", "long"), _same(_min_max, str)),
    "decimal": _same(_min_max, lambda value: format(value, "f")),
    **dict.fromkeys(
        ("float", "double"),
        _Rules(_float_bounds, lambda value, _: repr(value or -0.0), lambda value, _: repr(value or 0.0)),
    ),
    "date": _same(_date_bounds, lambda days: f'"{date(1970, 1, 1) + timedelta(days=days)}"'),
    **dict.fromkeys(
        ("timestamp", "timestamp_nanos"), _same(_timestamp_bounds, lambda ms: f'"{_render_timestamp(ms)}Z"')
    ),
    **dict.fromkeys(
        ("timestamp_ntz", "timestamp_nanos_ntz"),
        _same(_timestamp_bounds, lambda ms: f'"{_render_timestamp(ms)}"'),
    ),
    "string": _Rules(
        _string_bounds,
        lambda value, limit: _rendered(truncate_min(value, limit)),
        lambda value, limit: _rendered(truncate_max(value, limit)),
    ),
}


class FileStats(Struct, frozen=True):
    """The parsed statistics of one file: typed bounds and counts by physical path."""

    num_records: int | None
    min_values: Mapping[tuple[str, ...], Any]
    max_values: Mapping[tuple[str, ...], Any]
    null_count: Mapping[tuple[str, ...], int]
    tight_bounds: bool


def parse_stats(text: str, columns: Iterable[StatsColumn]) -> FileStats:
    """Parse ``add.stats`` for some columns. Absent and null values are left out.

    A maximum timestamp is returned as written, although other writers round it down to milliseconds.

    :raises CorruptLog: the text is not statistics, or a bound is not a value of its column's type.
    """
    try:
        raw = json.loads(text, parse_float=str)
        found: dict[str, dict[tuple[str, ...], Any]] = {"minValues": {}, "maxValues": {}, "nullCount": {}}
        for column in columns:
            for part, values in found.items():
                value = _at(raw.get(part), column.path)
                if value is None or isinstance(value, dict):
                    continue
                if part == "nullCount":
                    values[column.path] = int(value)
                elif _kind(column.type) == "string":
                    values[column.path] = str(value)
                elif _kind(column.type) in _BOUNDS:
                    values[column.path] = parse(str(value), column.type, ".".join(column.path))
        records = raw.get("numRecords")
        return FileStats(
            None if records is None else int(records),
            found["minValues"],
            found["maxValues"],
            found["nullCount"],
            raw.get("tightBounds") is not False,
        )
    except (
        InvalidPartitionValue,
        ValueError,
        TypeError,
        AttributeError,
        ArithmeticError,
        RecursionError,
    ) as error:
        raise CorruptLog("stats", f"{text[:200]!r} is not the statistics of a file ({error})") from error


def _at(value: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        if not isinstance(value, dict):
            return None
        value = value.get(name)
    return value
