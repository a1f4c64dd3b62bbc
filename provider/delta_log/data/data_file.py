"""Reading one data file as the table's *current* schema sees it.

Protocol sections "Column Mapping", "Type Widening" and "Deletion Vectors". A file may be older than the schema:
columns are found by name, physical name or field id, absent ones are null, dropped ones are not read, narrower types
are widened, hidden rows are left out, at every depth of nesting. Row groups are streamed, and only asked columns read.

Refused by name: encrypted files, and files whose dates or times are of the Julian calendar and old enough for it to
make a difference.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from delta_log.arrow.leaves import leaves
from delta_log.data.read_plan import BATCH_ROWS, Leaves, ReadStep, plan_reads
from delta_log.data.row_bitmap import RowBitmap
from delta_log.errors import CorruptLog, StorageError, UnsupportedFeature
from delta_log.log.data_path import is_external
from delta_log.parquet.int96 import Int96Check
from delta_log.storage.storage import Storage
from delta_log.table_config.schema import (
    PARQUET_FIELD_ID,
    ArrayType,
    DataType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
    arrow_field,
    to_arrow_type,
)

_PAGE_BYTES = 1 << 20

_LEGACY_DATE_KEY, _LEGACY_INT96_KEY = b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96"
_SPARK_VERSION_KEY = b"org.apache.spark.version"
_SPARK_SCHEMA_KEY = b"org.apache.spark.sql.parquet.row.metadata"
#: Days and microseconds since 1970 before which the two calendars, or Spark's time zone rules, differ.
_FIRST_GREGORIAN_DAY = -141_427
_FIRST_COMMON_MICROSECOND = -2_208_988_800_000_000


@dataclass(frozen=True, slots=True)
class Rows:
    """Some rows of a data file: one array per asked column. A file may have rows and no column, hence ``count``.

    ``positions`` are the physical indices in the file, hidden rows counted.
    """

    count: int
    arrays: tuple[pa.Array, ...]
    positions: pa.Array | None = None


@dataclass(frozen=True, slots=True)
class _Found:
    """Where a column is in a file.

    :param field: of the file; ``None``: it is not there.
    :param target: what its values are to become; ``as_it_is``: they are that already.
    """

    column: StructField
    field: pa.Field | None
    target: pa.DataType
    as_it_is: bool


@dataclass(frozen=True, slots=True)
class _Asked:
    """What of a file is to be read.

    :param names: of those columns that are there; :param leaves: what they consist of.
    """

    found: tuple[_Found, ...]
    names: list[str]
    leaves: Leaves


class ColumnMemory:
    """Where a table's columns are in its files, remembered from one file to the next: most have one schema.

    For one and the same columns, asked in one and the same way.
    """

    def __init__(self) -> None:
        self._known: tuple[pa.Schema, _Asked] | None = None

    def recall(self, schema: pa.Schema, find: Callable[[], _Asked]) -> _Asked:
        if self._known is None or not self._known[0].equals(schema, check_metadata=True):
            self._known = schema, find()
        return self._known[1]


class DataFile:
    """One open data file.

    :param key: relative to the table's root.
    :param mapping_mode: ``none``, ``name`` or ``id``, the table's ``delta.columnMapping.mode``.
    :raises CorruptLog: the file is missing or is not Parquet.
    """

    def __init__(self, storage: Storage, key: str, mapping_mode: str = "none") -> None:
        self.key = key
        if is_external(key):
            raise UnsupportedFeature(("data files outside of the table's directory",), "read", key)
        try:
            source = storage.open_read(key)
        except FileNotFoundError as error:
            raise CorruptLog(key, "the log names this data file, but it is not there") from error
        with _file_errors(key, storage):
            # From a disk, pages are read as they are needed; over a network in a few large requests, unless all is here.
            self._parquet = pq.ParquetFile(
                source,
                coerce_int96_timestamp_unit="us",
                pre_buffer=storage.concurrency > 1 and not isinstance(source, pa.BufferReader),
                buffer_size=_PAGE_BYTES,
            )
            self._arrow_schema = self._parquet.schema_arrow
        # What is neither a local file nor all here is read in large requests alone.
        self._read_at = source.read_at if isinstance(source, pa.NativeFile) else None
        if len(set(self._arrow_schema.names)) < len(self._arrow_schema.names):
            raise CorruptLog(key, "two of its columns have one name")
        self._by_id = mapping_mode == "id"
        self._storage = storage

    @property
    def num_rows(self) -> int:
        """Physical rows, hidden ones included."""
        return int(self._parquet.metadata.num_rows)

    @property
    def column_names(self) -> tuple[str, ...]:
        return tuple(self._arrow_schema.names)

    @property
    def arrow_schema(self) -> pa.Schema:
        """What the file itself holds, names and types as they stand there."""
        return self._arrow_schema

    @property
    def bloom_filters(self) -> set[str]:
        """Paths of the leaves that have a Bloom filter, by the first row group."""
        metadata = self._parquet.metadata
        columns = range(metadata.num_columns) if metadata.num_row_groups else ()
        chunks = [metadata.row_group(0).column(number) for number in columns]
        return {chunk.path_in_schema for chunk in chunks if chunk.bloom_filter_offset is not None}

    @property
    def num_row_groups(self) -> int:
        return int(self._parquet.num_row_groups)

    def read(
        self,
        columns: Sequence[StructField],
        hidden: RowBitmap | None = None,
        *,
        physical: bool = False,
        positions: bool = False,
        batch_rows: int = BATCH_ROWS,
        memory: ColumnMemory | None = None,
    ) -> Iterator[Rows]:
        """The live rows, streamed in file order, in batches of bearable size: see :mod:`delta_log.data.read_plan`.

        :param columns: what to read; nested members come with physical names where ``physical``.
        :param hidden: the file's deletion vector.
        :param positions: say where each row was.
        :param batch_rows: at most, where rows are narrow.
        :param memory: of files that were read before in the same way.
        """
        if hidden is not None and hidden.max is not None and hidden.max >= self.num_rows:
            raise CorruptLog(
                self.key, f"its deletion vector hides row {hidden.max}, but it has {self.num_rows} rows"
            )
        asked = (memory or ColumnMemory()).recall(self._arrow_schema, lambda: self._asked(columns, physical))
        found = asked.found
        if not asked.names:
            where = _live_positions(0, self.num_rows, hidden) if positions else None
            count = self.num_rows - (len(hidden) if hidden is not None else 0)
            yield Rows(count, tuple(pa.nulls(count, there.target) for there in found), where)
            return
        position = 0
        with _file_errors(self.key, self._storage):
            calendar = _LegacyCalendar.of(self._parquet)
            int96 = Int96Check(self.key, Int96Check.paths_in(self._parquet), self._in_seconds)
        batches = self._batches(asked, batch_rows)
        while True:
            with _file_errors(self.key, self._storage):
                batch = next(batches, None)
                if batch is None:
                    break
                start, position = position, position + batch.num_rows
                if hidden is not None:
                    if hidden.count(start, position):
                        batch = batch.filter(pa.array(hidden.keep_mask(start, batch.num_rows)))
                if calendar is not None:
                    calendar.check(batch, self.key)
                if int96.paths:
                    int96.check(batch)
                arrays = tuple(self._array(batch, there, physical) for there in found)
            where = _live_positions(start, position, hidden) if positions else None
            yield Rows(batch.num_rows, arrays, where)
        if position != self.num_rows:
            raise CorruptLog(self.key, f"its footer says {self.num_rows} rows, but {position} came out")

    def _in_seconds(self) -> pq.ParquetFile:
        source = self._storage.open_read(self.key)
        return pq.ParquetFile(source, coerce_int96_timestamp_unit="s", buffer_size=_PAGE_BYTES)

    def _batches(self, asked: _Asked, most_rows: int) -> Iterator[pa.RecordBatch]:
        for step in plan_reads(self._parquet.metadata, asked.leaves, most_rows, self._read_at):
            yield from self._batches_of(step, asked.names)

    def _batches_of(self, step: ReadStep, names: list[str]) -> Iterator[pa.RecordBatch]:
        done, rows = 0, step.first_rows
        while True:
            try:
                for batch in self._rest_of(step, names, done, rows):
                    done += batch.num_rows
                    if done < step.num_rows:
                        rows = step.rows_after(batch)
                        self._parquet.reader.set_batch_size(rows)
                    yield batch
            except pa.ArrowNotImplementedError:
                # Of the texts in one batch of a list, struct or map, Arrow decodes no more than 2 GiB.
                if rows == 1:
                    raise
                rows = max(1, rows // 8)
            else:
                return

    def _rest_of(self, step: ReadStep, names: list[str], done: int, rows: int) -> Iterator[pa.RecordBatch]:
        """What comes behind so many rows; Arrow reads from the beginning."""
        # A hand-over to the only thread of Arrow's pool costs a sixth of the decoding.
        batches = self._parquet.iter_batches(
            rows, row_groups=list(step.row_groups), columns=names, use_threads=pa.cpu_count() > 1
        )
        for batch in batches:
            if done < batch.num_rows:
                yield batch.slice(done) if done else batch
            done = max(0, done - batch.num_rows)

    def _asked(self, columns: Sequence[StructField], physical: bool) -> _Asked:
        found = tuple(self._found(column, physical) for column in columns)
        names = [there.field.name for there in found if there.field is not None]
        return _Asked(found, names, Leaves.of(self._parquet.schema, set(names)))

    def _found(self, column: StructField, physical: bool) -> _Found:
        field = self._find(self._arrow_schema, column)
        target = arrow_field(column, physical=physical).type
        # Members that are found by id may bear each other's names.
        by_id = self._by_id and pa.types.is_nested(target)
        as_it_is = field is not None and field.type.equals(target, check_metadata=by_id)
        return _Found(column, field, target, as_it_is)

    def _array(self, batch: pa.RecordBatch, there: _Found, physical: bool) -> pa.Array:
        if there.field is None:
            return pa.nulls(batch.num_rows, there.target)
        array = batch.column(batch.schema.get_field_index(there.field.name))
        return array if there.as_it_is else self._convert(array, there.column.type, physical)

    def _find(self, there: Any, column: StructField) -> pa.Field | None:
        """The field of a file's schema or struct type that holds a column."""
        fields = list(there)
        # A file, or a struct of one, without any ids was written before there were any.
        if self._by_id and column.field_id is not None and any(_id_of(f) is not None for f in fields):
            return next((f for f in fields if _id_of(f) == column.field_id), None)
        name = column.physical_name
        exact = next((f for f in fields if f.name == name), None)
        # Spark resolves columns without regard to case, and some writers rely on it.
        return exact or next((f for f in fields if f.name.lower() == name.lower()), None)

    def _convert(self, array: pa.Array, kind: DataType, physical: bool) -> pa.Array:
        """An array of the file as an array of the table's type."""
        if pa.types.is_dictionary(array.type):
            array = array.dictionary_decode()
        if pa.types.is_null(array.type):
            return pa.nulls(len(array), to_arrow_type(kind, physical=physical))
        if not _fits(array.type, kind):
            raise CorruptLog(self.key, f"it holds {array.type} where the schema says {kind}")
        if isinstance(kind, PrimitiveType):
            if kind.name == "variant" and array.type.get_field_index("typed_value") >= 0:
                raise UnsupportedFeature(("shredded variants",), "read", self.key)
            return convert_primitive(array, to_arrow_type(kind))
        if isinstance(kind, StructType):
            members = []
            for member in kind:
                found = self._find(array.type, member)
                if found is None:
                    members.append(pa.nulls(len(array), arrow_field(member, physical=physical).type))
                else:
                    child = array.field(array.type.get_field_index(found.name))
                    members.append(self._convert(child, member.type, physical))
            fields = [arrow_field(member, physical=physical) for member in kind]
            if not fields:
                return pa.nulls(len(array), pa.struct([]))
            return pa.StructArray.from_arrays(
                members, fields=fields, mask=pc.is_null(array) if array.null_count else None
            )
        if isinstance(kind, MapType):
            keys = self._convert(array.keys, kind.key, physical)
            items = self._convert(array.items, kind.value, physical)
            target = pa.map_(
                pa.field("key", keys.type, False), pa.field("value", items.type, kind.value_contains_null)
            )
            entries = pa.StructArray.from_arrays([keys, items], fields=[target.key_field, target.item_field])
            return _same_lists(array, target, entries)
        assert isinstance(kind, ArrayType)
        if not pa.types.is_list(array.type):
            array = array.cast(pa.list_(array.type.value_field))
        values = self._convert(array.values, kind.element, physical)
        return _same_lists(array, pa.list_(pa.field("element", values.type, kind.contains_null)), values)


