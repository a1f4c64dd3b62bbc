"""Reads any store that fsspec reaches. No other module imports fsspec, and this one does so when it needs it.

The stores that can be written to build on this module (:mod:`~delta_log.storage.objects.object_store`). Any other store is refused for
writing. A commit needs a put-if-absent that the store itself decides, and fsspec's exclusive modes check first and then write.
"""

from __future__ import annotations

import io
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from copy import copy
from typing import IO, Any, NoReturn
from urllib.parse import unquote_plus

from delta_log.errors import DeltaLogError, InvalidRequest, StorageError
from delta_log.storage.access_denied import denied, identity_of
from delta_log.storage.schemes import opened_kind, scheme_of
from delta_log.storage.storage import READ_AHEAD_BYTES, EnterDirectories, FileInfo, Storage, TreePage
from delta_log.storage.table_uri import require_no_credentials

#: A shorter option is not taken for a secret.
_SECRET_LENGTH = 8
#: Why a kind of store cannot promise that a commit is created once.
_NOT_WRITABLE = {
    "hdfs": (
        "its client's move deletes the target and tries again, so a rename can destroy another writer's commit"
    ),
    "webhdfs": "its rename is not known to refuse a target that another writer has just created",
    "http": "HTTP servers have no writes",
    "https": "HTTP servers have no writes",
}
_LISTED = ("file", "directory")
_UNKNOWN_STORE = "it has no operation that is known to create a file whole, and only where there is none"


class FileSystemOnDemand:
    """An fsspec file system, which is opened when it is asked for. Importing its client takes up to half a second.

    :param options: options of the file system.
    """

    def __init__(self, table_uri: str, options: Mapping[str, Any]) -> None:
        self._uri, self._options = table_uri, options
        self._opened: tuple[Any, str] | None = None
        self._process = 0
        self._lock = os.getpid(), threading.Lock()

    @property
    def opened(self) -> tuple[Any, str]:
        """The file system and the path of the root.

        :raises InvalidRequest: fsspec does not know the address, or lacks a package or an option for it.
        """
        if self._lock[0] != os.getpid():
            # A thread that is not in this process may have held it.
            self._lock = os.getpid(), threading.Lock()
        with self._lock[1]:
            # The thread of a file system does not live on in a process that is forked.
            if self._opened is None or self._process != os.getpid():
                self._opened, self._process = self._open(), os.getpid()
            return self._opened

    def _open(self) -> tuple[Any, str]:
        import fsspec.core

        try:
            # Listing caches would hide the commits of other processes.
            file_system, root = fsspec.core.url_to_fs(
                self._uri, use_listings_cache=False, skip_instance_cache=True, **self._options
            )
        except ImportError as error:
            kind = opened_kind(scheme_of(self._uri))
            remedy = f"Install airflow-provider-delta[{kind.extra}]." if kind else "Install it."
            raise InvalidRequest(
                f"{self._uri} needs a package that is not installed ({error}). {remedy}"
            ) from error
        except Exception as error:  # noqa: BLE001 - every client library has exceptions of its own
            # Some clients put credentials into URLs, and URLs into errors.
            said = str(error).partition("\n")[0]
            secret = any(value in unquote_plus(said) for value in _texts(self._options))
            raise InvalidRequest(
                f"{self._uri} cannot be opened ({type(error).__name__}{'' if secret else f': {said}'}). "
                "Check the address and the storage options."
            ) from (None if secret else error)
        return file_system, str(root)


