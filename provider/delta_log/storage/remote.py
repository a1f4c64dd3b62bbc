"""Reads any store that fsspec reaches, but for those of :data:`~delta_log.storage.schemes.STORES`. No other module imports fsspec,
and this one does so when it needs it.

Such a store is refused for writing. A commit needs a put-if-absent that the store itself decides, and fsspec's exclusive modes check
first and then write.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import IO, Any, NoReturn
from urllib.parse import unquote_plus

from delta_log.errors import DeltaLogError, InvalidRequest, StorageError
from delta_log.storage.access_denied import denied, identity_of
from delta_log.storage.ranged_file import opened
from delta_log.storage.schemes import scheme_of
from delta_log.storage.storage import EnterDirectories, FileInfo, Storage, TreePage

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


class RemoteStorage(Storage):
    """A store that can only be read.

    :raises InvalidRequest: fsspec does not know the address, or lacks a package or an option for it.
    """

    def __init__(self, table_uri: str, storage_options: Mapping[str, Any]) -> None:
        self.uri = table_uri.rstrip("/")
        self._identity = identity_of(table_uri, storage_options)
        self._fs, self._root = _opened(self.uri, storage_options)

    def _path(self, key: str) -> str:
        return f"{self._root}/{key}" if key else self._root

    def _uri_of(self, key: str) -> str:
        return f"{self.uri}/{key}" if key else self.uri

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
            yield TreePage.of_files(
                found, [key for key, k in zip(keys, kinds, strict=True) if k not in _LISTED]
            )
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
        return FileInfo.of(key, int(entry.get("size") or 0), seconds)


def _opened(uri: str, options: Mapping[str, Any]) -> tuple[Any, str]:
    """Return the file system of an address, and the path of its root there."""
    import fsspec.core

    try:
        # Listing caches would hide the commits of other processes.
        file_system, root = fsspec.core.url_to_fs(
            uri, use_listings_cache=False, skip_instance_cache=True, **options
        )
    except ImportError as error:
        raise InvalidRequest(f"{uri} needs a package that is not installed ({error}). Install it.") from error
    except Exception as error:  # noqa: BLE001 - every client library has exceptions of its own
        # Some clients put credentials into URLs, and URLs into errors.
        said = str(error).partition("\n")[0]
        secret = any(value in unquote_plus(said) for value in _texts(options))
        raise InvalidRequest(
            f"{uri} cannot be opened ({type(error).__name__}{'' if secret else f': {said}'}). "
            "Check the address and the storage options."
        ) from (None if secret else error)
    return file_system, str(root)


def _texts(options: Mapping[str, Any]) -> Iterator[str]:
    """Yield the texts among the options that may be secret."""
    for value in options.values():
        if isinstance(value, Mapping):
            yield from _texts(value)
        elif isinstance(value, str) and len(value) >= _SECRET_LENGTH:
            yield value
