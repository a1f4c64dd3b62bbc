"""The only door to a store: a small seam over fsspec.

Keys are POSIX-style paths relative to the table's root, decoded, without a leading slash. What a caller may rely on:

1. ``read``, ``open_read``: a missing key is :class:`FileNotFoundError`; any other failure is
   :class:`~delta_log.errors.StorageError`.
2. ``put_if_absent`` is atomic and durable: exactly one of any number of callers gets ``True``, and nobody ever sees a
   part of the content. A store on which we cannot promise this refuses (:meth:`Storage.require_writable`), before
   anything was written.
3. ``open_write`` is for new files under names that nobody else knows. An exception inside its block removes what was
   written; a process that dies leaves a file that no log names, which VACUUM finds.
4. Nothing is cached: what another process wrote is seen by the next call.
"""

from __future__ import annotations

import os
import stat
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any
from urllib.parse import unquote, urlsplit

import fsspec
import pyarrow as pa

from delta_log.errors import InvalidRequest, StorageError


@dataclass(frozen=True, slots=True)
class FileInfo:
    """One object of a listing; ``modification_time_ms`` is since the epoch, by the store's clock."""

    key: str
    name: str
    size: int
    modification_time_ms: int


class Storage(ABC):
    """One table's root on some store; see the module's docstring for what each method promises."""

    #: Address of the root, without a trailing slash.
    uri: str
    #: How many requests at once pay off here.
    concurrency: int = 16

    @abstractmethod
    def read(self, key: str, start: int = 0, length: int | None = None) -> bytes: ...

    @abstractmethod
    def open_read(self, key: str) -> Any:
        """A seekable binary file, as ``pyarrow.parquet`` takes it."""

    @abstractmethod
    def open_write(self, key: str) -> Any:
        """A context manager that gives a binary file under a new name; an exception inside it removes the file."""

    @abstractmethod
    def put(self, key: str, data: bytes) -> None:
        """Write or overwrite, whole."""

    @abstractmethod
    def put_if_absent(self, key: str, data: bytes) -> bool:
        """``False``: the key was there already, and was left alone."""

    @abstractmethod
    def list_from(self, directory: str, start_name: str = "") -> Iterator[FileInfo]:
        """Files directly in a directory whose names are ``>= start_name``, in byte order of their names.

        An absent directory is empty.
        """

    @abstractmethod
    def head(self, key: str) -> FileInfo | None: ...

    @abstractmethod
    def delete(self, keys: Iterable[str]) -> None:
        """Delete files; absent ones are no error."""

    def remove_dir(self, directory: str) -> None:
        """Remove an empty directory, where the store has directories; one that is not empty stays."""

    def require_writable(self) -> None:
        """Refuse, naming the reason, where :meth:`put_if_absent` cannot be promised."""

    def read_many(self, keys: list[str]) -> Iterator[bytes]:
        """The contents of several keys, in their order, read concurrently."""
        if len(keys) < 2:
            yield from map(self.read, keys)
            return
        with ThreadPoolExecutor(min(self.concurrency, len(keys))) as pool:
            yield from pool.map(self.read, keys)


def open_storage(table_uri: str, storage_options: Mapping[str, Any] | None = None) -> Storage:
    """The store of a table.

    :param table_uri: a local path, ``file://…`` or any URI that fsspec knows (``s3://``, ``gs://``, ``abfs://`` …).
    :param storage_options: passed to the fsspec file system.
    :raises InvalidRequest: no such kind of store, or its package is missing.
    """
    scheme = urlsplit(table_uri).scheme if "://" in table_uri or table_uri.startswith("file:") else ""
    if scheme == "":
        return LocalStorage(table_uri)
    if scheme == "file":
        return LocalStorage(unquote(urlsplit(table_uri).path))
    kind = S3Storage if scheme in ("s3", "s3a") else RemoteStorage
    return kind(table_uri, storage_options or {})