def _live_positions(start: int, stop: int, hidden: RowBitmap | None) -> pa.Array:
    everything = np.arange(start, stop, dtype=np.int64)
    return pa.array(everything if hidden is None else everything[hidden.keep_mask(start, stop - start)])


def convert_primitive(array: pa.Array, target: pa.DataType) -> pa.Array:
    """Widen, or change the unit of, a primitive array; timestamps are floored to microseconds."""
    if array.type == target:
        return array
    if pa.types.is_timestamp(array.type) and pa.types.is_timestamp(target):
        if array.type.unit == "ns":
            array = pc.floor_temporal(array, unit="microsecond")
        return array.cast(pa.timestamp("us", tz=array.type.tz)).cast(target)
    return array.cast(target)


def _fits(there: pa.DataType, kind: DataType) -> bool:
    """Whether an array of a file is of the sort that a type needs; the rest is a matter of widening."""
    if isinstance(kind, MapType):
        return bool(pa.types.is_map(there))
    if isinstance(kind, StructType) or kind == PrimitiveType("variant"):
        return bool(pa.types.is_struct(there))
    if isinstance(kind, ArrayType):
        lists = (
            pa.types.is_list,
            pa.types.is_large_list,
            pa.types.is_fixed_size_list,
            pa.types.is_list_view,
            pa.types.is_large_list_view,
        )
        return any(is_list(there) for is_list in lists)
    return not pa.types.is_nested(there)


