"""Reads the live rows of a bin's sources, in the order of the sources and of the rows in them.

Where the table tracks rows (protocol section "Row Tracking"), two columns follow the table's own: the stable id of each row and
the version that wrote it. A file that was rewritten before holds them as columns. Otherwise they follow from the file's base id,
the row's physical position (deleted rows count) and the file's default version.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

import pyarrow as pa

from delta_log.data.data_file import ColumnMemory, DataFile
from delta_log.data.deletion_vector import read_deletion_vector
from delta_log.data.row_bitmap import RowBitmap
from delta_log.data.scan import RowTracking
from delta_log.errors import CorruptLog
from delta_log.log.actions import DeletionVector
from delta_log.storage.storage import READ_AHEAD_BYTES, Storage
from delta_log.table_config.properties import flag
from delta_log.table_config.row_tracking import ENABLED
from delta_log.table_config.schema import StructType, arrow_schema
from delta_maintenance.rewrite.task import RewriteTask, SourceFile

#: Called with the bytes of each source after it was read.
OnProgress = Callable[[int], None]

#: A source, its data file, and its deleted rows.
_Opened = tuple[SourceFile, DataFile, RowBitmap | None]

#: Over a network: files that are opened at once, and the most files and bytes that wait for their turn. A small file is read
#: whole when it is opened, so opening files one after the other would cost the time of a request for each.
_OPENED_AT_ONCE = 8
_FILES_AHEAD, _BYTES_AHEAD = 16, 32 << 20
#: The first files tell which leaves have Bloom filters: asking every file would cost time, and most are written alike.
_ASKED_FOR_BLOOM_FILTERS = 8


@dataclass(slots=True)
class LiveRows:
    """Iterates over batches of :attr:`schema`, and counts rows.

    :param stored: the columns of the table that files hold.
    :ivar source_rows: physical rows of each source that was begun.
    :ivar bloom_filters: paths of the leaves that have a Bloom filter in one of the first sources.
    :ivar rows_deleted: rows that deletion vectors hide.
    """

    task: RewriteTask
    storage: Storage
    stored: StructType
    on_progress: OnProgress | None = None
    source_rows: list[int] = field(default_factory=list)
    bloom_filters: set[str] = field(default_factory=set)
    rows_deleted: int = 0

    @property
    def rows_in(self) -> int:
        return sum(self.source_rows)

    @property
    def columns(self) -> StructType:
        """The columns that new files hold, those of row tracking included."""
        return StructType((*self.stored.fields, *self._tracked.columns)) if self._tracked else self.stored

    @property
    def schema(self) -> pa.Schema:
        """The schema of the batches, with physical names and field ids."""
        return arrow_schema(self.columns, physical=True)

    @property
    def _tracked(self) -> RowTracking | None:
        return row_tracking(self.task.configuration)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        columns, schema, tracked, memory = self.columns.fields, self.schema, self._tracked, ColumnMemory()
        own = len(self.stored.fields)
        for source, data_file, hidden in self._opened():
            _check_records(source, data_file)
            self.rows_deleted += len(hidden) if hidden is not None else 0
            if len(self.source_rows) < _ASKED_FOR_BLOOM_FILTERS:
                self.bloom_filters |= data_file.bloom_filters
            self.source_rows.append(data_file.num_rows)
            batches = data_file.read(
                columns,
                hidden,
                physical=True,
                positions=tracked is not None,
                memory=memory,
            )
            for rows in batches:
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
                    arrays[own:] = tracked.arrays(arrays[own:], rows.positions, file)
                yield pa.record_batch(arrays, schema=schema)
            if self.on_progress is not None:
                self.on_progress(source.size_bytes)

    def _opened(self) -> Iterator[_Opened]:
        """Yield the opened sources in their order. Over a network, a few are opened ahead."""
        if self.storage.concurrency < 2:
            yield from map(self._open, self.task.sources)
            return
        waiting: deque[tuple[int, Future[_Opened]]] = deque()
        with ThreadPoolExecutor(_OPENED_AT_ONCE) as pool:
            try:
                for source in self.task.sources:
                    read = min(source.size_bytes, READ_AHEAD_BYTES)
                    while len(waiting) == _FILES_AHEAD or sum(size for size, _ in waiting) > _BYTES_AHEAD:
                        yield waiting.popleft()[1].result()
                    waiting.append((read, pool.submit(self._open, source)))
                while waiting:
                    yield waiting.popleft()[1].result()
            finally:
                for _, unwanted in waiting:
                    unwanted.cancel()

    def _open(self, source: SourceFile) -> _Opened:
        data_file = DataFile(self.storage, source.key, self.task.mapping_mode)
        hidden = None
        if source.deletion_vector is not None:
            descriptor = DeletionVector.from_row(source.deletion_vector)
            hidden = read_deletion_vector(descriptor, self.storage)
        return source, data_file, hidden


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


def _check_records(source: SourceFile, data_file: DataFile) -> None:
    if source.num_records is not None and source.num_records != data_file.num_rows:
        raise CorruptLog(
            source.key, f"its statistics say {source.num_records} rows, but the file has {data_file.num_rows}"
        )