class LocalStorage(Storage):
    """A directory of this machine, or of a POSIX file system mounted here.

    Reads take plain system calls: threads would only make them slower.
    """

    concurrency = 1

    def __init__(self, path: str) -> None:
        if not path:
            raise InvalidRequest("The table's address is empty. Give a path or a URI.")
        self.root = os.path.abspath(path)
        self.uri = self.root

    def _path(self, key: str) -> str:
        return os.path.join(self.root, key)

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
        with _local_errors(path):
            os.makedirs(os.path.dirname(path), exist_ok=True)
            file = open(path, "xb")  # noqa: SIM115 - closed below, in either case
        try:
            with file, _local_errors(path):
                yield file
                file.flush()
                os.fsync(file.fileno())
        except BaseException:
            with suppress(FileNotFoundError):
                os.unlink(path)
            raise

    def put(self, key: str, data: bytes) -> None:
        path = self._path(key)
        with _local_errors(path), _temporary_file(path, data) as temporary:
            os.replace(temporary, path)
            _sync_directory(os.path.dirname(path))
        # Hadoop's local file system keeps a checksum beside each file it wrote and fails on one that does not fit.
        with suppress(FileNotFoundError):
            Path(path).with_name(f".{Path(path).name}.crc").unlink()

    def put_if_absent(self, key: str, data: bytes) -> bool:
        path = self._path(key)
        with _local_errors(path), _temporary_file(path, data) as temporary:
            # Neither rename (overwrites) nor O_EXCL (shows a part of the content) will do.
            try:
                os.link(temporary, path)
            except FileExistsError:
                return False
            _sync_directory(os.path.dirname(path))
            return True

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

    def head(self, key: str) -> FileInfo | None:
        return _info_of(self._path(key), key, key.rpartition("/")[2])

    def delete(self, keys: Iterable[str]) -> None:
        for key in keys:
            with _local_errors(self._path(key)), suppress(FileNotFoundError):
                os.unlink(self._path(key))

    def remove_dir(self, directory: str) -> None:
        with suppress(OSError):
            os.rmdir(self._path(directory))


