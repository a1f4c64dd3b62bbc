"""Opens the sources of a bin in their order, and counts their rows."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress

import pyarrow as pa
from msgspec import Struct, field

from delta_log.data.data_file import DataFile, FileInMemory
from delta_log.data.deletion_vector import read_deletion_vector
from delta_log.data.row_bitmap import RowBitmap
from delta_log.errors import CorruptLog
from delta_log.log.actions import DeletionVector
from delta_log.log.data_path import is_external
from delta_log.storage.storage import READ_AHEAD_BYTES, Storage
from delta_maintenance.rewrite.copy.source_footers import CopiedFile, CopiedFiles, read_tail
from delta_maintenance.rewrite.limits import (
    BYTES_AHEAD,
    FILES_AHEAD,
    FILES_OPENED_AT_ONCE,
    LARGE_BYTES,
    LARGE_ROWS,
)
from delta_maintenance.rewrite.task import RewriteTask, SourceFile
from parquet_parts.footer import FileEnd, Footer, corrected_end
from parquet_parts.schema_elements import INT96
from parquet_parts.thrift import CorruptThrift

#: Files of at most this size may be read together with others. Over a network, they are read whole.
SMALL_BYTES = READ_AHEAD_BYTES


class OpenedSource(Struct, frozen=True):
    """A source, its rows, and its deleted rows.

    :param decoded: the data file, which opens itself when it is read; ``None``: all of it is copied.
    :param copied: ``None``: all of it is decoded.
    :param wanted: consecutive row groups, if others read the rest of them; ``None``: all.
    """

    source: SourceFile
    num_rows: int
    decoded: DataFile | None
    hidden: RowBitmap | None = None
    copied: CopiedFile | None = None
    wanted: range | None = None

    @property
    def data_file(self) -> DataFile:
        assert self.decoded is not None
        return self.decoded

    @property
    def num_row_groups(self) -> int:
        return len(self.copied.copies.reasons) if self.copied is not None else self.data_file.num_row_groups


class SourceSlice(Struct, frozen=True):
    """Consecutive row groups of a source.

    :param row_groups: ``None``: all.
    :param is_copied: ``True``: they are copied as bytes.
    """

    opened: OpenedSource
    row_groups: range | None = None
    is_copied: bool = False

    @property
    def is_last(self) -> bool:
        """Whether no row group of the source comes after these."""
        return self.row_groups is None or self.row_groups.stop == self.opened.num_row_groups


class Sources(Struct):
    """Iterates over the opened sources of a task, and counts their rows.

    :param copied_files: opener of files, to copy from them.
    :param opens_late: small files are not opened here, since their rows will be read together. On a disk, only their end is read.
    :ivar source_rows: physical rows of each source so far.
    :ivar rows_deleted: rows of these that deletion vectors hide.
    """

    task: RewriteTask
    storage: Storage
    copied_files: CopiedFiles | None = None
    opens_late: bool = False
    source_rows: list[int] = field(default_factory=list)
    rows_deleted: int = 0

    @property
    def rows_in(self) -> int:
        return sum(self.source_rows)

    def __iter__(self) -> Iterator[OpenedSource]:
        """
        :raises CorruptLog: a source is missing, broken, or not what its statistics say.
        """
        for opened in self._in_order():
            _check_records(opened)
            self.rows_deleted += len(opened.hidden) if opened.hidden is not None else 0
            self.source_rows.append(opened.num_rows)
            yield opened

    def _in_order(self) -> Iterator[OpenedSource]:
        """Yield the opened sources. A few are opened ahead: over a network, and while others are copied."""
        is_far = self.storage.concurrency > 1
        if not is_far and not self._is_copying:
            yield from map(self._open, self.task.sources)
            return
        waiting: deque[tuple[int, Future[OpenedSource]]] = deque()
        with ThreadPoolExecutor(FILES_OPENED_AT_ONCE if is_far else 1) as pool:
            try:
                for source in self.task.sources:
                    read = min(source.size_bytes, READ_AHEAD_BYTES)
                    while len(waiting) == FILES_AHEAD or sum(size for size, _ in waiting) > BYTES_AHEAD:
                        yield waiting.popleft()[1].result()
                    waiting.append((read, pool.submit(self._open, source)))
                while waiting:
                    yield waiting.popleft()[1].result()
            finally:
                for _, unwanted in waiting:
                    unwanted.cancel()

    def _open(self, source: SourceFile) -> OpenedSource:
        # A small file with many rows may have large row groups, which its footer tells only after it was opened.
        data_file = None if self.asks_footer_first(source) else self._data_file(source)
        copied = None
        if data_file is None or data_file.num_rows >= LARGE_ROWS:
            copied = self._copied(source)
        if data_file is None and (copied is None or not copied.copies.is_whole or self.task.verify == "full"):
            data_file = self._data_file(source)
        hidden = None
        if source.deletion_vector is not None:
            descriptor = DeletionVector.from_row(source.deletion_vector)
            hidden = read_deletion_vector(descriptor, self.storage)
        if data_file is not None:
            return OpenedSource(source, data_file.num_rows, data_file, hidden, copied)
        assert copied is not None
        return OpenedSource(source, copied.footer.num_rows, None, hidden, copied)

    @property
    def _is_copying(self) -> bool:
        """Whether probably all sources are copied, so that a processor has nothing to do."""
        return self.copied_files is not None and all(map(self.asks_footer_first, self.task.sources))

    def asks_footer_first(self, source: SourceFile) -> bool:
        """Tell whether a source is probably copied."""
        if self.task.rewrite == "auto":
            return source.size_bytes >= LARGE_BYTES
        return self.task.rewrite == "copy"

    def _copied(self, source: SourceFile) -> CopiedFile | None:
        if self.copied_files is None or self.task.rewrite == "encode":
            return None
        found = self.copied_files.open(source)
        return None if isinstance(found, str) else found

    def _data_file(self, source: SourceFile) -> DataFile:
        is_far = self.storage.concurrency > 1
        tail, end = self._end_of(source) if self.opens_late else (b"", None)
        # Over a network, a small file is read whole at once.
        content = FileInMemory(pa.py_buffer(tail)) if end is not None and is_far else None
        data_file = DataFile(self.storage, source.key, self.task.mapping_mode, content, end)
        if not is_far:
            # Thousands of small sources may wait for a thread.
            data_file.close()
        return data_file

    def _end_of(self, source: SourceFile) -> tuple[bytes, FileEnd | None]:
        """Read the end of a small file, which takes a third of the time of opening it; ``None`` if it has to be opened."""
        is_small = source.size_bytes <= SMALL_BYTES
        if not is_small or source.deletion_vector is not None or is_external(source.key):
            return b"", None
        # Opening a file that is missing or broken tells what is wrong with it.
        with suppress(CorruptThrift, FileNotFoundError):
            tail = read_tail(self.storage, source)
            if tail is not None:
                end = FileEnd.of(tail)
                if _may_be_gathered(end.footer) and corrected_end(end.content) is end.content:
                    return tail, end
        return b"", None


def _may_be_gathered(footer: Footer) -> bool:
    """Tell whether a footer makes sense, and has no timestamps that have to be checked.

    :raises CorruptThrift: it lacks what is asked of it before the file is opened.
    """
    groups = footer.row_groups
    numbers = [(group.num_rows, group.uncompressed_bytes) for group in groups]
    kinds = {chunk.form.physical_type for group in groups for chunk in group.chunks}
    return (
        INT96 not in kinds
        and all(rows >= 0 and num_bytes >= 0 for rows, num_bytes in numbers)
        and footer.num_rows == sum(rows for rows, _ in numbers)
    )


def _check_records(opened: OpenedSource) -> None:
    source, num_rows = opened.source, opened.num_rows
    if source.num_records is not None and source.num_records != num_rows:
        raise CorruptLog(
            source.key, f"its statistics say {source.num_records} rows, but the file has {num_rows}"
        )
