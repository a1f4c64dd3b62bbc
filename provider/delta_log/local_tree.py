"""Pages of a listing of a local disk: hundreds of thousands of names without an object for each that outlives its directory.

Names stay bytes and are joined to the contents of a column as they come. What is neither file nor directory, and names
that no log can spell since they are no UTF-8, are put aside.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

import numpy as np
import pyarrow as pa

from delta_log.storage import TreePage

_PAGE_FILES = 1 << 14


def entries_of(path: str) -> Iterator[list[os.DirEntry[bytes]]]:
    """The entries of one directory, some thousand at a time. Their names stay bytes: most go into a column as they are."""
    with os.scandir(os.fsencode(path)) as entries:
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

    def read(self, directory: str, path: str) -> Iterator[TreePage]:
        """All entries of a directory; pages that become full on the way.

        :raises OSError: of a system call; ``FileNotFoundError`` too where it is no directory any more.
        """
        found = os.lstat(path)
        # What a link leads to is none of ours; but for the root, which the table's address may name by a link.
        if directory and not stat.S_ISDIR(found.st_mode):
            raise FileNotFoundError(path)
        for entries in entries_of(path):
            self._take(directory, entries)
            if self.is_full:
                yield self.listed()
        if directory:
            self.directories[directory] = found.st_mtime_ns // 1_000_000

    def _take(self, directory: str, met: Sequence[os.DirEntry[bytes]]) -> None:
        """:param met: some of a directory's entries; the rest of them comes next."""
        prefix = f"{directory}/".encode() if directory else b""
        files = [entry.name for entry in met if entry.is_file(follow_symlinks=False)]
        below: list[bytes] = []
        if len(files) < len(met):
            below = [prefix + entry.name for entry in met if entry.is_dir(follow_symlinks=False)]
            self.others += [
                os.fsdecode(prefix + entry.name)
                for entry in met
                if not (entry.is_file(follow_symlinks=False) or entry.is_dir(follow_symlinks=False))
            ]
        if not _is_text(b"/".join((*files, *below))):
            odd = [name for name in files if not _is_text(name)]
            self.others += [os.fsdecode(prefix + name) for name in odd]
            self.others += [os.fsdecode(name) for name in below if not _is_text(name)]
            files, below = ([name for name in names if _is_text(name)] for names in (files, below))
        if files:
            self.parts.append(prefix + prefix.join(files))
            self.name_bytes += map(len, files)
            self.runs[directory] = self.runs.get(directory, 0) + len(files)
        self.below += [name.decode() for name in below]

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


def _is_text(name: bytes) -> bool:
    """Whether a name is UTF-8, as those of the log are."""
    try:
        name.decode()
    except UnicodeDecodeError:
        return False
    return True