class RemoteStorage(Storage):
    """Any other store that fsspec reaches; read only until its put-if-absent is proved."""

    def __init__(self, table_uri: str, storage_options: Mapping[str, Any]) -> None:
        self.uri = table_uri.rstrip("/")
        try:
            # Listing caches would hide the commits of other processes.
            self._fs, self._root = fsspec.core.url_to_fs(
                self.uri, use_listings_cache=False, skip_instance_cache=True, **storage_options
            )
        except ImportError as error:
            scheme = urlsplit(table_uri).scheme
            extra = {"s3": "s3", "s3a": "s3", "gs": "gcs", "gcs": "gcs"}.get(scheme, "azure")
            raise InvalidRequest(
                f"{table_uri} needs a package that is not installed ({error}). "
                f"Install airflow-provider-delta[{extra}]."
            ) from error
        except ValueError as error:
            raise InvalidRequest(f"{table_uri} is not an address that fsspec knows: {error}.") from error

    def _path(self, key: str) -> str:
        return f"{self._root}/{key}" if key else self._root

    def read(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        end = None if length is None else start + length
        with _remote_errors(f"{self.uri}/{key}"):
            return bytes(self._fs.cat_file(self._path(key), start=start or None, end=end))

    def open_read(self, key: str) -> Any:
        with _remote_errors(f"{self.uri}/{key}"):
            return self._fs.open(self._path(key), "rb")

    def open_write(self, key: str) -> Any:
        raise self._refusal()

    def put(self, key: str, data: bytes) -> None:
        raise self._refusal()

    def put_if_absent(self, key: str, data: bytes) -> bool:
        raise self._refusal()

    def require_writable(self) -> None:
        raise self._refusal()

    def _refusal(self) -> InvalidRequest:
        return InvalidRequest(
            f"{self.uri} can only be read by this release: a commit there would not be safe against other writers, "
            "since put-if-absent is implemented for local file systems only. Run maintenance where the table is "
            "mounted as a POSIX file system, or wait for a release that writes to this store."
        )

    def list_from(self, directory: str, start_name: str = "") -> Iterator[FileInfo]:
        try:
            with _remote_errors(f"{self.uri}/{directory}"):
                entries = self._fs.ls(self._path(directory), detail=True)
        except FileNotFoundError:
            return
        files = (entry for entry in entries if entry.get("type") == "file")
        for entry in sorted(files, key=lambda e: e["name"].rpartition("/")[2]):
            name = entry["name"].rpartition("/")[2]
            if name >= start_name:
                yield self._info(f"{directory}/{name}" if directory else name, entry)

    def head(self, key: str) -> FileInfo | None:
        try:
            with _remote_errors(f"{self.uri}/{key}"):
                entry = self._fs.info(self._path(key))
        except FileNotFoundError:
            return None
        return self._info(key, entry) if entry.get("type") == "file" else None

    @staticmethod
    def _info(key: str, entry: Mapping[str, Any]) -> FileInfo:
        names = ("LastModified", "mtime", "last_modified", "created")
        modified: Any = next((entry[name] for name in names if entry.get(name)), 0)
        seconds = modified.timestamp() if hasattr(modified, "timestamp") else float(modified)
        return FileInfo(key, key.rpartition("/")[2], int(entry.get("size") or 0), int(seconds * 1000))

    def delete(self, keys: Iterable[str]) -> None:
        raise self._refusal()


class S3Storage(RemoteStorage):
    """S3 and what speaks its protocol: a listing starts where it is asked to, however long the log is."""

    def list_from(self, directory: str, start_name: str = "") -> Iterator[FileInfo]:
        bucket, _, root = self._root.partition("/")
        prefix = "/".join(part for part in (root, directory) if part) + "/"
        # StartAfter excludes its own key; one character less is early enough, and the rest is filtered.
        request = {
            "Bucket": bucket,
            "Prefix": prefix,
            "Delimiter": "/",
            "StartAfter": prefix + start_name[:-1],
        }
        while True:
            with _remote_errors(f"{self.uri}/{directory}"):
                page = self._fs.call_s3("list_objects_v2", **request)
            for entry in page.get("Contents", ()):
                name = entry["Key"][len(prefix) :]
                if name and name >= start_name:
                    key = f"{directory}/{name}" if directory else name
                    yield FileInfo(key, name, entry["Size"], int(entry["LastModified"].timestamp() * 1000))
            if not page.get("IsTruncated"):
                return
            request["ContinuationToken"] = page["NextContinuationToken"]


@contextmanager
def _temporary_file(path: str, data: bytes) -> Iterator[str]:
    """A durable file with that content beside a path, for as long as the block lasts."""
    directory, name = os.path.split(path)
    os.makedirs(directory, exist_ok=True)
    temporary = os.path.join(directory, f".{name[:100]}.{uuid.uuid4().hex}.tmp")
    try:
        with open(temporary, "xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        yield temporary
    finally:
        with suppress(FileNotFoundError):
            os.unlink(temporary)


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


def _named(error: OSError, path: str) -> Exception:
    """The error of a system call as one of this package; absence stays what it is."""
    if isinstance(error, (FileNotFoundError, NotADirectoryError)):
        return FileNotFoundError(path)
    return StorageError(f"{path}: {error.strerror or error}. Check its permissions and the disk.", path)


@contextmanager
def _remote_errors(uri: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise
    except PermissionError as error:
        raise StorageError(
            f"{uri}: access was denied ({error}). Check the credentials and their rights.", uri
        ) from error
    except Exception as error:  # every client library has exceptions of its own
        raise StorageError(f"{uri}: the store failed ({type(error).__name__}: {error}).", uri) from error
