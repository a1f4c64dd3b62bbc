"""Reads the live rows of sources, in the order of the sources and of the rows in them.

Where the table tracks rows (protocol section "Row Tracking"), two columns follow the table's own: the stable id of each row and
the version that wrote it. A file that was rewritten before holds them as columns. Otherwise they follow from the file's base id,
the row's physical position (deleted rows count) and the file's default version.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

import pyarrow as pa
from msgspec import Struct, field

from delta_log.data.data_file import ColumnMemory, DataFile
from delta_log.data.gathered_files import GatheredFiles
from delta_log.data.scan import RowTracking
from delta_log.errors import InvalidMetadata
from delta_log.storage.storage import Storage
from delta_log.table_config.partition_values import parse_column
from delta_log.table_config.properties import flag
from delta_log.table_config.row_tracking import ENABLED
from delta_log.table_config.schema import (
    PrimitiveType,
    StructField,
    StructType,
    arrow_schema,
    parse_schema,
    storable,
)
from delta_maintenance.rewrite.limits import FIRST_PAGES_BYTES, GATHERED_BYTES, GROWTH_MARGIN
from delta_maintenance.rewrite.read.sources import SMALL_BYTES, SourceSlice
from delta_maintenance.rewrite.task import RewriteTask


def stored_columns(task: RewriteTask) -> StructType:
    """The columns of the table that the task's files hold."""
    schema = parse_schema(task.schema_json, mapped=task.mapping_mode != "none")
    return storable(schema.without(task.partition_columns))


class _ReadGroup(Struct):
    """Slices of sources that are read at once.

    :param at_once_bytes: about the most bytes of their rows, and of the files that these are in.
    :param growth: how many bytes each byte of their pages may have, once it is decoded; ``None`` if that is unknown.
    :ivar page_bytes: size of their pages, if nothing were compressed.
    :ivar decoded_bytes: their decoded size, set after they were read.
    """

    at_once_bytes: int
    growth: float | None = None
    parts: list[SourceSlice] = field(default_factory=list)
    page_bytes: int = 0
    file_bytes: int = 0
    decoded_bytes: int = 0

    def has_room_for(self, part: SourceSlice) -> bool:
        decoded_bytes = (self.page_bytes + _page_bytes(part)) * (self.growth or 1)
        file_bytes = self.file_bytes + part.opened.source.size_bytes
        return max(decoded_bytes, file_bytes) <= self.at_once_bytes

    def add(self, part: SourceSlice) -> None:
        self.parts.append(part)
        self.page_bytes += _page_bytes(part)
        self.file_bytes += part.opened.source.size_bytes

    def next(self) -> _ReadGroup:
        """Return an empty group to follow this one, which was read."""
        return _ReadGroup(self.at_once_bytes, self.decoded_bytes / max(1, self.page_bytes))


def _page_bytes(part: SourceSlice) -> int:
    return sum(part.opened.data_file.row_group_bytes)


def _is_small(part: SourceSlice) -> bool:
    """Tell whether a slice may be read together with others: it is a small file, and all of its rows are wanted."""
    opened = part.opened
    return (
        part.row_groups is None
        and opened.decoded is not None
        and opened.hidden is None
        and opened.source.size_bytes <= SMALL_BYTES
    )


def partition_columns(task: RewriteTask) -> tuple[StructField, ...]:
    """The partition columns that the task's new files hold; a void is in no file."""
    if not task.materializes_partitions:
        return ()
    schema = parse_schema(task.schema_json, mapped=task.mapping_mode != "none")
    columns = (schema.field(name) for name in task.partition_columns)
    return tuple(column for column in columns if column.type != PrimitiveType("void"))