def _same_lists(array: pa.Array, target: pa.DataType, values: pa.Array) -> pa.Array:
    """The lists (or maps) of an array over other values."""
    validity, offsets = array.buffers()[:2]
    return pa.Array.from_buffers(
        target,
        len(array),
        [validity, offsets],
        null_count=array.null_count,
        offset=array.offset,
        children=[values],
    )


def _id_of(field: pa.Field) -> int | None:
    value = (field.metadata or {}).get(PARQUET_FIELD_ID)
    return None if value is None else int(value)


@dataclass(frozen=True, slots=True)
class _LegacyCalendar:
    """Which columns of a file may hold values of the Julian calendar, by the marks that Spark leaves."""

    dates: bool
    timestamps: bool

    @classmethod
    def of(cls, parquet: pq.ParquetFile) -> _LegacyCalendar | None:
        keys = parquet.metadata.metadata or {}
        version = _spark_version(parquet)
        dates = _LEGACY_DATE_KEY in keys or version < (3, 0)
        int96 = _LEGACY_INT96_KEY in keys or version < (3, 1)
        if not (dates or int96):
            return None
        schema = parquet.schema
        stored = {schema.column(index).physical_type for index in range(len(schema))}
        return cls(dates, int96 if "INT96" in stored else dates)

    def check(self, batch: pa.RecordBatch, key: str) -> None:
        for leaf in leaves(batch.columns):
            if pa.types.is_date(leaf.type) and self.dates:
                oldest, limit = pc.min(leaf.cast(pa.int32())).as_py(), _FIRST_GREGORIAN_DAY
            elif pa.types.is_timestamp(leaf.type) and self.timestamps:
                oldest = pc.min(
                    leaf.cast(pa.timestamp("us", tz=leaf.type.tz), safe=False).cast(pa.int64())
                ).as_py()
                limit = _FIRST_COMMON_MICROSECOND
            else:
                continue
            if oldest is not None and oldest < limit:
                raise UnsupportedFeature(
                    ("dates of the Julian calendar",),
                    "read",
                    f"{key} was written in Spark's legacy calendar mode",
                )


