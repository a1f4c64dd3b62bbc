"""Reads one data file as the table's *current* schema sees it.

Protocol sections "Column Mapping", "Type Widening" and "Deletion Vectors". The reader streams row groups, reads only the asked
columns, leaves out deleted rows, and converts columns to the schema's types (:mod:`delta_log.data.conversion`).

It refuses encrypted files, INT96 timestamps that Arrow misreads (:mod:`delta_log.arrow.int96`), and old dates of the Julian
calendar (:mod:`delta_log.data.legacy_calendar`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import Struct

from delta_log.arrow.int96 import Int96Check
from delta_log.data.conversion import Conversion, holds_variant, nulls
from delta_log.data.legacy_calendar import LegacyCalendar
from delta_log.data.read_plan import BATCH_ROWS, Leaves, ReadStep, is_within, plan_reads
from delta_log.data.row_bitmap import RowBitmap
from delta_log.errors import CorruptLog, StorageError, UnsupportedFeature
from delta_log.log.data_path import is_external
from delta_log.storage.storage import Storage, filled_from
from delta_log.table_config.schema import StructField, arrow_field
from parquet_parts.chunk_template import DELTAS
from parquet_parts.footer import FileEnd, Footer, RowGroup, read_end
from parquet_parts.thrift import CorruptThrift

_PAGE_BYTES = 1 << 20
#: A file of at most this size is read at once, if it was closed until its turn came: then most of it is wanted.
_SMALL_BYTES = 4 << 20
#: About the bytes of a number in Arrow, or of a text's offset and validity.
_VALUE_BYTES = 8


class Rows(Struct, frozen=True):
    """Some rows of a data file, as one array for each asked column.

    :param count: the number of rows, which no array tells if no column was asked.
    :param positions: physical indices in the file; deleted rows count.
    """

    count: int
    arrays: tuple[pa.Array, ...]
    positions: pa.Array | None = None


class _Found(Struct, frozen=True):
    """The place of a column in a file.

    :param field: the file's field; ``None`` if it has none.
    :param target: the type that the reader returns.
    :param as_it_is: the file's values have this type.
    """

    column: StructField
    field: pa.Field | None
    target: pa.DataType
    as_it_is: bool


class _Asked(Struct, frozen=True):
    """What to read of a file.

    :param names: the asked columns that the file has.
    :param leaves: the Parquet columns that these consist of.
    """

    found: tuple[_Found, ...]
    names: list[str]
    leaves: Leaves


class ColumnMemory:
    """Remembers the places of a table's columns from one file to the next, since most files have one schema.

    One instance serves reads of one list of columns in one way. Threads may share it.
    """

    def __init__(self) -> None:
        self._known: tuple[pa.Schema, _Asked] | None = None

    def recall(self, schema: pa.Schema, find: Callable[[], _Asked]) -> _Asked:
        # Another thread may put what it has found here at any time.
        known = self._known
        if known is None or not known[0].equals(schema, check_metadata=True):
            known = self._known = schema, find()
        return known[1]


class FileInMemory(Struct, frozen=True):
    """A data file whose bytes are in memory.

    :param end: end of the file with a footer in the place of the file's own, if there is another one.
    :param row_groups: row groups as that footer describes them but for the places of pages, so that only
        :meth:`DataFile.read_at_once` may follow; ``None``: the footer is read.
    """

    content: pa.Buffer
    end: bytes | None = None
    row_groups: list[RowGroup] | None = None


class DataFile:
    """One open data file.

    :param key: key relative to the table's root.
    :param mapping_mode: ``none``, ``name`` or ``id``, the table's ``delta.columnMapping.mode``.
    :param in_memory: the bytes of the file, if these are not to be read from storage. With ``end``, they are forgotten when the file
        is closed.
    :param end: the end of the file, which the caller has read. The file is opened when its rows are asked for.
    :raises CorruptLog: the file is missing or is not Parquet. With ``end``, this is told when the file is opened.
    """

    def __init__(
        self,
        storage: Storage,
        key: str,
        mapping_mode: str = "none",
        in_memory: FileInMemory | None = None,
        end: FileEnd | None = None,
    ) -> None:
        self.key, self.end = key, end
        if is_external(key):
            raise UnsupportedFeature(("data files outside of the table's directory",), "read", key)
        self._storage = storage
        self._opened: pq.ParquetFile | None = None
        #: The file's columns that come as dictionary arrays.
        self._dictionaries: list[str] = []
        self._source: Any = None
        self._content: pa.Buffer | None = None
        self._end_bytes: bytes | None = None
        self._known_row_groups: list[RowGroup] | None = None
        if in_memory is not None:
            self._content, self._end_bytes = in_memory.content, in_memory.end
            self._known_row_groups = in_memory.row_groups
        self._known_metadata: Any = None
        self._known_schema: pa.Schema | None = None
        self._conversion = Conversion(key, by_id=mapping_mode == "id")
        if end is None:
            self._opened = self._open()

    @property
    def _parquet(self) -> pq.ParquetFile:
        """The file, which is opened if it is closed."""
        if self._opened is None:
            self._opened = self._open()
        return self._opened

    @property
    def _metadata(self) -> Any:
        if self._known_metadata is None:
            self._opened = self._open()
        return self._known_metadata

    @property
    def arrow_schema(self) -> pa.Schema:
        """The file's own names and types."""
        if self._known_schema is None:
            self._opened = self._open()
        return self._known_schema

    def _open(self) -> pq.ParquetFile:
        source = self._source_in_storage() if self._content is None else pa.BufferReader(self._content)
        with _file_errors(self.key, self._storage):
            is_to_be_read = self._known_metadata is not None or self.end is not None
            if is_to_be_read and isinstance(source, pa.OSFile) and source.size() <= _SMALL_BYTES:
                with source:
                    source = pa.BufferReader(source.read_buffer())
            # Only a local file and a file in memory serve small reads at no cost.
            self._read_at = source.read_at if isinstance(source, pa.NativeFile) else None
            self._source = source
            if self._known_metadata is None and self.end is None:
                self._end_bytes = self._end_bytes or read_end(source)
                self._known_metadata = pq.read_metadata(pa.BufferReader(self._end_bytes))
            parquet = self._parquet_of(source)
            if self._known_schema is None:
                self._learn(parquet)
            return parquet

    def _learn(self, parquet: pq.ParquetFile) -> None:
        """Keep what the file says of itself.

        :raises CorruptLog: it cannot be read so, or it is not the file whose end was read.
        """
        metadata, schema = parquet.metadata, parquet.schema_arrow
        if len(set(schema.names)) < len(schema.names):
            raise CorruptLog(self.key, "two of its columns have one name")
        if self.end is not None:
            now = [metadata.row_group(number).num_rows for number in range(metadata.num_row_groups)]
            if now != [group.num_rows for group in self.end.footer.row_groups]:
                raise CorruptLog(self.key, "another file has taken its place since its end was read")
        self._known_metadata, self._known_schema = metadata, schema

    def _source_in_storage(self) -> Any:
        try:
            return self._storage.open_read(self.key)
        except FileNotFoundError as error:
            raise _is_missing(self.key) from error

    def _parquet_of(self, source: Any) -> pq.ParquetFile:
        # Pages are read one by one from a disk, and in a few large requests over a network. A file in memory needs neither.
        in_memory = isinstance(source, pa.BufferReader)
        return pq.ParquetFile(
            source,
            metadata=self._known_metadata,
            read_dictionary=self._dictionaries or None,
            coerce_int96_timestamp_unit="us",
            # Annotations such as UUID and JSON change no value; the table's schema says what a column is.
            arrow_extensions_enabled=False,
            pre_buffer=self._storage.concurrency > 1 and not in_memory,
            buffer_size=0 if in_memory else _PAGE_BYTES,
        )

    def copy_to(self, target: memoryview) -> bool:
        """Copy all bytes of the file, and return whether it has the length of the target.

        :raises CorruptLog: the file is gone, or cannot be read.
        """
        with _file_errors(self.key, self._storage):
            if self._opened is not None:
                return filled_from(self._source, target)
            if self._content is not None and self.end is not None:
                return filled_from(pa.BufferReader(self._content), target)
            try:
                return self._storage.read_whole(self.key, target)
            except FileNotFoundError as error:
                raise _is_missing(self.key) from error

    def close(self) -> None:
        """Close the file until :meth:`read` opens it again. A file that waits for its turn then needs no descriptor."""
        if self._opened is not None:
            self._opened.close(force=True)
            self._opened = self._source = self._read_at = None
        if self.end is not None:
            self._content = None

    @property
    def num_rows(self) -> int:
        """Physical rows, hidden ones included."""
        return int(self._metadata.num_rows) if self.end is None else self.end.footer.num_rows

    @property
    def column_names(self) -> tuple[str, ...]:
        return tuple(self.arrow_schema.names)

    @property
    def bloom_filters(self) -> set[str]:
        """Paths of the leaves that have a Bloom filter in the first row group."""
        groups = self._row_groups() if self.end is None else self.end.footer.row_groups
        chunks = groups[0].chunks if groups else ()
        return {chunk.dotted_path for chunk in chunks if chunk.has_bloom_filter}

    @property
    def num_row_groups(self) -> int:
        return int(self._metadata.num_row_groups) if self.end is None else len(self.end.footer.row_groups)

    @property
    def row_group_bytes(self) -> list[int]:
        """About the decoded bytes of each row group: its pages without compression, or one word for each value."""
        if self.end is not None:
            sizes = [
                (group.uncompressed_bytes, group.num_rows * len(group.chunks))
                for group in self.end.footer.row_groups
            ]
        else:
            metadata = self._metadata
            groups = (metadata.row_group(number) for number in range(metadata.num_row_groups))
            sizes = [(group.total_byte_size, group.num_rows * group.num_columns) for group in groups]
        return [max(num_bytes, _VALUE_BYTES * num_values) for num_bytes, num_values in sizes]

    def _row_groups(self) -> list[RowGroup]:
        """Return the row groups as the footer describes them.

        :raises CorruptLog: the footer is broken.
        """
        if self._known_row_groups is None:
            metadata = self._metadata
            with _file_errors(self.key, self._storage):
                if self.end is not None:
                    footer = self.end.footer
                else:
                    assert self._end_bytes is not None  # it is read when the file is opened
                    footer = Footer.from_end(self._end_bytes)
                self._known_row_groups = footer.row_groups_of(metadata.num_columns)
        return self._known_row_groups

    def read(  # noqa: PLR0913 - ways to read, by keyword
        self,
        columns: Sequence[StructField],
        hidden: RowBitmap | None = None,
        *,
        physical: bool = False,
        positions: bool = False,
        batch_rows: int = BATCH_ROWS,
        memory: ColumnMemory | None = None,
        row_groups: range | None = None,
        on_all_processors: bool = True,
        dictionaries: Collection[str] = (),
    ) -> Iterator[Rows]:
        """Stream the live rows in file order, in batches of bounded size (:mod:`delta_log.data.read_plan`).

        :param columns: the columns to read.
        :param hidden: the file's deletion vector.
        :param physical: ``True``: name nested members by their physical names.
        :param positions: ``True``: return the position of each row.
        :param batch_rows: the most rows of a batch.
        :param memory: memory that reads of other files of the table in the same way fill.
        :param row_groups: consecutive row groups to read; by default all. Positions still count from the file's first row.
        :param on_all_processors: ``True``: decode columns side by side. ``False`` is for a caller that reads several files at once.
        :param dictionaries: physical names of texts to return as dictionary arrays, where the file needs no conversion.
        """
        if hidden is not None and hidden.max is not None and hidden.max >= self.num_rows:
            raise CorruptLog(
                self.key, f"its deletion vector hides row {hidden.max}, but it has {self.num_rows} rows"
            )
        memory = memory or ColumnMemory()
        asked = memory.recall(self.arrow_schema, lambda: self._asked(columns, physical))
        found = asked.found
        groups = range(self.num_row_groups) if row_groups is None else row_groups
        position, end = self.first_row(groups.start), self.first_row(groups.stop)
        if not asked.names:
            where = _live_positions(position, end, hidden) if positions else None
            count = end - position - (hidden.count(position, end) if hidden is not None else 0)
            yield Rows(count, tuple(nulls(count, there.target) for there in found), where)
            return
        self._row_groups()
        self._read_as_dictionaries([there for there in found if there.column.physical_name in dictionaries])
        with _file_errors(self.key, self._storage):
            calendar = LegacyCalendar.of(self._parquet)
            int96 = Int96Check(self.key, Int96Check.paths_in(self._parquet), self._in_seconds)
        threads = on_all_processors and pa.cpu_count() > 1
        batches = self._batches(asked, batch_rows, groups, threads)
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
        if position != end:
            raise CorruptLog(self.key, f"its footer says {end} rows, but {position} came out")

    def read_at_once(
        self, columns: Sequence[StructField], *, memory: ColumnMemory, dictionaries: Collection[str]
    ) -> pa.Table | None:
        """Return all rows, or ``None`` if the file needs more than decoding: :meth:`read` converts and checks values.

        The columns have physical names. Two columns may be divided into chunks at different rows.

        :param columns: the columns to read.
        :param memory: memory that reads of other files of the table in the same way fill.
        :param dictionaries: physical names of texts to return as dictionary arrays.
        :raises CorruptLog: the file is broken.
        """
        asked = memory.recall(self.arrow_schema, lambda: self._asked(columns, physical=True))
        if not asked.names or not all(there.as_it_is for there in asked.found):
            return None
        self._row_groups()
        self._read_as_dictionaries(
            [there for there in asked.found if there.column.physical_name in dictionaries]
        )
        with _file_errors(self.key, self._storage):
            if LegacyCalendar.of(self._parquet) is not None or Int96Check.paths_in(self._parquet):
                return None
            decoded = self._decoded(asked)
        if {len(column) for column in decoded} != {self.num_rows}:
            raise CorruptLog(self.key, f"its footer says {self.num_rows} rows, but other numbers came out")
        return pa.Table.from_arrays(decoded, names=[there.column.physical_name for there in asked.found])

    def _decoded(self, asked: _Asked) -> list[pa.ChunkedArray]:
        """Decode columns. Those with lists are decoded row group by row group, to see where each one's rows end.

        Where the items are simple values, their number tells the same, and takes less time.

        :raises CorruptLog: a column has other rows in a row group than the footer says.
        """
        parquet, groups = self._parquet, list(range(self.num_row_groups))
        types = {name: self.arrow_schema.field(name).type for name in asked.names}
        leaves = {name: self._leaves_within(name) for name, kind in types.items() if _is_list_of_values(kind)}
        simple = {name: numbers[0] for name, numbers in leaves.items() if len(numbers) == 1}
        deep = [name for name, kind in types.items() if name not in simple and _has_list(kind)]
        others = [name for name in asked.names if name not in set(deep)]
        found = {}
        if others:
            flat = parquet.read_row_groups(groups, others, use_threads=False)
            found = dict(zip(flat.column_names, flat.columns, strict=True))
        ends = self._group_ends
        for name, leaf in simple.items():
            fits = all(start <= end <= len(found[name]) for start, end in pairwise((0, *ends)))
            if not fits or _values_of_lists(found[name], ends) != self._values_of(leaf):
                raise CorruptLog(
                    self.key, f"row groups have other numbers of rows in {name} than the footer says"
                )
        if deep:
            nested = [parquet.read_row_group(number, deep, use_threads=False) for number in groups]
            for number, rows in zip(groups, nested, strict=True):
                if rows.num_rows != self._metadata.row_group(number).num_rows:
                    raise CorruptLog(self.key, f"row group {number} has {rows.num_rows} rows in a column")
            together = pa.concat_tables(nested)
            found |= dict(zip(together.column_names, together.columns, strict=True))
        return [found[there.field.name] for there in asked.found if there.field is not None]

    @property
    def _group_ends(self) -> list[int]:
        """The numbers of rows up to the end of each row group."""
        metadata = self._metadata
        return list(accumulate(metadata.row_group(number).num_rows for number in range(self.num_row_groups)))

    def _values_of(self, leaf: int) -> list[int]:
        """Return the number of values that the footer gives a leaf in each row group."""
        return [group.chunks[leaf].num_values for group in self._row_groups()]

    def _leaves_within(self, name: str) -> list[int]:
        """Return the numbers of the leaves that may belong to a column: a name may contain dots."""
        return [number for path, number in self._leaf_numbers.items() if is_within(path, {name})]

    def _read_as_dictionaries(self, columns: Sequence[_Found]) -> None:
        fields = [there.field for there in columns if there.field is not None and there.as_it_is]
        # A name with a dot may be the path of another column's member.
        texts = [field.name for field in fields if pa.types.is_string(field.type) and "." not in field.name]
        names = [name for name in texts if not self._has_deltas(name)] if texts else []
        if names != self._dictionaries:
            self._dictionaries = names
            if self._opened is not None:
                self._opened = self._parquet_of(self._source)

    def _has_deltas(self, name: str) -> bool:
        """Tell whether texts are encoded in a way that Arrow does not decode to dictionaries.

        :param name: a column without members.
        """
        if name not in self._leaf_numbers:
            return True
        leaf = self._leaf_numbers[name]
        return any(not DELTAS.isdisjoint(group.chunks[leaf].form.encodings) for group in self._row_groups())

    @cached_property
    def _leaf_numbers(self) -> dict[str, int]:
        """The numbers of the leaves by their paths; none of a file without row groups."""
        groups = self._row_groups()
        chunks = groups[0].chunks if groups else ()
        return {chunk.dotted_path: number for number, chunk in enumerate(chunks)}

    def _in_seconds(self) -> pq.ParquetFile:
        source = self._storage.open_read(self.key)
        return pq.ParquetFile(source, coerce_int96_timestamp_unit="s", buffer_size=_PAGE_BYTES)

    def first_row(self, group: int) -> int:
        """Return the physical index of a row group's first row; for the number of row groups, the number of rows."""
        metadata = self._metadata
        if group == metadata.num_row_groups:
            return int(metadata.num_rows)
        return sum(metadata.row_group(number).num_rows for number in range(group))

    def _batches(
        self, asked: _Asked, most_rows: int, groups: range, threads: bool
    ) -> Iterator[pa.RecordBatch]:
        row_groups = self._row_groups()
        for step in plan_reads(row_groups, asked.leaves, most_rows, self._read_at, groups):
            yield from self._batches_of(step, asked.names, threads)

    def _batches_of(self, step: ReadStep, names: list[str], threads: bool) -> Iterator[pa.RecordBatch]:
        done, rows = 0, step.first_rows
        while True:
            try:
                for batch in self._rest_of(step, names, threads, done, rows):
                    done += batch.num_rows
                    if done < step.num_rows:
                        rows = step.rows_after(batch)
                        self._parquet.reader.set_batch_size(rows)
                    yield batch
            except pa.ArrowNotImplementedError:
                # Arrow decodes at most 2 GiB of texts in one batch of a list, struct or map.
                if rows == 1:
                    raise
                rows = max(1, rows // 8)
            else:
                return

    def _rest_of(
        self, step: ReadStep, names: list[str], threads: bool, done: int, rows: int
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a step after the first ``done`` rows, which Arrow decodes again."""
        # Handing work to a pool costs a sixth of the decoding, which pays only where processors idle.
        batches = self._parquet.iter_batches(
            rows, row_groups=list(step.row_groups), columns=names, use_threads=threads
        )
        for batch in batches:
            if done < batch.num_rows:
                yield batch.slice(done) if done else batch
            done = max(0, done - batch.num_rows)

    def _asked(self, columns: Sequence[StructField], physical: bool) -> _Asked:
        fields = self._conversion.find(self.arrow_schema, columns)
        found = tuple(
            self._found(column, field, physical) for column, field in zip(columns, fields, strict=True)
        )
        names = [there.field.name for there in found if there.field is not None]
        return _Asked(found, names, Leaves.of(self._parquet.schema, set(names)))

    def _found(self, column: StructField, field: pa.Field | None, physical: bool) -> _Found:
        target = arrow_field(column, physical=physical).type
        # Members that are found by id may have each other's names.
        by_id = self._conversion.by_id and pa.types.is_nested(target)
        as_it_is = field is not None and field.type.equals(target, check_metadata=by_id)
        # Arrow reads the parts of a variant as null where the variant is.
        as_it_is = as_it_is and not holds_variant(target)
        return _Found(column, field, target, as_it_is)

    def _array(self, batch: pa.RecordBatch, there: _Found, physical: bool) -> pa.Array:
        if there.field is None:
            return nulls(batch.num_rows, there.target)
        array = batch.column(batch.schema.get_field_index(there.field.name))
        return array if there.as_it_is else self._conversion.convert(array, there.column.type, physical)


def _has_list(kind: pa.DataType) -> bool:
    """Tell whether a type is an array or a map, or has one within it."""
    if pa.types.is_struct(kind):
        return any(_has_list(member.type) for member in kind)
    return bool(pa.types.is_nested(kind))


def _is_list_of_values(kind: pa.DataType) -> bool:
    """Tell whether a type is an array of values that are not nested."""
    return bool(pa.types.is_list(kind)) and not pa.types.is_nested(kind.value_type)


def _values_of_lists(column: pa.ChunkedArray, ends: Sequence[int]) -> list[int]:
    """Count the values of lists as Parquet does: one that is null or empty counts as one value.

    :param ends: the numbers of rows up to the end of each row group, for which they are counted.
    """
    lengths = np.concatenate(
        [np.zeros(0, np.int32), *(np.diff(np.asarray(chunk.offsets)) for chunk in column.chunks)]
    )
    groups = [lengths[start:end] for start, end in pairwise((0, *ends))]
    return [int(group.sum(dtype=np.int64)) + int(np.count_nonzero(group == 0)) for group in groups]


def _live_positions(start: int, stop: int, hidden: RowBitmap | None) -> pa.Array:
    everything = np.arange(start, stop, dtype=np.int64)
    return pa.array(everything if hidden is None else everything[hidden.keep_mask(start, stop - start)])


def _is_missing(key: str) -> CorruptLog:
    return CorruptLog(key, "the log names this data file, but it is not there")


class _file_errors:  # noqa: N801 - used as a with-statement, like contextlib's own
    """Turns pyarrow's errors about a broken file into :class:`CorruptLog`."""

    def __init__(self, key: str, storage: Storage) -> None:
        self._key, self._storage = key, storage

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None or isinstance(error, StorageError):
            return
        if isinstance(error, (pa.ArrowException, OSError, EOFError, UnicodeDecodeError, CorruptThrift)):
            head = self._storage.read(self._key, 0, 4)
            if head == b"PARE" or "encrypt" in str(error).lower():
                raise UnsupportedFeature(("Parquet encryption",), "read", self._key) from error
            if isinstance(error, pa.ArrowNotImplementedError):
                raise UnsupportedFeature(
                    (f"a Parquet file that Arrow does not read ({error})",), "read", self._key
                ) from error
            raise CorruptLog(self._key, f"this data file cannot be read ({error})") from error
