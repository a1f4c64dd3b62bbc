"""Entries of directories in the form in which Linux writes them, hundreds of thousands without an object for each.

``getdents64`` fills a buffer with records: the inode (8 bytes), a cookie (8), the record's own length (2, a multiple of 8),
the type (1), and the name, which a NUL ends within the last 8 bytes. In front of a directory's records stands the text that
its files' keys begin with, so that a column of keys is one gathering of pieces of the buffer. What is told by ``os.scandir``
for twice the time is the same.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
import sys
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from delta_log.storage import TreePage

_LENGTH_AT, _TYPE_AT, _NAME_AT = 16, 18, 19
_UNKNOWN, _DIRECTORY, _REGULAR = 0, 4, 8
_PAGE_BYTES = 1 << 21
#: A record is shorter than 300 bytes; the kernel is asked for many at once.
_ROOM_BYTES = 1 << 15
_WORD = 8
_FIRST_NAMES = 2
_ONES, _HIGHS = np.uint64(0x0101010101010101), np.uint64(0x8080808080808080)
#: The shortest record has its length and type in its last word, before the name.
_SHORTEST, _NO_NAME = _NAME_AT + 5, np.uint64(0xFFFFFF)
_REPLACED = frozenset({errno.ENOTDIR, errno.ELOOP})

_Rows = npt.NDArray[np.int64]


def _system_call() -> Callable[[int, int, int], int] | None:
    """``None``: not to be had here."""
    if not sys.platform.startswith("linux") or sys.byteorder != "little":
        return None
    try:
        found = ctypes.CDLL(None, use_errno=True).getdents64
    except (AttributeError, OSError):
        return None
    found.argtypes, found.restype = (ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t), ctypes.c_ssize_t
    return found


_getdents64 = _system_call()


def is_available() -> bool:
    return _getdents64 is not None


@dataclass(frozen=True, slots=True)
class _Region:
    """The records of one directory in a page's buffer; places in bytes.

    :param prefix_bytes: what its keys begin with, at ``start``.
    :param records: where these begin; they end at ``end``.
    """

    directory: str
    path: str
    start: int
    prefix_bytes: int
    records: int
    end: int


@dataclass(slots=True)
class EntryPage:
    """A page of a listing in the making.

    :ivar below: directories that were met and nobody has taken yet.
    """

    below: list[str] = field(default_factory=list)
    _buffer: bytearray = field(default_factory=lambda: bytearray(_PAGE_BYTES))
    _end: int = 0
    _regions: list[_Region] = field(default_factory=list)
    _directories: dict[str, int] = field(default_factory=dict)

    @property
    def is_full(self) -> bool:
        return len(self._buffer) - self._end < _ROOM_BYTES

    def read(self, directory: str, path: str) -> Iterator[TreePage]:
        """All entries of a directory; pages that become full on the way.

        :raises OSError: of a system call; ``FileNotFoundError`` too where it is no directory any more.
        """
        # What a link leads to is none of ours; but for the root, which the table's address may name by a link.
        follow = 0 if not directory else os.O_NOFOLLOW
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | follow)
        except OSError as error:
            if error.errno in _REPLACED:
                raise FileNotFoundError(path) from error
            raise
        try:
            changed_ms = os.fstat(descriptor).st_mtime_ns // 1_000_000
            while not self._filled(directory, path, descriptor):
                yield self.listed()
        finally:
            os.close(descriptor)
        if directory:
            self._directories[directory] = changed_ms

    def _filled(self, directory: str, path: str, descriptor: int) -> bool:
        """Whether that was the rest of a directory; there was no more room otherwise."""
        assert _getdents64 is not None
        prefix = f"{directory}/".encode() if directory else b""
        start, room = self._end, len(self._buffer)
        records = start + -(-len(prefix) // _WORD) * _WORD
        end = records
        address = ctypes.addressof(ctypes.c_char.from_buffer(self._buffer))
        read = 0
        while room - end >= _ROOM_BYTES:
            read = _getdents64(descriptor, address + end, room - end)
            if read < 1:
                break
            end += read
        if read < 0 and ctypes.get_errno() != errno.ENOENT:  # that says that it was removed meanwhile
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), path)
        is_done = read < 1 and room - records >= _ROOM_BYTES
        if end > records:
            self._buffer[start : start + len(prefix)] = prefix
            self._regions.append(_Region(directory, path, start, len(prefix), records, end))
            self._end = end
        elif not is_done:
            self._end = room
        return is_done

    def listed(self) -> TreePage:
        """What was read since the last time."""
        if not self._regions:  # nothing is there
            nothing = TreePage(pa.array([], pa.string()), directories=self._directories, runs={})
            self._end, self._directories = 0, {}
            return nothing
        names = _Names(self._buffer, self._regions)
        directories, others = names.others()
        keys, runs, odd = names.keys()
        self.below += directories
        page = TreePage(keys, directories=self._directories, others=[*others, *odd], runs=runs)
        self._end, self._regions, self._directories = 0, [], {}
        return page


class _Names:
    """The records of a page as columns; places in bytes of the buffer."""

    def __init__(self, buffer: bytearray, regions: list[_Region]) -> None:
        self.buffer, self.regions = np.frombuffer(buffer, np.uint8), regions
        places, firsts = _places(buffer, regions)
        lengths = np.frombuffer(buffer, np.uint16)[(places + _LENGTH_AT) >> 1].astype(np.int64)
        last = places + lengths - _WORD
        words = np.frombuffer(buffer, np.uint64)
        tails = words[last >> 3]
        tails[lengths == _SHORTEST] |= _NO_NAME
        # The lowest bit that is left is in the first byte that is NUL.
        zeros = (tails - _ONES) & ~tails & _HIGHS
        first_bits = np.frexp((zeros & (~zeros + np.uint64(1))).astype(np.float64))[1] - 1
        self.starts, self.ends = places + _NAME_AT, last + (first_bits >> 3)
        self.kinds = self.buffer[places + _TYPE_AT]
        deleted = words[places >> 3] == 0
        if deleted.any():
            self.kinds = np.where(deleted, _DIRECTORY, self.kinds)
            self.starts = np.where(deleted, self.ends, self.starts)
        self.region_of = np.repeat(np.arange(len(regions)), np.diff([*firsts, len(places)]))
        self._know_all()

    def _know_all(self) -> None:
        """Some file systems do not tell what an entry is."""
        unknown = np.flatnonzero(self.kinds == _UNKNOWN)
        if len(unknown):
            self.kinds = self.kinds.copy()
        for row in unknown.tolist():
            place = os.path.join(os.fsencode(self.regions[self.region_of[row]].path), self._name(row))
            try:
                mode = os.lstat(place).st_mode
            except (FileNotFoundError, NotADirectoryError):
                self.kinds[row], self.starts[row] = _DIRECTORY, self.ends[row]
                continue
            self.kinds[row] = stat.S_IFMT(mode) >> 12

    def _name(self, row: int) -> bytes:
        return self.buffer[self.starts[row] : self.ends[row]].tobytes()

    def others(self) -> tuple[list[str], list[str]]:
        """Keys of the directories, and of what is neither directory nor file, or has a name that is no text."""
        directories: list[str] = []
        others: list[str] = []
        for row in np.flatnonzero(self.kinds != _REGULAR).tolist():
            name = self._name(row)
            if name in (b"", b".", b".."):
                continue
            directory = self.regions[self.region_of[row]].directory
            key = (f"{directory}/" if directory else "") + os.fsdecode(name)
            kept = self.kinds[row] == _DIRECTORY and is_text(name)
            (directories if kept else others).append(key)
        return directories, others

    def keys(self) -> tuple[pa.StringArray, dict[str, int], list[str]]:
        """Those of the files, how many lie in each directory, and keys of files whose names are no text."""
        files = np.flatnonzero(self.kinds == _REGULAR)
        keys = self._joined(files)
        odd: list[str] = []
        data = keys.buffers()[2]
        if data is not None and np.frombuffer(data, np.int8).min(initial=0) < 0:
            text = np.array([is_text(self._name(row)) for row in files.tolist()], bool)
            if not text.all():
                odd = [os.fsdecode(key) for key in keys.cast(pa.binary()).filter(pa.array(~text)).to_pylist()]
                keys, files = keys.filter(pa.array(text)), files[text]
        counts = np.bincount(self.region_of[files], minlength=len(self.regions)).tolist()
        runs = {region.directory: count for region, count in zip(self.regions, counts, strict=True) if count}
        return keys, runs, odd

    def _joined(self, files: _Rows) -> pa.StringArray:
        """Each file's name behind what its directory's keys begin with."""
        if not len(files):
            return pa.array([], pa.string())
        regions = self.region_of[files]
        counts = np.bincount(regions, minlength=len(self.regions))
        # Pieces of the buffer, in their order: of each directory what its keys begin with, and then its names.
        numbers = np.arange(len(files)) + regions + 1
        prefixes = np.arange(len(self.regions)) + np.cumsum(counts) - counts
        bounds = np.empty((len(files) + len(self.regions), 2), np.int32)
        bounds[numbers, 0], bounds[numbers, 1] = self.starts[files], self.ends[files]
        starts = np.array([region.start for region in self.regions])
        bounds[prefixes, 0] = starts
        bounds[prefixes, 1] = starts + [region.prefix_bytes for region in self.regions]
        # What lies between two of them is a piece as well, and every second one.
        buffers = [None, pa.py_buffer(bounds), pa.py_buffer(self.buffer)]
        pieces = pa.Array.from_buffers(pa.binary(), 2 * len(bounds) - 1, buffers)
        wanted = np.empty((len(files), 2), np.int32)
        wanted[:, 0], wanted[:, 1] = 2 * prefixes[regions], 2 * numbers
        found = pieces.take(pa.array(wanted.reshape(-1)))
        _, offsets, data = found.buffers()
        ends = np.ascontiguousarray(np.frombuffer(offsets, np.int32)[: len(found) + 1 : 2])
        return pa.Array.from_buffers(pa.string(), len(files), [None, pa.py_buffer(ends), data])


def _places(buffer: bytearray, regions: list[_Region]) -> tuple[_Rows, list[int]]:
    """Where the records begin, and how many there are before each directory's."""
    found, count, firsts = [np.empty(0, np.int64)], 0, []
    halves = np.frombuffer(buffer, np.uint16)
    with memoryview(buffer).cast("H") as lengths:
        for region in regions:
            firsts.append(count)
            starts = array("q")
            at, stop = region.records, region.end
            while at < stop:
                length = lengths[(at + _LENGTH_AT) >> 1]
                # Names that programs make up are mostly of one length, but for the two that each directory begins with.
                if len(starts) == _FIRST_NAMES:
                    alike = halves[(at + _LENGTH_AT) >> 1 : stop >> 1 : length >> 1]
                    if (alike == length).all():
                        found += [np.frombuffer(starts, np.int64), np.arange(at, stop, length)]
                        count += len(starts) + len(alike)
                        starts, at = array("q"), stop
                        break
                starts.append(at)
                at += length
            found.append(np.frombuffer(starts, np.int64))
            count += len(starts)
    return np.concatenate(found), firsts


def is_text(name: bytes) -> bool:
    """Whether a name is UTF-8, as those of the log are."""
    try:
        name.decode()
    except UnicodeDecodeError:
        return False
    return True