class RemoteStorage(Storage):
    """A store that can only be read.

    :param root: the path of the table in the store, if it is known. The file system is then opened when it is needed.
    :raises InvalidRequest: fsspec does not know the address, or lacks a package or an option for it.
    """

    def __init__(self, table_uri: str, storage_options: Mapping[str, Any], root: str | None = None) -> None:
        self.uri = table_uri.rstrip("/")
        self._identity = identity_of(table_uri, storage_options)
        self._on_demand = FileSystemOnDemand(self.uri, storage_options)
        self._root = self._on_demand.opened[1] if root is None else root

    @property
    def _fs(self) -> Any:
        return self._on_demand.opened[0]

    def beside(self, table_uri: str) -> RemoteStorage:
        """Return the storage of another table through the same client: same bucket or container, same options."""
        require_no_credentials(table_uri)
        twin = copy(self)
        twin.uri = table_uri.rstrip("/")
        twin._root = self._root_of(twin.uri)
        twin._take_root()
        return twin

    def _root_of(self, table_uri: str) -> str:
        return str(self._fs._strip_protocol(table_uri))

    def _take_root(self) -> None:
        """Derive from the root's path what a subclass needs; called again for each table of a client."""

    def _path(self, key: str) -> str:
        return f"{self._root}/{key}" if key else self._root

    def _uri_of(self, key: str) -> str:
        return f"{self.uri}/{key}" if key else self.uri

    def _wait_for(self, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Run a coroutine function in fsspec's thread and return its result; any thread may call this."""
        import fsspec.asyn

        return fsspec.asyn.sync(self._fs.loop, call, *args, **kwargs)

    @contextmanager
    def _errors(self, key: str, *, may_be_absent: bool = False) -> Iterator[None]:
        """Turn a client's error into an error of this package; with ``may_be_absent`` a missing key stays one."""
        try:
            yield
        except DeltaLogError:
            raise
        except Exception as error:  # every client library has exceptions of its own
            if may_be_absent and isinstance(error, FileNotFoundError):
                raise FileNotFoundError(self._uri_of(key)) from error
            raise self._failure(error, key) from error

    def _failure(self, error: Exception, key: str) -> StorageError:
        uri = self._uri_of(key)
        if isinstance(error, PermissionError) or getattr(error, "status", None) in (401, 403):
            return denied(uri, str(error), self._identity)
        return StorageError(
            f"{uri}: the store failed ({type(error).__name__}: {error}). Run again when it answers.", uri
        )

    def read(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        if length == 0:
            if self.head(key) is None:
                raise FileNotFoundError(self._uri_of(key))
            return b""
        with self._errors(key, may_be_absent=True):
            end = None if length is None else start + length
            return bytes(self._fs.cat_file(self._path(key), start=start or None, end=end))

    def open_read(self, key: str) -> Any:
        info = self.head(key)
        if info is None:
            raise FileNotFoundError(self._uri_of(key))
        return opened(lambda start, length: self.read(key, start, length), info.size)

    def open_write(self, key: str) -> AbstractContextManager[IO[bytes]]:
        self._refuse()

    def put(self, key: str, data: bytes) -> None:
        self._refuse()

    def put_if_absent(self, key: str, data: bytes) -> bool:
        self._refuse()

    def delete(self, keys: Iterable[str]) -> None:
        self._refuse()

    def require_writable(self) -> None:
        self._refuse()

    def _refuse(self) -> NoReturn:
        scheme = scheme_of(self.uri)
        raise InvalidRequest(
            f"{self.uri} can only be read: a commit there would not be safe against other writers, since "
            f"{_NOT_WRITABLE.get(scheme, _UNKNOWN_STORE)}. Nothing was written. Keep the table on S3 or a "
            "compatible store, Google Cloud Storage, Azure Storage, or a POSIX file system with hard links."
        )

    def list_from(self, directory: str, start_name: str = "") -> Iterator[FileInfo]:
        try:
            with self._errors(directory, may_be_absent=True):
                entries = self._fs.ls(self._path(directory), detail=True)
        except FileNotFoundError:
            return
        files = (entry for entry in entries if entry.get("type") == "file")
        for entry in sorted(files, key=lambda e: e["name"].rpartition("/")[2]):
            name = entry["name"].rpartition("/")[2]
            if name >= start_name:
                yield self._info(f"{directory}/{name}" if directory else name, entry)

    def list_tree(self, enter: EnterDirectories) -> Iterator[TreePage]:
        remaining = [""]
        while remaining:
            directory = remaining.pop()
            prefix = f"{directory}/" if directory else ""
            try:
                with self._errors(directory, may_be_absent=True):
                    entries = self._fs.ls(self._path(directory), detail=True)
            except FileNotFoundError:
                continue
            keys = [prefix + entry["name"].rstrip("/").rpartition("/")[2] for entry in entries]
            kinds = [entry.get("type") for entry in entries]
            found = [
                self._info(key, e)
                for key, e, kind in zip(keys, entries, kinds, strict=True)
                if kind == "file"
            ]
            yield tree_page(found, [key for key, k in zip(keys, kinds, strict=True) if k not in _LISTED])
            remaining += enter([key for key, kind in zip(keys, kinds, strict=True) if kind == "directory"])

    def head(self, key: str) -> FileInfo | None:
        try:
            with self._errors(key, may_be_absent=True):
                entry = self._fs.info(self._path(key))
        except FileNotFoundError:
            return None
        return self._info(key, entry) if entry.get("type") == "file" else None

    @staticmethod
    def _info(key: str, entry: Mapping[str, Any]) -> FileInfo:
        names = ("LastModified", "mtime", "last_modified", "created")
        modified: Any = next((entry[name] for name in names if entry.get(name)), 0)
        seconds = modified.timestamp() if hasattr(modified, "timestamp") else float(modified)
        return file_info(key, int(entry.get("size") or 0), seconds)


def _texts(options: Mapping[str, Any]) -> Iterator[str]:
    """Yield the texts among the options that may be secret."""
    for value in options.values():
        if isinstance(value, Mapping):
            yield from _texts(value)
        elif isinstance(value, str) and len(value) >= _SECRET_LENGTH:
            yield value


def tree_page(files: Sequence[FileInfo], others: Sequence[str] = ()) -> TreePage:
    return TreePage(
        [info.key for info in files],
        [info.size for info in files],
        [info.modification_time_ms for info in files],
        others=others,
    )


def file_info(key: str, size: int, modified_seconds: float, tag: str | None = None) -> FileInfo:
    """:param tag: a listing may leave out its quotation marks."""
    name, time_ms = key.rpartition("/")[2], int(modified_seconds * 1000)
    return FileInfo(key, name, size, time_ms, tag.strip('"') if tag else None)


#: Reads the range that begins at the first argument and has the length of the second.
ReadRange = Callable[[int, int], bytes]


def opened(read: ReadRange, size: int, tail: bytes = b"") -> io.BufferedReader:
    """Open an object as a seekable file.

    :param tail: last bytes of the object, where they are known already.
    """
    return io.BufferedReader(_RangedFile(read, size, tail), READ_AHEAD_BYTES)


class _RangedFile(io.RawIOBase):
    """Requests a range for every read before the known last bytes."""

    def __init__(self, read: ReadRange, size: int, tail: bytes) -> None:
        super().__init__()
        self._read_range, self._size, self._tail = read, size, tail
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        origin = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = max(0, origin + offset)
        return self._position

    def readinto(self, buffer: Any) -> int:
        wanted = min(len(buffer), self._size - self._position)
        if wanted <= 0:
            return 0
        before_tail = self._size - len(self._tail) - self._position
        if before_tail <= 0:
            data = self._tail[-before_tail : wanted - before_tail]
        else:
            data = self._read_range(self._position, min(wanted, before_tail))
        buffer[: len(data)] = data
        self._position += len(data)
        return len(data)
