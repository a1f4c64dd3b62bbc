"""Opens directories and files below a table's root on a disk without following symbolic links.

A writer of the table may put a symbolic link below the root at any time, even between a check of a name and its use. So this
module passes no path below the root to the operating system. It opens each component relative to the descriptor of the
directory above it, with ``O_NOFOLLOW``, and names each file relative to the descriptor of its directory. A descriptor stays
with its directory when the name changes. The root itself is the address that the user gave, and links may lead to it.

A component that is a link is refused (:class:`~delta_log.errors.SymbolicLinkRefused`). It does not count as absent, because
other readers of the table may follow it.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from typing import NoReturn, final

from delta_log.errors import NotAFile, SymbolicLinkRefused

#: Names that lead to another directory, or to none.
_ODD_NAMES = ("", ".", "..")
#: Opens a directory to pass through it. Where the system has such a mode, it needs no right to list the directory.
_THROUGH = os.O_DIRECTORY | os.O_NOFOLLOW | getattr(os, "O_PATH", getattr(os, "O_SEARCH", os.O_RDONLY))
#: ``O_NONBLOCK``: opening a pipe must not wait for its other end.
_READING = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
_CREATING = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
#: How often a file is created anew, since another process may remove the empty directory that was just made for it.
_ATTEMPTS = 10


@final
class DirectoryWalk:
    """Holds the descriptors of the directories from a root down to the last one that was opened.

    Neighbouring keys share descriptors, so a directory is opened once for many of its files. A walk serves one call of a
    storage in one thread. A walk that lives longer would miss that a directory was replaced.

    :param root: an absolute path.
    """

    __slots__ = ("_descriptors", "_directory", "_names", "root")

    def __init__(self, root: str) -> None:
        self.root = root
        self._names: list[str] = []
        self._descriptors: list[int] = []
        self._directory: str | None = None

    def __enter__(self) -> DirectoryWalk:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close every descriptor; the next use starts at the root."""
        self._names.clear()
        self._directory = None
        while self._descriptors:
            os.close(self._descriptors.pop())

    def path(self, key: str) -> str:
        """Return the path of a key, for messages only."""
        return os.path.join(self.root, key)

    # -- directories -------------------------------------------------------------------------------------

    def open(self, directory: str, *, make: bool = False) -> int:
        """Return the descriptor of a directory, which the walk closes.

        :param directory: a key; empty for the root.
        :param make: ``True`` makes missing directories, durably.
        :raises FileNotFoundError: the directory is absent, or the key is not normalised.
        :raises SymbolicLinkRefused: a link leads there.
        """
        if directory == self._directory:
            return self._descriptors[-1]
        names = directory.split("/") if directory else []
        if any(name in _ODD_NAMES for name in names) or "\0" in directory:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), self.path(directory))
        self._directory = None
        if not self._descriptors:
            self._descriptors.append(_open_root(self.root, make=make))
        shared = 0
        while shared < min(len(names), len(self._names)) and names[shared] == self._names[shared]:
            shared += 1
        while len(self._names) > shared:
            os.close(self._descriptors.pop())
            self._names.pop()
        for name in names[shared:]:
            self._descriptors.append(self._below(self._descriptors[-1], name, make=make))
            self._names.append(name)
        self._directory = directory
        return self._descriptors[-1]

    def parent(self, key: str) -> tuple[int, str]:
        """Return the descriptor of the directory of a key, and the key's last segment.

        :raises FileNotFoundError: the directory is absent, or the key is not normalised.
        :raises SymbolicLinkRefused: a link leads there.
        """
        directory, slash, name = key.rpartition("/")
        if name in _ODD_NAMES or "\0" in key or (slash and not directory):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), self.path(key))
        return self.open(directory), name

    def open_for_listing(self, directory: str) -> int:
        """Return a descriptor for listing and syncing, which the caller closes."""
        return os.open(".", os.O_RDONLY | os.O_DIRECTORY, dir_fd=self.open(directory))

    def sync(self, directory: str) -> None:
        """Make the names in a directory durable."""
        _sync(self.open(directory))

    def _below(self, above: int, name: str, *, make: bool) -> int:
        try:
            return os.open(name, _THROUGH, dir_fd=above)
        except FileNotFoundError:
            if not make:
                raise
        except OSError:
            self.refuse_link("/".join((*self._names, name)), above, name)
            raise
        with suppress(FileExistsError):
            os.mkdir(name, dir_fd=above)
        _sync(above)
        return self._below(above, name, make=False)

    # -- files -------------------------------------------------------------------------------------------

    def status(self, key: str) -> os.stat_result | None:
        """Return the status of a file, directory or link, or ``None`` if there is none.

        :raises SymbolicLinkRefused: a link leads to its directory.
        """
        try:
            directory, name = self.parent(key)
            return os.stat(name, dir_fd=directory, follow_symlinks=False)
        except (FileNotFoundError, NotADirectoryError):
            return None

    def open_file(self, key: str) -> tuple[int, int]:
        """Open a file for reading; return its descriptor, which the caller closes, and its size in bytes.

        :raises SymbolicLinkRefused: it is a link, or a link leads there.
        :raises NotAFile: it is a directory or a device.
        :raises OSError: the system failed; ``FileNotFoundError``: it is not there.
        """
        descriptor = self._open_in_root(key)
        if descriptor is None:
            directory, name = self.parent(key)
            try:
                descriptor = os.open(name, _READING, dir_fd=directory)
            except FileNotFoundError:
                raise
            except OSError:
                self.refuse_link(key, directory, name)
                raise
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            os.close(descriptor)
            raise NotAFile(self.path(key))
        return descriptor, status.st_size

    def _open_in_root(self, key: str) -> int | None:
        """Open a file that lies in the root itself by its path: links may lead to the root, and the file is none.

        That is one call of the system instead of three, and most tables have no partitions. ``None``: the other way tells why not.
        """
        if "/" in key or key in _ODD_NAMES or "\0" in key or self._descriptors:
            return None
        with suppress(OSError):
            return os.open(os.path.join(self.root, key), _READING)
        return None

    def create(self, key: str) -> int:
        """Create a file, and missing directories durably; return its descriptor, which the caller closes.

        :raises FileExistsError: the name is taken.
        :raises SymbolicLinkRefused: a link leads there.
        """
        directory, _, name = key.rpartition("/")
        for attempt in range(_ATTEMPTS):
            try:
                return os.open(name, _CREATING, 0o666, dir_fd=self.open(directory, make=True))
            except FileNotFoundError:
                if attempt == _ATTEMPTS - 1:
                    raise
                self.close()
        raise AssertionError("unreachable")

    def unlink(self, key: str) -> None:
        """Delete a file.

        :raises SymbolicLinkRefused: it is a link, or a link leads there. A link that replaces the file after this check is
            deleted; its target is not touched.
        :raises NotAFile: it is a directory or a device.
        :raises OSError: the system failed; ``FileNotFoundError``: it is not there.
        """
        directory, name = self.parent(key)
        self.refuse_link(key, directory, name)
        os.unlink(name, dir_fd=directory)

    def refuse_link(self, key: str, directory: int, name: str) -> None:
        """
        :param directory: the directory of ``key``, whose last segment is ``name``.
        :raises SymbolicLinkRefused: the key names a link.
        """
        with suppress(FileNotFoundError):
            if stat.S_ISLNK(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode):
                self.refuse(key)

    def refuse(self, key: str) -> NoReturn:
        """
        :raises SymbolicLinkRefused: always.
        """
        raise SymbolicLinkRefused(self.path(key), key)


def _open_root(root: str, *, make: bool) -> int:
    if make:
        _make_root(root)
    return os.open(root, _THROUGH & ~os.O_NOFOLLOW)


def _make_root(path: str) -> None:
    if os.path.isdir(path):
        return
    parent = os.path.dirname(path)
    _make_root(parent)
    with suppress(FileExistsError):
        os.mkdir(path)
    descriptor = os.open(parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sync(directory: int) -> None:
    descriptor = os.open(".", os.O_RDONLY | os.O_DIRECTORY, dir_fd=directory)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
