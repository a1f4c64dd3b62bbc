"""Pages of a listing of a local disk: hundreds of thousands of names without an object for each that outlives its directory.

The names of a directory are joined to the contents of a column all at once. What is neither file nor directory, and names
that no log can spell since they are no UTF-8, are put aside.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

import numpy as np
import pyarrow as pa

from delta_log.storage.local_directory import DirectoryWalk
from delta_log.storage.storage import TreePage

_PAGE_FILES = 1 << 14


def _entries_of(descriptor: int) -> Iterator[list[os.DirEntry[str]]]:
    """The entries of one directory, some thousand at a time."""
    with os.scandir(descriptor) as entries:
        while met := list(islice(entries, _PAGE_FILES)):
            yield met


@dataclass(slots=True)
class LocalPage:
    """A page of a listing in the making; the keys of its files are bytes, one after the other.

    :ivar below: directories that were met and nobody has taken yet.
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
        """All entries of a directory; pages that become full on the way.

        :raises SymbolicLinkRefused: it is a link, or a link leads there.
        :raises OSError: of a system call; ``FileNotFoundError`` and ``NotADirectoryError`` where it is none any more.
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
        """:param met: some of a directory's entries; the rest of them comes next."""
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
        """What was read since the last time."""
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
    """A name of the operating system as the log would spell it; ``None``: it is no UTF-8."""
    try:
        return os.fsencode(name).decode()
    except UnicodeDecodeError:
        return None
