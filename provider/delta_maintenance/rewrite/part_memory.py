"""The memory that encoded parts of new files are written to. One part uses it after the other.

A process pays for each page of memory that it uses for the first time: the system has to find the page and to fill it with zeros.
Parts have many pages and live for a moment, so their memory is kept for the next part.
"""

from __future__ import annotations

from collections import deque
from mmap import MAP_ANONYMOUS, MAP_PRIVATE, mmap
from typing import Any

from delta_log.parquet.assembled_file import Sink, footer_at_end
from delta_log.parquet.footer import Footer
from delta_log.parquet.thrift_compact import CorruptThrift

BLOCK_BYTES = 1 << 20


class PartMemory:
    """Blocks of memory that are free. Threads share them."""

    def __init__(self) -> None:
        self._free: deque[memoryview] = deque()

    def take(self) -> memoryview:
        try:
            return self._free.pop()
        except IndexError:
            # Memory that the system maps is full of zeros already.
            return memoryview(mmap(-1, BLOCK_BYTES, MAP_PRIVATE | MAP_ANONYMOUS))

    def give_back(self, blocks: list[memoryview]) -> None:
        self._free.extend(blocks)


class PartFile:
    """A file in blocks of memory: Arrow writes it from its beginning to its end, then others read it.

    Call :meth:`release` when it is no longer needed.
    """

    #: Arrow asks for it.
    closed = False

    def __init__(self, memory: PartMemory) -> None:
        self._memory = memory
        self._blocks: list[memoryview] = []
        self._size = 0

    def write(self, data: Any) -> int:
        """Append bytes."""
        rest = memoryview(data).cast("B")
        written = len(rest)
        while rest:
            start = self._size % BLOCK_BYTES
            if not start:
                self._blocks.append(self._memory.take())
            piece = rest[: BLOCK_BYTES - start]
            self._blocks[-1][start : start + len(piece)] = piece
            self._size += len(piece)
            rest = rest[len(piece) :]
        return written

    def tell(self) -> int:
        return self._size

    def flush(self) -> None:
        """Do nothing, as there is nothing behind it."""

    def close(self) -> None:
        """Do nothing, as Arrow closes what others go on to read."""

    def release(self) -> None:
        """Give the memory back."""
        blocks, self._blocks, self._size = self._blocks, [], 0
        self._memory.give_back(blocks)

    def footer(self) -> Footer:
        return footer_at_end(self, self._size)

    def read(self, start: int, length: int) -> bytes:
        return b"".join(self._pieces(start, length))

    def copy_to(self, sink: Sink, start: int, length: int) -> None:
        if start + length > self._size:
            raise CorruptThrift(start, f"{length} bytes are to follow, and the file ends before")
        for piece in self._pieces(start, length):
            sink.write(piece)

    def _pieces(self, start: int, length: int) -> list[memoryview]:
        end = min(start + length, self._size)
        pieces = []
        while start < end:
            begin = start % BLOCK_BYTES
            piece = self._blocks[start // BLOCK_BYTES][begin : begin + end - start]
            pieces.append(piece)
            start += len(piece)
        return pieces
