"""Tables on a disk of this machine, or on a POSIX file system mounted here.

``put_if_absent`` writes a temporary file beside its target, makes it durable, and gives it its second name with
``link``, which fails where the name is taken: ``rename`` would overwrite, and ``O_EXCL`` would show a part of the
content. A file system without hard links (FAT, some FUSE and network mounts) is refused for writing.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import uuid
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
from pyarrow import fs

from delta_log.errors import InvalidRequest, StorageError
from delta_log.local_tree import LocalPage
from delta_log.object_tree import KeySpan
from delta_log.storage import EnterDirectories, FileInfo, Storage, TreePage

#: What ``link`` says where there are no hard links; POSIX leaves the choice.
_NO_HARD_LINKS = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EXDEV})
#: Keys that no path of a log spells: empty segments, ``.`` and ``..``.
_ODD_KEY = re.compile(r"(^|/)\.{0,2}(/|$)")
_FILE_SYSTEM = fs.LocalFileSystem()
#: Devices whose file system was seen to have hard links, once per process.
_proved: set[int] = set()


class LocalStorage(Storage):
    """A directory. Reads take plain system calls: threads would only make them slower."""

    concurrency = 1
    reads_while_listing = True
    has_directories = True

    def __init__(self, path: str) -> None:
        if not path:
            raise InvalidRequest("The table's address is empty. Give a path or a URI.")
        self.root = os.path.abspath(path)
        self.uri = self.root
        self._before_key = os.path.join(self.root, "")

    def _path(self, key: str) -> str:
        return self._before_key + key

    def read(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        path = self._path(key)
        try:
            with open(path, "rb", buffering=0) as file:
                if start:
                    file.seek(start)
                if length is None:
                    return file.readall()
                # One system call may give less than it was asked for.
                parts, missing = [], length
                while missing > 0 and (part := file.read(missing)):
                    parts.append(part)
                    missing -= len(part)
                return b"".join(parts)
        except OSError as error:
            raise _named(error, path) from error

    def read_many(self, keys: list[str]) -> Iterator[bytes]:
        return map(self.read, keys)

    def open_read(self, key: str) -> Any:
        with _local_errors(self._path(key)):
            return pa.OSFile(self._path(key))

    @contextmanager
    def open_write(self, key: str) -> Iterator[IO[bytes]]:
        path = self._path(key)
        with _write_errors(path):
            file = _open_new(path)
        try:
            with file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            # The log must never name a file whose directory entry a power failure takes back.
            _sync_directory(os.path.dirname(path))
        except BaseException as error:
            with suppress(FileNotFoundError):
                os.unlink(path)
            # What is not found is a file that is read in the block.
            if isinstance(error, OSError) and not isinstance(error, FileNotFoundError):
                raise _failure(error, path) from error
            raise

    def put(self, key: str, data: bytes) -> None:
        path = self._path(key)
        with _write_errors(path), _temporary_file(path, data) as temporary:
            os.replace(temporary, path)
            _sync_directory(os.path.dirname(path))
        # Hadoop's local file system keeps a checksum beside each file it wrote and fails on one that does not fit.
        with _write_errors(path), suppress(FileNotFoundError):
            Path(path).with_name(f".{Path(path).name}.crc").unlink()

    def put_if_absent(self, key: str, data: bytes) -> bool:
        path = self._path(key)
        with _write_errors(path), _temporary_file(path, data) as temporary:
            try:
                _link(temporary, path)
            except FileExistsError:
                # NFS repeats a call whose answer was lost, and then refuses what it has done itself.
                if os.stat(temporary).st_nlink != 2:
                    return False
            _sync_directory(os.path.dirname(path))
            return True

    def require_writable(self) -> None:
        """Hard links are tried out beside the table, once for each file system and process."""
        directory = self.root
        while not os.path.isdir(directory):
            directory = os.path.dirname(directory)
        with _write_errors(directory):
            device = os.stat(directory).st_dev
            if device in _proved:
                return
            probe = os.path.join(directory, f".{uuid.uuid4().hex}.tmp")
            try:
                open(probe, "xb").close()
                _link(probe, f"{probe}2")
            finally:
                for path in (probe, f"{probe}2"):
                    with suppress(FileNotFoundError):
                        os.unlink(path)
        _proved.add(device)

    def list_from(self, directory: str, start_name: str = "") -> Iterator[FileInfo]:
        path = self._path(directory)
        prefix = f"{directory}/" if directory else ""
        try:
            with _local_errors(path), os.scandir(path) as entries:
                found = sorted((e for e in entries if e.name >= start_name), key=lambda e: e.name)
        except (FileNotFoundError, NotADirectoryError):
            return
        for entry in found:
            info = _info_of(entry.path, prefix + entry.name, entry.name)
            if info is not None:
                yield info

    def list_tree(self, enter: EnterDirectories) -> Iterator[TreePage]:
        """Sizes and times are left out: they would cost a system call for each file, and few files are asked about."""
        return self._walk("", enter)

    def list_part(self, span: KeySpan, enter: EnterDirectories) -> Iterator[TreePage]:
        def told(directories: Sequence[str]) -> Collection[str]:
            entered = enter(directories)
            return entered if span.deep else ()

        return self._walk(span.prefix.rstrip("/"), told)

    def _walk(self, top: str, enter: EnterDirectories) -> Iterator[TreePage]:
        remaining, page = [top], LocalPage()
        while remaining:
            directory = remaining.pop()
            path = self._path(directory) if directory else self.root
            try:
                with _local_errors(path):
                    yield from page.read(directory, path)
            except FileNotFoundError:  # removed meanwhile
                pass
            # Many directories are asked about at once, but no more than there are files to a page.
            if page.is_full or not remaining:
                with _local_errors(self.root):
                    listed = page.listed()
                yield listed
                below, page.below = page.below, []
                remaining += enter(below) if below else ()

    def head(self, key: str) -> FileInfo | None:
        return _info_of(self._path(key), key, key.rpartition("/")[2])

    def followed(self, keys: Sequence[str]) -> Iterator[str | None]:
        root = os.path.realpath(self.root)
        below = os.path.join(root, "")
        known = {"": root}

        def real_path(key: str) -> str:
            parent, _, name = key.rpartition("/")
            above = known.get(parent)
            if above is None:
                above = known[parent] = real_path(parent)
            path = f"{above}/{name}"
            return os.path.realpath(path) if os.path.islink(path) else path

        for key in keys:
            # Some spellings of a path are another's.
            odd = key and _ODD_KEY.search(key)
            real = os.path.realpath(self._path(key)) if odd else known.get(key) or real_path(key)
            yield real[len(below) :] if real.startswith(below) and real != below else None

    def head_many(self, keys: Sequence[str]) -> Iterator[FileInfo | None]:
        root = self._path("")
        for key in keys:
            yield _info_of(root + key, key, key.rpartition("/")[2])

    def sizes_and_times(
        self, keys: Sequence[str], *, were_files: bool = False
    ) -> tuple[list[int | None], list[int | None]]:
        root = self._before_key
        if were_files:
            # Another thread goes on meanwhile; with a call of Python's for each file it would wait for most of them. What
            # cannot be looked at is named below.
            with suppress(OSError, UnicodeError, OverflowError):
                return _sizes_and_times(_FILE_SYSTEM.get_file_info([root + key for key in keys]))
        sizes: list[int | None] = []
        times: list[int | None] = []
        for key in keys:
            size = time_ms = None
            try:
                status = os.lstat(root + key)
            except (FileNotFoundError, NotADirectoryError):
                pass
            except OSError as error:
                raise _named(error, root + key) from error
            else:
                if stat.S_ISREG(status.st_mode):
                    size, time_ms = status.st_size, status.st_mtime_ns // 1_000_000
            sizes.append(size)
            times.append(time_ms)
        return sizes, times

    def copy(self, source: str, target: str) -> bool:
        """A hard link: nothing is copied, and its times stay."""
        path, new = self._path(source), self._path(target)
        if not os.path.isfile(path):
            return False
        with _write_errors(new):
            _make_directory(os.path.dirname(new))
            try:
                _link(path, new)
            except FileExistsError:
                if not os.path.samefile(path, new):
                    raise
            _sync_directory(os.path.dirname(new))
        return True

    def delete(self, keys: Iterable[str]) -> None:
        for key in keys:
            with _write_errors(self._path(key)), suppress(FileNotFoundError, NotADirectoryError):
                os.unlink(self._path(key))

    def remove_dir(self, directory: str) -> bool:
        try:
            os.rmdir(self._path(directory))
        except OSError:
            return False
        return True


def _sizes_and_times(found: Sequence[fs.FileInfo]) -> tuple[list[int | None], list[int | None]]:
    """
    :raises OverflowError: a time is before 1970, which Arrow also says of one after 2262, and of one that it cannot tell.
    """
    sizes = [info.size for info in found]  # None: no file
    ns = [None if size is None else info.mtime_ns or -1 for size, info in zip(sizes, found, strict=True)]
    if any(time is not None and time < 0 for time in ns):
        raise OverflowError
    return sizes, [None if time is None else time // 1_000_000 for time in ns]


def _link(source: str, target: str) -> None:
    """:raises InvalidRequest: the file system has no hard links."""
    try:
        os.link(source, target)
    except OSError as error:
        if error.errno not in _NO_HARD_LINKS:
            raise
        raise InvalidRequest(
            f"{os.path.dirname(target)} is on a file system without hard links ({error.strerror}), so a commit there "
            "would not be safe against other writers. Nothing was written. Keep the table on a POSIX file system "
            "with hard links, or on an object store."
        ) from error


@contextmanager
def _temporary_file(path: str, data: bytes) -> Iterator[str]:
    """A durable file with that content beside a path, for as long as the block lasts."""
    directory, name = os.path.split(path)
    temporary = os.path.join(directory, f".{name[:100]}.{uuid.uuid4().hex}.tmp")
    try:
        with _open_new(temporary) as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        yield temporary
    finally:
        with suppress(FileNotFoundError, NotADirectoryError):
            os.unlink(temporary)


def _open_new(path: str) -> IO[bytes]:
    """A new file, in directories that are made, durably, where they are missing."""
    # Another process may remove the empty directory that was just made.
    for _ in range(10):
        with suppress(FileNotFoundError):
            return open(path, "xb")
        _make_directory(os.path.dirname(path))
    return open(path, "xb")


def _make_directory(path: str) -> None:
    if os.path.isdir(path):
        return
    parent = os.path.dirname(path)
    _make_directory(parent)
    with suppress(FileExistsError):
        os.mkdir(path)
    _sync_directory(parent)


def _sync_directory(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _info_of(path: str, key: str, name: str) -> FileInfo | None:
    try:
        status = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise _named(error, path) from error
    if not stat.S_ISREG(status.st_mode):
        return None
    return FileInfo(key, name, status.st_size, status.st_mtime_ns // 1_000_000)


@contextmanager
def _local_errors(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise _named(error, path) from error


@contextmanager
def _write_errors(path: str) -> Iterator[None]:
    """Where nothing has to be there yet, an absence is a failure like any other."""
    try:
        yield
    except OSError as error:
        raise _failure(error, path) from error


def _named(error: OSError, path: str) -> Exception:
    """The error of a system call as one of this package; absence stays what it is."""
    if isinstance(error, (FileNotFoundError, NotADirectoryError)):
        return FileNotFoundError(path)
    return _failure(error, path)


def _failure(error: OSError, path: str) -> StorageError:
    return StorageError(f"{path}: {error.strerror or error}. Check its permissions and the disk.", path)
