"""A file of a store that is reached by requests for ranges, as a seekable file."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

from delta_log.storage.storage import READ_AHEAD_BYTES

#: Reads the range that begins at the first argument and has the length of the second.
ReadRange = Callable[[int, int], bytes]


def opened(read: ReadRange, size: int, tail: bytes = b"") -> io.BufferedReader:
    """Open an object as a seekable file.

    :param tail: last bytes of the object, where they are known already.
    """
    return io.BufferedReader(_RangedFile(read, size, tail), READ_AHEAD_BYTES)


class _RangedFile(io.RawIOBase):
    """Requests a range for every read before the known last bytes."""

    def __init__(self, read: ReadRange, size: int, tail: bytes) -> None:
        super().__init__()
        self._read_range, self._size, self._tail = read, size, tail
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        origin = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = max(0, origin + offset)
        return self._position

    def readinto(self, buffer: Any) -> int:
        wanted = min(len(buffer), self._size - self._position)
        if wanted <= 0:
            return 0
        before_tail = self._size - len(self._tail) - self._position
        if before_tail <= 0:
            data = self._tail[-before_tail : wanted - before_tail]
        else:
            data = self._read_range(self._position, min(wanted, before_tail))
        buffer[: len(data)] = data
        self._position += len(data)
        return len(data)
