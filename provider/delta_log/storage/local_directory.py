"""Directories below a table's root on a disk, reached without following symbolic links.

Who may write below the root may put a symbolic link there at any time, also between a look at a name and its use. So no
path below the root is handed to the operating system. Each component is opened relative to the descriptor of the directory
above it, with ``O_NOFOLLOW``, and each file is named relative to the descriptor of its directory. A descriptor stays with
its directory whatever becomes of the name. The root itself is the address that the user gave, and may be reached by links.

A component that is a link is refused (:class:`~delta_log.errors.SymbolicLinkRefused`). It is never taken for an absence,
since other readers of the table may follow it.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from typing import NoReturn, final

from delta_log.errors import SymbolicLinkRefused

#: Names that lead elsewhere, or nowhere.
_ODD_NAMES = ("", ".", "..")
#: Only to pass through: the right to list a directory is not needed for that, where the system can tell the two apart.
_THROUGH = os.O_DIRECTORY | os.O_NOFOLLOW | getattr(os, "O_PATH", getattr(os, "O_SEARCH", os.O_RDONLY))
#: Without waiting for the other end of what is a pipe.
_READING = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
_CREATING = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
#: Another process may remove an empty directory that was just made.
_ATTEMPTS = 10


@final
class DirectoryWalk:
    """Open descriptors of the directories from a root down to the one that was asked for last.

    Neighbouring keys share them, so many files of one directory cost one way to it. A walk serves one call of a storage and
    one thread: kept longer, it would miss that a directory was replaced.

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
        """Close every descriptor; the next use begins at the root again."""
        self._names.clear()
        self._directory = None
        while self._descriptors:
            os.close(self._descriptors.pop())

    def path(self, key: str) -> str:
        """Where a key is, for messages alone."""
        return os.path.join(self.root, key)

    # -- directories -------------------------------------------------------------------------------------

    def open(self, directory: str, *, make: bool = False) -> int:
        """The descriptor of a directory, to name files by; it is closed by the walk.

        :param directory: a key; empty: the root.
        :param make: make what is missing, durably.
        :raises FileNotFoundError: it is not there, or no directory below the root has that name.
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
        """The descriptor of the directory that a key lies in, and the key's last segment.

        :raises FileNotFoundError: the directory is not there, or the key is not normalised and so names nothing.
        :raises SymbolicLinkRefused: a link leads there.
        """
        directory, slash, name = key.rpartition("/")
        if name in _ODD_NAMES or "\0" in key or (slash and not directory):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), self.path(key))
        return self.open(directory), name

    def open_for_listing(self, directory: str) -> int:
        """A descriptor that can be listed and synced, which the caller closes."""
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
        """What lies under a key, be it a link; ``None``: nothing.

        :raises SymbolicLinkRefused: a link leads to the directory that it lies in.
        """
        try:
            directory, name = self.parent(key)
            return os.stat(name, dir_fd=directory, follow_symlinks=False)
        except (FileNotFoundError, NotADirectoryError):
            return None

    def open_file(self, key: str) -> tuple[int, int]:
        """The descriptor of a file for reading, which the caller closes; and its size in bytes.

        :raises SymbolicLinkRefused: it is a link, or a link leads there.
        :raises OSError: it is no file; ``FileNotFoundError``: it is not there.
        """
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
            raise OSError(errno.EINVAL, "Not a regular file", self.path(key))
        return descriptor, status.st_size

    def create(self, key: str) -> int:
        """The descriptor of a new file for writing, which the caller closes; missing directories are made, durably.

        :raises FileExistsError: there is something already.
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

        :raises SymbolicLinkRefused: it is a link, or a link leads there. One that takes the file's place after the look at it
            is deleted itself, and what it leads to is not touched.
        :raises OSError: it is no file; ``FileNotFoundError``: it is not there.
        """
        directory, name = self.parent(key)
        self.refuse_link(key, directory, name)
        os.unlink(name, dir_fd=directory)

    def refuse_link(self, key: str, directory: int, name: str) -> None:
        """
        :param directory: in which ``name`` is what ``key`` names.
        :raises SymbolicLinkRefused: it is a link.
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
