"""The storage of tables on a disk of this machine, or on a mounted POSIX file system.

``put_if_absent`` writes a temporary file beside its target, makes it durable, and gives it its second name with ``link``, which
fails if the name is taken. ``rename`` would overwrite, and ``O_EXCL`` would show a part of the content. A file system without
hard links (FAT, some FUSE and network mounts) is refused for writing.

Every path below the root is opened component by component (:mod:`delta_log.storage.local.directory`), so no symbolic link is
followed. A listing shows a link under its name, and a call that needs the link is refused.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import IO, Any

import pyarrow as pa

from delta_log.errors import AccessDenied, InvalidRequest, StorageError, SymbolicLinkRefused
from delta_log.storage.local import leftovers as local_leftovers
from delta_log.storage.local.byte_range import NewFile, append_range, fill, read_range
from delta_log.storage.local.directory import DirectoryWalk
from delta_log.storage.local.listing import LocalPage
from delta_log.storage.storage import EnterDirectories, FileInfo, KeySpan, Storage, TreePage, require_key
from delta_log.storage.store_clock import store_clock_ms

#: A system call that fails so does not succeed when it is repeated.
_FORBIDDEN = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})
_FULL = (
    "Free some space, and run again. What was being written is removed; what the run had finished stays below _maintenance of the "
    "table, where the next try of the run takes it over, and VACUUM removes what nobody needs."
)
#: What to do about an error of a system call, by its number.
_REMEDIES = {
    errno.ENOSPC: _FULL,
    errno.EDQUOT: _FULL,
    errno.EFBIG: "The file system or a limit of the process (ulimit -f) allows no file of this size: raise the limit, or write smaller "
    "files (target_size). Another try fails likewise before that.",
    errno.EMLINK: "The file system allows no more entries in this directory; the disk is not full. Use another file system, or delete "
    "what is not needed there: of a log, by cleanup-log.",
    errno.ENAMETOOLONG: "The file system allows no name of this length. Another try fails likewise: use a shorter address for the table.",
    errno.EMFILE: "This process may open no more files at once: raise its limit (ulimit -n), and run again.",
    errno.ENFILE: "The system has no more open files to give: end other programs, and run again.",
    errno.ESTALE: "The network file system has forgotten this file. Run again; if it happens again, mount it anew.",
}
_FINAL = frozenset({errno.EFBIG, errno.EMLINK, errno.ENAMETOOLONG})
_OTHER_REMEDY = "Run again; if it happens again, look at the path and the disk."
#: The errors of ``link`` where there are no hard links; POSIX leaves the choice.
_NO_HARD_LINKS = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EXDEV})
#: Devices whose file system has hard links, as this process has tried out.
_proved: set[int] = set()


class LocalStorage(Storage):
    """A directory. It makes plain system calls one at a time, because threads would only slow them down."""

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
        """Return the path of a key, for messages only."""
        return self._before_key + key

    # -- reading -----------------------------------------------------------------------------------------

    def read(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        with DirectoryWalk(self.root) as walk:
            return self._read(walk, key, start, length)

    def read_many(self, keys: list[str]) -> Iterator[bytes]:
        with DirectoryWalk(self.root) as walk:
            for key in keys:
                yield self._read(walk, key)

    def _read(self, walk: DirectoryWalk, key: str, start: int = 0, length: int | None = None) -> bytes:
        try:
            descriptor, size = walk.open_file(key)
            try:
                rest = max(0, size - start)
                return read_range(descriptor, start, rest if length is None else min(length, rest))
            finally:
                os.close(descriptor)
        except OSError as error:
            raise _named(error, self._path(key)) from error

    def read_into(self, file: IO[bytes], key: str, start: int, length: int) -> int:
        with self._opened(key) as (descriptor, size):
            return append_range(file, descriptor, start, max(0, min(length, size - start)))

    def read_whole(self, key: str, target: memoryview) -> bool:
        with self._opened(key) as (descriptor, size):
            return size == len(target) and fill(descriptor, target)

    @contextmanager
    def _opened(self, key: str) -> Iterator[tuple[int, int]]:
        """Open a file for the time of the block; give its descriptor and its size in bytes."""
        with _local_errors(self._path(key)), DirectoryWalk(self.root) as walk:
            descriptor, size = walk.open_file(key)
            try:
                yield descriptor, size
            finally:
                os.close(descriptor)

    def open_read(self, key: str) -> Any:
        with _local_errors(self._path(key)), DirectoryWalk(self.root) as walk:
            descriptor, _ = walk.open_file(key)
        try:
            # Arrow takes no descriptor. This path opens the same file again, even if it was renamed.
            return pa.OSFile(f"/dev/fd/{descriptor}")
        except OSError as error:
            # The file exists. If something is absent, it is /dev/fd.
            raise local_failure(error, self._path(key)) from error
        finally:
            os.close(descriptor)

    def list_from(self, directory: str, start_name: str = "") -> Iterator[FileInfo]:
        prefix = f"{directory}/" if directory else ""
        with DirectoryWalk(self.root) as walk:
            try:
                with _local_errors(self._path(directory)):
                    descriptor = walk.open_for_listing(directory)
                    try:
                        names = sorted(name for name in os.listdir(descriptor) if name >= start_name)
                    finally:
                        os.close(descriptor)
            except (FileNotFoundError, NotADirectoryError):
                return
            for name in names:
                try:
                    status = walk.status(prefix + name)
                except OSError as error:
                    raise local_failure(error, self._path(prefix + name)) from error
                if status is not None and (stat.S_ISREG(status.st_mode) or stat.S_ISLNK(status.st_mode)):
                    yield _info_of(prefix + name, name, status)

    def list_tree(self, enter: EnterDirectories) -> Iterator[TreePage]:
        """Leave out sizes and times: each would cost a system call, and callers need sizes and times of few files."""
        return self._walk("", enter)

    def list_part(self, span: KeySpan, enter: EnterDirectories) -> Iterator[TreePage]:
        def told(directories: Sequence[str]) -> Collection[str]:
            entered = enter(directories)
            return entered if span.deep else ()

        return self._walk(span.prefix.rstrip("/"), told)

    def _walk(self, top: str, enter: EnterDirectories) -> Iterator[TreePage]:
        remaining, page = [top], LocalPage()
        with DirectoryWalk(self.root) as walk:
            while remaining:
                directory = remaining.pop()
                try:
                    with _local_errors(self._path(directory)):
                        yield from page.read(directory, walk)
                except FileNotFoundError:  # removed meanwhile
                    pass
                except SymbolicLinkRefused:
                    # A link has replaced the directory since it was listed.
                    if directory == top:
                        raise
                # `enter` is asked about many directories at once, but not more than a page has files.
                if page.is_full or not remaining:
                    with _local_errors(self.root):
                        listed = page.listed()
                    yield listed
                    below, page.below = page.below, []
                    remaining += enter(below) if below else ()

    def head(self, key: str) -> FileInfo | None:
        with DirectoryWalk(self.root) as walk:
            return self._head(walk, key)

    def head_many(self, keys: Sequence[str]) -> Iterator[FileInfo | None]:
        with DirectoryWalk(self.root) as walk:
            for key in keys:
                yield self._head(walk, key)

    def _head(self, walk: DirectoryWalk, key: str) -> FileInfo | None:
        try:
            status = walk.status(key)
        except OSError as error:
            raise local_failure(error, self._path(key)) from error
        if status is None:
            return None
        if stat.S_ISLNK(status.st_mode):
            walk.refuse(key)
        return _info_of(key, key.rpartition("/")[2], status) if stat.S_ISREG(status.st_mode) else None

    def sizes_and_times(self, keys: Sequence[str]) -> tuple[list[int | None], list[int | None]]:
        sizes: list[int | None] = []
        times: list[int | None] = []
        with DirectoryWalk(self.root) as walk:
            for key in keys:
                size = time_ms = None
                try:
                    status = walk.status(key)
                except SymbolicLinkRefused:
                    status = None
                except OSError as error:
                    raise local_failure(error, self._path(key)) from error
                if status is not None and stat.S_ISREG(status.st_mode):
                    size, time_ms = status.st_size, status.st_mtime_ns // 1_000_000
                sizes.append(size)
                times.append(time_ms)
        return sizes, times

    def symbolic_links(self, keys: Sequence[str]) -> Iterator[str | None]:
        with DirectoryWalk(self.root) as walk:
            for key in keys:
                link = None
                try:
                    status = walk.status(key)
                    if status is not None and stat.S_ISLNK(status.st_mode):
                        link = key
                except SymbolicLinkRefused as error:
                    link = error.link
                except OSError as error:
                    raise local_failure(error, self._path(key)) from error
                yield link

    # -- writing and deleting ----------------------------------------------------------------------------

    @contextmanager
    def open_write(self, key: str) -> Iterator[IO[bytes]]:
        require_key(key)
        path = self._path(key)
        with DirectoryWalk(self.root) as walk:
            with _write_errors(path):
                file = NewFile(walk.create(key))
            try:
                with file:
                    yield file
                    file.flush()
                    os.fsync(file.fileno())
                # The log must never name a file whose directory entry a power failure can undo.
                walk.sync(_directory_of(key))
            except BaseException as error:
                with suppress(FileNotFoundError):
                    walk.unlink(key)
                # A missing file is one that the caller reads inside the block. Errors without a number are no system call's.
                if isinstance(error, OSError) and error.errno and not isinstance(error, FileNotFoundError):
                    raise local_failure(error, path) from error
                raise

    def put(self, key: str, data: bytes) -> None:
        with self._temporary_file(key, data) as (walk, temporary):
            directory, name = walk.parent(key)
            walk.refuse_link(key, directory, name)
            os.replace(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
            walk.sync(_directory_of(key))
            # Hadoop's local file system keeps a checksum beside each file that it wrote, and fails if it does not fit.
            with suppress(FileNotFoundError):
                os.unlink(f".{name}.crc", dir_fd=directory)

    def put_if_absent(self, key: str, data: bytes) -> bool:
        with self._temporary_file(key, data) as (walk, temporary):
            directory, name = walk.parent(key)
            try:
                _link(directory, temporary, directory, name, self._path(key))
            except FileExistsError:
                walk.refuse_link(key, directory, name)
                # NFS repeats a call whose answer was lost, and then refuses because of its own first attempt.
                if os.stat(temporary, dir_fd=directory, follow_symlinks=False).st_nlink != 2:
                    return False
            walk.sync(_directory_of(key))
            return True

    @contextmanager
    def _temporary_file(self, key: str, data: bytes) -> Iterator[tuple[DirectoryWalk, str]]:
        """Make a durable file with that content beside a key for the time of the block; give the walk and its name."""
        require_key(key)
        directory, slash, name = key.rpartition("/")
        temporary = local_leftovers.temporary_name(name)
        with _write_errors(self._path(key)), DirectoryWalk(self.root) as walk:
            file = open(walk.create(f"{directory}{slash}{temporary}"), "wb")  # noqa: SIM115 - closed below
            try:
                with file:
                    file.write(data)
                    file.flush()
                    os.fsync(file.fileno())
                yield walk, temporary
            finally:
                _unlink_quietly(walk.open(directory), temporary)

    def require_writable(self) -> None:
        """Try out hard links beside the table, once for each file system and process."""
        directory = self.root
        while not os.path.isdir(directory):
            directory = os.path.dirname(directory)
        with _write_errors(directory), DirectoryWalk(directory) as walk:
            here = walk.open("")
            device = os.fstat(here).st_dev
            if device in _proved:
                return
            probe, second = local_leftovers.probe_names()
            try:
                os.close(walk.create(probe))
                _link(here, probe, here, second, os.path.join(directory, second))
            finally:
                _unlink_quietly(here, probe)
                _unlink_quietly(here, second)
        _proved.add(device)

    def copy(self, source: str, target: str) -> bool:
        """Make a hard link, which copies no bytes and keeps the times of the file."""
        require_key(target)
        with (
            _write_errors(self._path(target)),
            DirectoryWalk(self.root) as here,
            DirectoryWalk(self.root) as there,
        ):
            found = here.status(source)
            if found is not None and stat.S_ISLNK(found.st_mode):
                here.refuse(source)
            if found is None or not stat.S_ISREG(found.st_mode):
                return False
            old_directory, old_name = here.parent(source)
            new_directory = there.open(_directory_of(target), make=True)
            new_name = target.rpartition("/")[2]
            with suppress(FileExistsError):
                _link(old_directory, old_name, new_directory, new_name, self._path(target))
            made = os.stat(new_name, dir_fd=new_directory, follow_symlinks=False)
            if not os.path.samestat(found, made):
                # Another file has this name, or the source was replaced after the check.
                there.refuse_link(target, new_directory, new_name)
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), self._path(target))
            there.sync(_directory_of(target))
        return True

    def delete(self, keys: Iterable[str]) -> None:
        with DirectoryWalk(self.root) as walk:
            for key in keys:
                require_key(key)
                try:
                    walk.unlink(key)
                except (FileNotFoundError, NotADirectoryError):
                    pass
                except OSError as error:
                    raise local_failure(error, self._path(key)) from error

    def remove_dir(self, directory: str) -> bool:
        require_key(directory)
        try:
            with DirectoryWalk(self.root) as walk:
                above, name = walk.parent(directory)
                os.rmdir(name, dir_fd=above)
        except (OSError, SymbolicLinkRefused):
            return False
        return True

    def remove_leftovers(
        self, directories: Iterable[str], now_ms: int, *, dry_run: bool = False
    ) -> list[str]:
        with _local_errors(self.root), DirectoryWalk(self.root) as walk:
            return local_leftovers.remove_leftovers(
                walk, directories, now_ms, partial(store_clock_ms, self), dry_run=dry_run
            )


def _directory_of(key: str) -> str:
    return key.rpartition("/")[0]


def _link(source_directory: int, source: str, directory: int, name: str, path: str) -> None:
    """
    :param path: path of the second name, for the message.
    :raises InvalidRequest: the file system has no hard links.
    """
    try:
        os.link(source, name, src_dir_fd=source_directory, dst_dir_fd=directory, follow_symlinks=False)
    except OSError as error:
        if error.errno not in _NO_HARD_LINKS:
            raise
        raise InvalidRequest(
            f"{os.path.dirname(path)} is on a file system without hard links ({error.strerror}), so a commit there "
            "would not be safe against other writers. Nothing was written. Keep the table on a POSIX file system "
            "with hard links, or on an object store."
        ) from error


def _unlink_quietly(directory: int, name: str) -> None:
    with suppress(FileNotFoundError):
        os.unlink(name, dir_fd=directory)


def _info_of(key: str, name: str, status: os.stat_result) -> FileInfo:
    return FileInfo(key, name, status.st_size, status.st_mtime_ns // 1_000_000)


@contextmanager
def _local_errors(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise _named(error, path) from error


@contextmanager
def _write_errors(path: str) -> Iterator[None]:
    """Turn each error of a system call into a :class:`StorageError`; a missing file is one, too."""
    try:
        yield
    except OSError as error:
        raise local_failure(error, path) from error


def _named(error: OSError, path: str) -> Exception:
    """Turn an error of a system call into an error of this package; a missing file stays one."""
    if isinstance(error, (FileNotFoundError, NotADirectoryError)):
        return FileNotFoundError(path)
    return local_failure(error, path)


def local_failure(error: OSError, path: str) -> StorageError:
    """Turn an error of a system call into an error of this package. A forbidden call stays forbidden when it is repeated."""
    said = f"{path}: {error.strerror or error}."
    if error.errno in _FORBIDDEN:
        return AccessDenied(
            f"{said} Give the user that runs the job the right to read and write there.", path
        )
    remedy = _REMEDIES.get(error.errno or 0, _OTHER_REMEDY)
    return StorageError(f"{said} {remedy}", path, is_final=error.errno in _FINAL)
