"""A file in memory that Arrow writes an encoded part to, from its beginning to its end, and that others read then."""

from __future__ import annotations

from bisect import bisect_right

from parquet_parts.assembled_file import Sink, footer_at_end
from parquet_parts.footer import Footer
from parquet_parts.thrift import CorruptThrift


class PartFile:
    """The pieces of a file, as they were written.

    Arrow hands over each page as bytes of its own. They are kept: putting them into memory that all parts use in turn takes longer, and
    more of it.

    Call :meth:`release` when the file is no longer needed.
    """

    #: Arrow asks for it.
    closed = False

    def __init__(self) -> None:
        self._pieces: list[bytes | memoryview] = []
        #: Where each piece begins.
        self._starts: list[int] = []
        self._size = 0

    def write(self, data: bytes | memoryview) -> int:
        """Append bytes. Those of a view are copied."""
        if len(data):
            self._pieces.append(bytes(data))
            self._starts.append(self._size)
            self._size += len(data)
        return len(data)

    def tell(self) -> int:
        return self._size

    def flush(self) -> None:
        """Do nothing, as there is nothing behind it."""

    def close(self) -> None:
        """Do nothing, as Arrow closes what others go on to read."""

    def release(self) -> None:
        """Give the memory back."""
        self._pieces, self._starts, self._size = [], [], 0

    def footer(self) -> Footer:
        """Read the footer."""
        return footer_at_end(self, self._size)

    def read(self, start: int, length: int) -> bytes:
        return b"".join(self._within(start, length))

    def copy_to(self, sink: Sink, start: int, length: int) -> None:
        sink.writelines(self._all_within(start, length))

    def _all_within(self, start: int, length: int) -> list[memoryview]:
        if start + length > self._size:
            raise CorruptThrift(start, f"{length} bytes are to follow, and the file ends before")
        return self._within(start, length)

    def _within(self, start: int, length: int) -> list[memoryview]:
        end = min(start + length, self._size)
        number = bisect_right(self._starts, start) - 1
        found = []
        while start < end:
            begin = start - self._starts[number]
            found.append(memoryview(self._pieces[number])[begin : begin + end - start])
            start += len(found[-1])
            number += 1
        return found