class LiveRows:
    """Reads slices of a task's sources. Several threads may do so at once, each other slices.

    The log tells the values of partition columns, whether or not a source holds such a column.

    :param stored: the columns of the table that all files hold.
    :ivar columns: the columns that new files hold, including the columns of row tracking.
    :ivar schema: schema of the batches, with physical names and field ids.
    :ivar num_row_ids: how many of the last columns keep row ids and versions.
    """

    def __init__(self, task: RewriteTask, storage: Storage, stored: StructType) -> None:
        self._storage, self._mapping_mode = storage, task.mapping_mode
        self._tracked, self._num_stored = row_tracking(task.configuration), len(stored.fields)
        tracked = self._tracked.columns if self._tracked is not None else ()
        partition = partition_columns(task)
        self._partition_values = [_partition_value(task, column) for column in partition]
        self._read = (*stored.fields, *tracked)
        self.columns = StructType((*stored.fields, *partition, *tracked))
        self.num_row_ids = len(tracked)
        self.schema: pa.Schema = arrow_schema(self.columns, physical=True)
        self._gathered = GatheredFiles(storage, task.mapping_mode)
        self._memory = ColumnMemory()

    def batches(
        self,
        slices: Iterable[SourceSlice],
        *,
        on_all_processors: bool = False,
        dictionaries: Callable[[], Collection[str]] = frozenset,
    ) -> Iterator[pa.RecordBatch]:
        """Yield the live rows of some slices, in batches of bounded size.

        :param dictionaries: function that returns the names of texts that may come as dictionary arrays; called before each slice.
        :param on_all_processors: ``True``: decode columns side by side, where no other slices are.
        """
        for part in slices:
            yield from self._batches_of(part, on_all_processors, dictionaries())

    def rows(
        self,
        slices: Iterable[SourceSlice],
        *,
        dictionaries: Callable[[], Collection[str]] = frozenset,
        at_once_bytes: int = GATHERED_BYTES,
    ) -> Iterator[pa.RecordBatch | pa.Table]:
        """Yield the same rows as :meth:`batches`; the rows of several small files may come as one table.

        In such a table, the chunks of one column need not match the chunks of another column.

        :param at_once_bytes: about the most bytes of the rows of a table, if it has more than one file.
        """
        for together in self._groups(slices, min(GATHERED_BYTES, at_once_bytes)):
            table = None
            if len(together.parts) > 1:
                files = [(part.opened.data_file, part.opened.source.size_bytes) for part in together.parts]
                table = self._gathered.read(
                    files,
                    self._read,
                    self._memory,
                    dictionaries(),
                    GROWTH_MARGIN * together.at_once_bytes,
                )
            if table is not None:
                for part in together.parts:
                    part.opened.data_file.close()
                together.decoded_bytes = table.get_total_buffer_size()
                yield self._with_partition_values(table)
            for part in together.parts if table is None else ():
                for batch in self._batches_of(part, False, dictionaries()):
                    together.decoded_bytes += batch.nbytes
                    yield batch

    def _with_partition_values(self, table: pa.Table) -> pa.Table:
        """Append the partition columns to a table, which has no columns of row tracking."""
        columns = list(self.schema)[self._num_stored :]
        for column, value in zip(columns, self._partition_values, strict=True):
            table = table.append_column(column, pa.repeat(value, table.num_rows))
        return table

    def _groups(self, slices: Iterable[SourceSlice], at_once_bytes: int) -> Iterator[_ReadGroup]:
        """Divide slices into groups to read at once. The size of each group's rows predicts the size of the next group's rows."""
        group = _ReadGroup(at_once_bytes)
        for part in slices:
            is_small = self._tracked is None and _is_small(part)
            if group.parts and not (is_small and group.has_room_for(part)):
                yield group
                group = group.next()
            if not is_small:
                yield _ReadGroup(at_once_bytes, parts=[part])
                continue
            group.add(part)
            if group.growth is None and group.page_bytes > FIRST_PAGES_BYTES:
                yield group
                group = group.next()
        if group.parts:
            yield group

    def schema_of(self, names: Collection[str]) -> pa.Schema:
        """Return the schema of some columns, in the order of the table.

        :param names: physical names.
        """
        return pa.schema([field for field in self.schema if field.name in names])

    def columns_of(self, part: SourceSlice, names: Collection[str]) -> Iterator[pa.RecordBatch]:
        """Yield some columns of the live rows of a slice.

        :param names: physical names.
        """
        columns = [column for column in self._read if column.physical_name in names]
        schema = self.schema_of(names)
        data_file = self._data_file(part)
        for rows in data_file.read(
            columns, part.opened.hidden, physical=True, row_groups=part.row_groups, on_all_processors=False
        ):
            yield pa.record_batch(list(rows.arrays), schema=schema)
        data_file.close()

    def _data_file(self, part: SourceSlice) -> DataFile:
        if part.row_groups is None and part.opened.decoded is not None:
            return part.opened.decoded
        # Other threads read other slices of the file, or all of it is copied.
        return DataFile(self._storage, part.opened.source.key, self._mapping_mode)

    def _batches_of(
        self,
        part: SourceSlice,
        on_all_processors: bool,
        dictionaries: Collection[str],
    ) -> Iterator[pa.RecordBatch]:
        source, data_file, tracked = part.opened.source, self._data_file(part), self._tracked
        for rows in data_file.read(
            self._read,
            part.opened.hidden,
            physical=True,
            positions=tracked is not None,
            memory=self._memory,
            row_groups=part.row_groups,
            on_all_processors=on_all_processors,
            dictionaries=dictionaries,
        ):
            if not rows.count:
                continue
            arrays = list(rows.arrays)
            if tracked is not None:
                assert rows.positions is not None
                file = {
                    "path": source.path,
                    "base_row_id": source.base_row_id,
                    "default_row_commit_version": source.default_row_commit_version,
                }
                arrays[self._num_stored :] = tracked.arrays(arrays[self._num_stored :], rows.positions, file)
            arrays[self._num_stored : self._num_stored] = (
                pa.repeat(value, rows.count) for value in self._partition_values
            )
            as_read = pa.schema(
                [field.with_type(array.type) for field, array in zip(self.schema, arrays, strict=True)]
            )
            yield pa.record_batch(arrays, schema=as_read if dictionaries else self.schema)
        data_file.close()


def _partition_value(task: RewriteTask, column: StructField) -> pa.Scalar:
    text = task.partition_values.get(column.physical_name)
    return parse_column(pa.array([text], pa.string()), column.type, column.name)[0]


def row_tracking(configuration: Mapping[str, str]) -> RowTracking | None:
    """Return the columns that keep row ids and versions; ``None`` if the table does not track rows.

    :raises InvalidMetadata: the table tracks rows, and its properties do not name the columns.
    """
    if not flag(configuration, ENABLED):
        return None
    tracked = RowTracking.of(configuration)
    if not all(column.name for column in tracked.columns):
        raise InvalidMetadata(
            "metaData.configuration",
            f"{ENABLED} is true, but the columns that keep row ids and versions are not named",
        )
    return tracked
