"""Record batches that wait on a local disk.

The file is deleted before its first byte is written, so that nothing is left of it however the process ends.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from contextlib import suppress

import pyarrow as pa

from delta_maintenance.errors import NoTemporarySpace

#: Where Spark gives its executors room for temporary files.
_SPARK_DIRECTORIES = ("LOCAL_DIRS", "SPARK_LOCAL_DIRS")
#: Fewer bytes are read faster than mapped, and a process may have 65,000 mappings.
_MAPPED_BYTES = 64 << 10
#: Smaller buffers are written together. Larger ones go to the file without a copy.
_WRITTEN_BYTES = 64 << 10


class SpillFile:
    """Record batches of one schema in a temporary file. One thread at a time adds to it.

    :raises NoTemporarySpace: there is no room for temporary files; also raised by :meth:`add` and :meth:`flush`.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._directory = _directory()
        try:
            self._file, path = tempfile.mkstemp(prefix="delta-layout-", dir=self._directory)
            try:
                self._sink = pa.BufferedOutputStream(pa.OSFile(path, "w"), _WRITTEN_BYTES)
            finally:
                os.unlink(path)
        except OSError as error:
            raise NoTemporarySpace(self._directory, str(error)) from error
        self._writer = pa.ipc.new_stream(self._sink, schema)
        # The schema is written with the first batch, so that one has no place of its own.
        try:
            self.add(pa.RecordBatch.from_pylist([], schema))
        except NoTemporarySpace:
            self.close()
            raise

    def add(self, batch: pa.RecordBatch) -> tuple[int, int]:
        """Write a batch, and return its place: where it starts, and its size in bytes."""
        start = self._sink.tell()
        try:
            self._writer.write_batch(batch)
        except OSError as error:
            raise NoTemporarySpace(self._directory, str(error)) from error
        return start, self._sink.tell() - start

    def flush(self) -> None:
        """Make the batches so far readable."""
        try:
            self._sink.flush()
        except OSError as error:
            raise NoTemporarySpace(self._directory, str(error)) from error

    def read(self, start: int, size: int) -> pa.RecordBatch:
        """Return the batch at a place. A large one stays in the file, mapped into memory for as long as it is used."""
        return pa.ipc.read_record_batch(self._content(start, size), self._schema)

    def close(self) -> None:
        """Close the file. Batches that are in use stay readable."""
        os.close(self._file)
        # What was not flushed is of no use any more.
        with suppress(OSError):
            self._sink.close()

    def _content(self, start: int, size: int) -> pa.Buffer:
        if os.fstat(self._file).st_size < start + size:
            # Reading a mapping beyond the end of the file would end the process.
            raise NoTemporarySpace(self._directory, "a temporary file has become shorter")
        if size >= _MAPPED_BYTES:
            # A mapping begins at the beginning of a page.
            before = start % mmap.ALLOCATIONGRANULARITY
            mapped = mmap.mmap(self._file, before + size, prot=mmap.PROT_READ, offset=start - before)
            return pa.py_buffer(mapped).slice(before, size)
        content = bytearray(size)
        done = 0
        while done < size:
            read = os.preadv(self._file, [memoryview(content)[done:]], start + done)
            if not read:
                raise NoTemporarySpace(self._directory, "a temporary file has become shorter")
            done += read
        return pa.py_buffer(content)


def _directory() -> str:
    for name in _SPARK_DIRECTORIES:
        first = os.environ.get(name, "").split(",")[0]
        if first and os.access(first, os.W_OK):
            return first
    return tempfile.gettempdir()