def _spark_version(parquet: pq.ParquetFile) -> tuple[int, ...]:
    """Major and minor number of the Spark that wrote a file; of a writer that is not Spark, larger than any."""
    keys = parquet.metadata.metadata or {}
    stamp = keys.get(_SPARK_VERSION_KEY)
    if stamp is not None:
        return tuple(int(part) for part in stamp.split(b".")[:2] if part.isdigit() and len(part) < 5)
    # Before 2.4.6, Spark left its schema and no version. Others that leave the schema, to please Spark, are not of Java.
    by_java = (parquet.metadata.created_by or "").startswith("parquet-mr")
    return (2, 4) if by_java and _SPARK_SCHEMA_KEY in keys else (9, 9)


class _file_errors:  # noqa: N801 - used as a with-statement, like contextlib's own
    """Turns what pyarrow says of a broken file into :class:`CorruptLog`."""

    def __init__(self, key: str, storage: Storage) -> None:
        self._key, self._storage = key, storage

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None or isinstance(error, StorageError):
            return
        if isinstance(error, (pa.ArrowException, OSError, EOFError, UnicodeDecodeError)):
            head = self._storage.read(self._key, 0, 4)
            if head == b"PARE" or "encrypt" in str(error).lower():
                raise UnsupportedFeature(("Parquet encryption",), "read", self._key) from error
            raise CorruptLog(self._key, f"this data file cannot be read ({error})") from error
