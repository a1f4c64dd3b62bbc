"""Builds the pages of a listing of a local disk.

A listing may have hundreds of thousands of names. The names of a directory are joined to the content of an Arrow column, so
that no Python object for a name outlives its directory. Entries that are neither file nor directory, and names that are not
UTF-8 and so occur in no log, are listed apart.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

import numpy as np
import pyarrow as pa
from msgspec import Struct, field

from delta_log.storage.local.directory import DirectoryWalk
from delta_log.storage.storage import TreePage

_PAGE_FILES = 1 << 14


def _entries_of(descriptor: int) -> Iterator[list[os.DirEntry[str]]]:
    """Yield the entries of one directory, some thousand at a time."""
    with os.scandir(descriptor) as entries:
        while met := list(islice(entries, _PAGE_FILES)):
            yield met


class LocalPage(Struct):
    """Collects a page of a listing; the keys of its files are held as one run of bytes.

    :ivar below: directories that were met and not yet listed.
    """

    below: list[str] = field(default_factory=list)
    parts: list[bytes] = field(default_factory=list)
    name_bytes: list[int] = field(default_factory=list)
    runs: dict[str, int] = field(default_factory=dict)
    directories: dict[str, int] = field(default_factory=dict)
    others: list[str] = field(default_factory=list)

    @property
    def is_full(self) -> bool:
        return len(self.name_bytes) >= _PAGE_FILES

    def read(self, directory: str, walk: DirectoryWalk) -> Iterator[TreePage]:
        """Read all entries of a directory; yield the pages that become full.

        :raises SymbolicLinkRefused: it is a link, or a link leads there.
        :raises OSError: a system call failed; ``FileNotFoundError`` or ``NotADirectoryError``: the directory is gone.
        """
        descriptor = walk.open_for_listing(directory)
        try:
            changed_ms = os.fstat(descriptor).st_mtime_ns // 1_000_000
            for entries in _entries_of(descriptor):
                self._take(directory, entries)
                if self.is_full:
                    yield self.listed()
        finally:
            os.close(descriptor)
        if directory:
            self.directories[directory] = changed_ms

    def _take(self, directory: str, met: Sequence[os.DirEntry[str]]) -> None:
        """Take in some entries of a directory; the next call brings the rest."""
        prefix = f"{directory}/" if directory else ""
        files = [entry.name for entry in met if entry.is_file(follow_symlinks=False)]
        below: list[str] = []
        if len(files) < len(met):
            below = [prefix + entry.name for entry in met if entry.is_dir(follow_symlinks=False)]
            self.others += [
                prefix + entry.name
                for entry in met
                if not (entry.is_file(follow_symlinks=False) or entry.is_dir(follow_symlinks=False))
            ]
            self.others += [name for name in below if _as_text(name) is None]
            self.below += [text for text in map(_as_text, below) if text is not None]
        if files:
            joined = prefix + prefix.join(files)
            if joined.isascii():
                self._add(directory, joined.encode(), map(len, files), len(files))
                return
            texts = [_as_text(name) for name in files]
            self.others += [prefix + name for name, text in zip(files, texts, strict=True) if text is None]
            names = [text.encode() for text in texts if text is not None]
            if names:
                start = prefix.encode()
                self._add(directory, start + start.join(names), map(len, names), len(names))

    def _add(self, directory: str, joined: bytes, name_bytes: Iterable[int], count: int) -> None:
        self.parts.append(joined)
        self.name_bytes += name_bytes
        self.runs[directory] = self.runs.get(directory, 0) + count

    def listed(self) -> TreePage:
        """Return a page of what was read since the last page."""
        prefixes = [len(directory.encode()) + 1 if directory else 0 for directory in self.runs]
        prefix_bytes = np.repeat(np.array(prefixes, np.int32), list(self.runs.values()))
        lengths = np.array(self.name_bytes, np.int32) + prefix_bytes
        ends = np.zeros(len(lengths) + 1, np.int32)
        np.cumsum(lengths, out=ends[1:])
        buffers = [None, pa.py_buffer(ends), pa.py_buffer(b"".join(self.parts))]
        keys = pa.Array.from_buffers(pa.string(), len(lengths), buffers)
        page = TreePage(keys, directories=self.directories, others=self.others, runs=self.runs)
        self.parts, self.name_bytes, self.runs, self.directories, self.others = [], [], {}, {}, []
        return page


def _as_text(name: str) -> str | None:
    """Return a name of the operating system as the log spells it, or ``None`` if it is not UTF-8."""
    try:
        return os.fsencode(name).decode()
    except UnicodeDecodeError:
        return None
