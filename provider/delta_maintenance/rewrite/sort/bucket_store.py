"""Keeps the rows of buckets until all rows were read: in memory while they fit, else in a file on a local disk.

The file is deleted before its first byte is written, so that nothing is left of it however the process ends.
"""

from __future__ import annotations

import mmap
import os
import tempfile
import threading
from collections import defaultdict
from collections.abc import Iterator
from operator import itemgetter

import pyarrow as pa

from delta_maintenance.errors import NoTemporarySpace
from delta_maintenance.rewrite.limits import MAPPED_BYTES
from delta_maintenance.rewrite.read.segment_pool import RowMemory

#: Where Spark gives its executors room for temporary files.
_SPARK_DIRECTORIES = ("LOCAL_DIRS", "SPARK_LOCAL_DIRS")


class BucketStore:
    """Takes record batches of buckets, and returns them bucket by bucket, by their numbers. Several threads may use it at once.

    :param schema: schema of the batches.
    :param memory: memory in which rows are kept while it has room.
    """

    def __init__(self, schema: pa.Schema, memory: RowMemory) -> None:
        self._schema, self._memory = schema, memory
        self._lock = threading.Lock()
        self._kept: dict[int, list[tuple[int, pa.RecordBatch]]] = defaultdict(list)
        self._kept_bytes = 0
        self._spilled: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
        self._file: int | None = None
        self._end = 0

    def close(self) -> None:
        """Forget all rows."""
        self._memory.give_back(self._kept_bytes)
        self._kept.clear()
        self._kept_bytes = 0
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def add(self, number: int, pieces: dict[int, pa.RecordBatch]) -> None:
        """Take some rows of several buckets.

        :param number: number that gives these rows their place among the others of a bucket.
        :raises NoTemporarySpace: they do not fit into memory, and there is no room for temporary files.
        """
        size = sum(piece.nbytes for piece in pieces.values())
        with self._lock:
            if self._file is None and self._memory.take(size):
                self._kept_bytes += size
                for bucket, piece in pieces.items():
                    self._kept[bucket].append((number, piece))
                return
            waiting, self._kept = self._kept, defaultdict(list)
            freed, self._kept_bytes = self._kept_bytes, 0
        try:
            for bucket, batches in waiting.items():
                for place, batch in batches:
                    self._spill(bucket, place, batch)
        finally:
            # Other bins of the process use the memory, whether or not this one goes on.
            self._memory.give_back(freed)
        for bucket, piece in pieces.items():
            self._spill(bucket, number, piece)

    def take(self, bucket: int) -> pa.Table:
        """Return the rows of a bucket, and forget those in memory."""
        with self._lock:
            batches = self._kept.pop(bucket, [])
            places = self._spilled.pop(bucket, [])
            size = sum(batch.nbytes for _, batch in batches)
            self._kept_bytes -= size
        self._memory.give_back(size)
        found = sorted([*self._read(places), *batches], key=itemgetter(0))
        return pa.Table.from_batches([batch for _, batch in found], self._schema)

    def _spill(self, bucket: int, number: int, batch: pa.RecordBatch) -> None:
        content = batch.serialize()
        with self._lock:
            if self._file is None:
                self._file = _new_file()
            start = self._end
            if content.size >= MAPPED_BYTES:
                # A mapping begins at the beginning of a page.
                start = -(-start // mmap.ALLOCATIONGRANULARITY) * mmap.ALLOCATIONGRANULARITY
            self._end = start + content.size
            file = self._file
            self._spilled[bucket].append((number, start, content.size))
        try:
            _write(file, memoryview(content), start)
        except OSError as error:
            raise NoTemporarySpace(_directory(), str(error)) from error

    def _read(self, places: list[tuple[int, int, int]]) -> Iterator[tuple[int, pa.RecordBatch]]:
        for number, start, size in places:
            assert self._file is not None
            yield number, pa.ipc.read_record_batch(_content(self._file, start, size), self._schema)


def _content(file: int, start: int, size: int) -> pa.Buffer:
    """Return bytes of the file. Many of them stay there, mapped into memory for as long as they are used."""
    if os.fstat(file).st_size < start + size:
        # Reading a mapping beyond the end of the file would end the process.
        raise NoTemporarySpace(_directory(), "a temporary file has become shorter")
    if size >= MAPPED_BYTES:
        return pa.py_buffer(mmap.mmap(file, size, prot=mmap.PROT_READ, offset=start))
    content = bytearray(size)
    done = 0
    while done < size:
        read = os.preadv(file, [memoryview(content)[done:]], start + done)
        if not read:
            raise NoTemporarySpace(_directory(), "a temporary file has become shorter")
        done += read
    return pa.py_buffer(content)


def _write(file: int, content: memoryview, start: int) -> None:
    done = 0
    while done < len(content):
        done += os.pwrite(file, content[done:], start + done)


def _directory() -> str:
    for name in _SPARK_DIRECTORIES:
        first = os.environ.get(name, "").split(",")[0]
        if first and os.access(first, os.W_OK):
            return first
    return tempfile.gettempdir()


def _new_file() -> int:
    try:
        file, path = tempfile.mkstemp(prefix="delta-layout-", dir=_directory())
        os.unlink(path)
    except OSError as error:
        raise NoTemporarySpace(_directory(), str(error)) from error
    return file
