"""Reads the live rows of sources, in the order of the sources and of the rows in them.

Where the table tracks rows (protocol section "Row Tracking"), two columns follow the table's own: the stable id of each row and
the version that wrote it. A file that was rewritten before holds them as columns. Otherwise they follow from the file's base id,
the row's physical position (deleted rows count) and the file's default version.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

import pyarrow as pa

from delta_log.data.data_file import ColumnMemory, DataFile
from delta_log.data.scan import RowTracking
from delta_log.errors import CorruptLog
from delta_log.storage.storage import Storage
from delta_log.table_config.properties import flag
from delta_log.table_config.row_tracking import ENABLED
from delta_log.table_config.schema import StructType, arrow_schema, parse_schema, storable
from delta_maintenance.rewrite.sources import SourceSlice
from delta_maintenance.rewrite.task import RewriteTask


def stored_columns(task: RewriteTask) -> StructType:
    """The columns of the table that the task's files hold."""
    schema = parse_schema(task.schema_json, mapped=task.mapping_mode != "none")
    return storable(schema.without(task.partition_columns))


class LiveRows:
    """Reads slices of a task's sources. Several threads may do so at once, each other slices.

    :param stored: the columns of the table that files hold.
    :ivar columns: the columns that new files hold, those of row tracking included.
    :ivar schema: of the batches, with physical names and field ids.
    """

    def __init__(self, task: RewriteTask, storage: Storage, stored: StructType) -> None:
        self._storage, self._mapping_mode = storage, task.mapping_mode
        self._tracked, self._num_own = row_tracking(task.configuration), len(stored.fields)
        self.columns = (
            StructType((*stored.fields, *self._tracked.columns)) if self._tracked is not None else stored
        )
        self.schema: pa.Schema = arrow_schema(self.columns, physical=True)

    @property
    def num_row_ids(self) -> int:
        """How many of the last columns keep row ids and versions."""
        return len(self.columns.fields) - self._num_own

    def batches(
        self,
        slices: Iterable[SourceSlice],
        *,
        on_all_processors: bool = False,
        dictionaries: Callable[[], Collection[str]] = frozenset,
        names: Collection[str] | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Yield the live rows of some slices, in batches of bounded size.

        :param names: physical names of the columns to read, where the table does not track rows; by default all.
        :param dictionaries: returns the names of texts that may come as dictionary arrays; asked before each slice.
        :param on_all_processors: decode columns side by side, where no other slices are.
        """
        memory = ColumnMemory()
        schema = self.schema if names is None else self.schema_of(names)
        for part in slices:
            yield from self._batches_of(part, schema, memory, on_all_processors, dictionaries())

    def schema_of(self, names: Collection[str]) -> pa.Schema:
        """Return the schema of some columns, in the order of the table.

        :param names: physical names.
        """
        return pa.schema([field for field in self.schema if field.name in names])

    def columns_of(self, part: SourceSlice, names: Collection[str]) -> Iterator[pa.RecordBatch]:
        """Yield some columns of the live rows of a slice.

        :param names: physical names.
        """
        columns = [column for column in self.columns.fields if column.physical_name in names]
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
        schema: pa.Schema,
        memory: ColumnMemory,
        on_all_processors: bool,
        dictionaries: Collection[str],
    ) -> Iterator[pa.RecordBatch]:
        source, data_file = part.opened.source, self._data_file(part)
        tracked = self._tracked
        wanted = set(schema.names)
        for rows in data_file.read(
            [column for column in self.columns.fields if column.physical_name in wanted],
            part.opened.hidden,
            physical=True,
            positions=tracked is not None,
            memory=memory,
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
                arrays[self._num_own :] = tracked.arrays(arrays[self._num_own :], rows.positions, file)
            as_read = pa.schema(
                [field.with_type(array.type) for field, array in zip(schema, arrays, strict=True)]
            )
            yield pa.record_batch(arrays, schema=as_read if dictionaries else schema)
        data_file.close()


def row_tracking(configuration: Mapping[str, str]) -> RowTracking | None:
    """Return the columns that keep row ids and versions; ``None`` if the table does not track rows.

    :raises CorruptLog: the table tracks rows, and its properties do not name the columns.
    """
    if not flag(configuration, ENABLED):
        return None
    tracked = RowTracking.of(configuration)
    if not all(column.name for column in tracked.columns):
        raise CorruptLog(
            "metaData.configuration",
            f"{ENABLED} is true, but the columns that keep row ids and versions are not named",
        )
    return tracked
