"""Ranges of the bytes of files on a disk: reads them, and appends them to new files.

The kernel copies a range in one call. So the server of a network's file system can copy it, and some file systems note that two
files share blocks. Where the kernel refuses, the bytes are read and written.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import IO, Any

#: Bytes that are read at once. They stay in the processor's cache until they are written.
_PIECE_BYTES = 1 << 20
#: The most pieces that POSIX systems write at once: IOV_MAX.
_PIECES_AT_ONCE = 1024


class NewFile(io.BufferedWriter):
    """A file to write.

    :param descriptor: descriptor of the file. Closing this object closes it.
    """

    def __init__(self, descriptor: int) -> None:
        super().__init__(io.FileIO(descriptor, "wb"))

    def writelines(self, pieces: Iterable[Any]) -> None:
        """Write many pieces with few system calls. Other threads would get Python's lock for each of them."""
        self.flush()
        left = [memoryview(piece) for piece in pieces if len(piece)]
        left.reverse()
        while left:
            written = os.writev(self.fileno(), left[: -_PIECES_AT_ONCE - 1 : -1])
            while written:
                piece = left.pop()
                if len(piece) > written:
                    left.append(piece[written:])
                written -= min(len(piece), written)
        self.seek(0, os.SEEK_END)


def read_range(source: int, start: int, length: int) -> bytes:
    """Read bytes of a file, fewer only at its end.

    :param source: the descriptor of the file.
    """
    data = os.pread(source, length, start) if length else b""
    if len(data) == length:
        return data
    # One system call may return less than it was asked for.
    parts, missing = [data], length - len(data)
    while missing and (part := os.pread(source, missing, start + length - missing)):
        parts.append(part)
        missing -= len(part)
    return b"".join(parts)


def fill(source: int, target: memoryview) -> bool:
    """Read a file from its beginning, and return whether there are as many bytes as the target has.

    :param source: the descriptor of the file.
    """
    done = 0
    while done < len(target):
        read = os.preadv(source, [target[done:]], done)
        if not read:
            return False
        done += read
    return True


def append_range(target: IO[bytes], source: int, start: int, length: int) -> int:
    """Append bytes of a file to another one; return their number, which is smaller than ``length`` only at the end of the file.

    :param target: the other file, with nothing behind its position.
    :param source: the descriptor of the file.
    """
    target.flush()
    done = _copied_by_kernel(target.fileno(), source, start, length)
    target.seek(0, os.SEEK_END)
    return done + _written(target, _pieces(source, start + done, length - done))


def _copied_by_kernel(target: int, source: int, start: int, length: int) -> int:
    """Append bytes to a file. Return their number, which is less than asked for where the kernel or a file system refuses."""
    done = 0
    with suppress(OSError, AttributeError):  # other systems than Linux have no such call
        while done < length:
            copied = os.copy_file_range(source, target, length - done, start + done)
            if not copied:
                break
            done += copied
    return done


def _pieces(source: int, start: int, length: int) -> Iterator[bytes]:
    for at in range(start, start + length, _PIECE_BYTES):
        wanted = min(_PIECE_BYTES, start + length - at)
        piece = read_range(source, at, wanted)
        yield piece
        if len(piece) < wanted:  # the file was cut meanwhile
            return


def _written(target: IO[bytes], pieces: Iterator[bytes]) -> int:
    """Write pieces of a file, and return the number of their bytes."""
    done = 0
    for piece in pieces:
        target.write(piece)
        done += len(piece)
    return done
