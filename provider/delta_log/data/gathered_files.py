"""Reads small files of a table together, as if they were one file (:mod:`parquet_parts.concatenated_file`)."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence
from contextlib import suppress

import numpy as np
import pyarrow as pa

from delta_log.data.data_file import ColumnMemory, DataFile, FileInMemory
from delta_log.errors import TableError
from delta_log.storage.storage import Storage
from delta_log.table_config.schema import StructField
from parquet_parts.concatenated_file import CannotGather, FileGatherer
from parquet_parts.footer import MAGIC
from parquet_parts.thrift import CorruptThrift

#: The bytes of files that are in memory at once are usually fewer.
_USUAL_BYTES = 24 << 20
#: Files of so few bytes get memory of their own size.
_FEW_BYTES = 2 << 20
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

        :param files: files, each with the length that it should have.
        :param columns: the columns to read.
        :param memory: memory that other calls for the same columns fill.
        :param dictionaries: physical names of texts to return as dictionary arrays.
        :param most_bytes: approximate limit on the bytes of the rows.
        """
        if self._refusals == _MOST_REFUSALS:
            return None
        free, table = self._take(sum(size for _, size in files)), None
        with suppress(CannotGather, CorruptThrift, TableError, pa.ArrowException, OSError):
            whole = self._whole(_filled(free, files), files, most_bytes)
            table = whole.read_at_once(columns, memory=memory, dictionaries=dictionaries)
        # Arrow has copied all values, so others may use the memory.
        self._free.append(free)
        self._refusals = 0 if table is not None else self._refusals + 1
        return table

    def _whole(self, content: memoryview, files: Sequence[tuple[DataFile, int]], most_bytes: int) -> DataFile:
        """Open files whose bytes are behind each other as one.

        :raises CannotGather: they are no file together.
        """
        end = self._gatherer.end_of(
            content,
            [size for _, size in files],
            most_bytes,
            [data_file.end for data_file, _ in files],
        )
        whole = FileInMemory(pa.py_buffer(content), MAGIC + end.content, end.row_groups)
        return DataFile(self._storage, files[0][0].key, self._mapping_mode, whole)

    def _take(self, num_bytes: int) -> memoryview:
        """Return memory for the bytes of some files: a process pays for each page of memory that it uses for the first time."""
        with suppress(IndexError):
            free = self._free.pop()
            if len(free) >= num_bytes:
                return free
        return _new_memory(max(num_bytes, _USUAL_BYTES) if num_bytes > _FEW_BYTES else num_bytes)


def _new_memory(num_bytes: int) -> memoryview:
    return np.empty(num_bytes, np.uint8).data


def _filled(memory: memoryview, files: Sequence[tuple[DataFile, int]]) -> memoryview:
    """Put the bytes of some files behind each other.

    :raises CannotGather: one of them has another length.
    """
    end = 0
    for data_file, size in files:
        start, end = end, end + size
        if not data_file.copy_to(memory[start:end]):
            raise CannotGather(f"{data_file.key} does not have {size} bytes")
    return memory[:end]
