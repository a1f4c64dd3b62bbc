"""Reads small files of a table together, as if they were one file (:mod:`delta_log.parquet.gathered_file`)."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence
from contextlib import suppress
from mmap import MAP_ANONYMOUS, MAP_PRIVATE, mmap

import pyarrow as pa

from delta_log.data.data_file import ColumnMemory, DataFile
from delta_log.errors import TableError
from delta_log.parquet.footer import MAGIC
from delta_log.parquet.gathered_file import CannotGather, FileGatherer
from delta_log.parquet.thrift_compact import CorruptThrift
from delta_log.storage.storage import Storage
from delta_log.table_config.schema import StructField

#: The bytes of files that are in memory at once are usually fewer.
_USUAL_BYTES = 16 << 20
#: After so many refusals in a row, other files are not tried any more: most files of a table are alike.
_MOST_REFUSALS = 3


class GatheredFiles:
    """Reads files of one table together. Several threads may do so at once.

    :param mapping_mode: ``none``, ``name`` or ``id``, the table's ``delta.columnMapping.mode``.
    """

    def __init__(self, storage: Storage, mapping_mode: str) -> None:
        self._storage, self._mapping_mode = storage, mapping_mode
        self._gatherer = FileGatherer()
        self._refusals = 0
        self._free: deque[memoryview] = deque()

    def read(
        self,
        files: Sequence[tuple[DataFile, int]],
        columns: Sequence[StructField],
        memory: ColumnMemory,
        dictionaries: Collection[str],
        most_bytes: int,
    ) -> pa.Table | None:
        """Return all rows of some files, in their order. The bytes and the rows of all files are in memory at once.

        ``None`` means that the files have to be read one by one: they are not alike, their values have to be converted or checked,
        are too large together, or one of them is broken. Reading each of them tells which, and why.

        :param files: with the length that each of them should have.
        :param columns: the columns to read.
        :param memory: filled by other calls for the same columns.
        :param dictionaries: physical names of texts to return as dictionary arrays.
        :param most_bytes: about the most bytes of the rows.
        """
        if self._refusals == _MOST_REFUSALS:
            return None
        sizes = [size for _, size in files]
        free = self._take(sum(sizes))
        table = None
        with suppress(CannotGather, CorruptThrift, TableError, pa.ArrowException, OSError):
            whole = self._whole([data_file for data_file, _ in files], sizes, free, most_bytes)
            table = whole.read_at_once(columns, memory=memory, dictionaries=dictionaries)
        # Arrow has copied all values, so others may use the memory.
        self._free.append(free)
        self._refusals = 0 if table is not None else self._refusals + 1
        return table

    def _whole(
        self, files: Sequence[DataFile], sizes: Sequence[int], memory: memoryview, most_bytes: int
    ) -> DataFile:
        """Put the bytes of some files behind each other, and open them as one.

        :raises CannotGather: they are no file together, or one of them has another length.
        """
        view = memory[: sum(sizes)]
        start = 0
        for data_file, size in zip(files, sizes, strict=True):
            if not data_file.copy_to(view[start : start + size]):
                raise CannotGather(f"{data_file.key} does not have {size} bytes")
            start += size
        end = MAGIC + self._gatherer.end_of(view, sizes, most_bytes, [data_file.end for data_file in files])
        return DataFile(self._storage, files[0].key, self._mapping_mode, (pa.py_buffer(view), end))

    def _take(self, num_bytes: int) -> memoryview:
        """Return memory for the bytes of some files: a process pays for each page of memory that it uses for the first time."""
        with suppress(IndexError):
            free = self._free.pop()
            if len(free) >= num_bytes:
                return free
        return memoryview(mmap(-1, max(num_bytes, _USUAL_BYTES), MAP_PRIVATE | MAP_ANONYMOUS))
