"""Ranges of the bytes of files on a disk: reads them, and appends them to new files.

The kernel copies a range in one call. There the server of a network's file system can copy it, and some file systems note that
two files share blocks. A plain disk's file system copies page by page. On such a one, this module reads a long range in pieces,
and a thread reads the next piece while one is written. For 670 MB, on 2 cores, that takes 0.33 s instead of 0.41 on tmpfs, and
0.19 s instead of 0.28 on ext4.
"""

from __future__ import annotations

import io
import os
import re
from collections.abc import Generator, Iterable
from contextlib import closing, suppress
from functools import cache
from pathlib import Path
from typing import IO, Any

from delta_log.arrow.prefetch import read_ahead

#: Bytes that are read at once. They stay in the processor's cache until they are written.
_PIECE_BYTES = 1 << 20
#: A shorter range is copied by one call, for which Python's lock is released once.
_LONG_BYTES = 8 << 20
#: The most pieces that POSIX systems write at once: IOV_MAX.
_PIECES_AT_ONCE = 1024
#: File systems that copy page by page. XFS can share whole blocks, but row groups begin anywhere.
_PLAIN = frozenset((b"ext2", b"ext3", b"ext4", b"xfs", b"tmpfs", b"overlay"))
_MOUNTS = Path("/proc/self/mountinfo")
#: The numbers of the device and the file system, in a line of that file.
_MOUNT = re.compile(rb"\d+ \d+ (\d+):(\d+) .* - (\S+) .*")


class NewFile(io.BufferedWriter):
    """A file to write.

    :param descriptor: of the file, which closing this object closes.
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
    if length >= _LONG_BYTES and _is_plain(os.fstat(target.fileno()).st_dev):
        return _written(target, read_ahead(_pieces(source, start, length)))
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


def _pieces(source: int, start: int, length: int) -> Generator[bytes, None, None]:
    for at in range(start, start + length, _PIECE_BYTES):
        wanted = min(_PIECE_BYTES, start + length - at)
        piece = read_range(source, at, wanted)
        yield piece
        if len(piece) < wanted:  # the file was cut meanwhile
            return


def _written(target: IO[bytes], pieces: Generator[bytes, None, None]) -> int:
    """Write pieces of a file, and return the number of their bytes."""
    done = 0
    with closing(pieces):
        for piece in pieces:
            target.write(piece)
            done += len(piece)
    return done


@cache
def _is_plain(device: int) -> bool:
    """Tell whether the file system of a device copies page by page, as far as this system says."""
    numbers = os.major(device), os.minor(device)
    with suppress(OSError):
        for line in _MOUNTS.read_bytes().splitlines():
            mount = _MOUNT.fullmatch(line)
            if mount is not None and (int(mount[1]), int(mount[2])) == numbers:
                return mount[3] in _PLAIN
    return False
