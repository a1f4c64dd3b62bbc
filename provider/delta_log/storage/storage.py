"""The only door to a store: a small seam over local disks and object stores.

Keys are POSIX-style paths relative to the table's root, decoded, without a leading slash, and taken literally. What a
caller may rely on:

1. ``read``, ``open_read``: a missing key is :class:`FileNotFoundError`; any other failure, of any method, is
   :class:`~delta_log.errors.StorageError`.
2. ``put_if_absent`` is atomic and durable: exactly one of any number of callers gets ``True``, and nobody ever sees a
   part of the content. ``False`` says that somebody else's object is there, never that an earlier attempt of this very
   call had put it there: client libraries repeat a request whose answer was lost, and the repetition is refused.
   After a :class:`StorageError` the outcome is not known, and may still change for as long as a request is on its way:
   read back, and never try other content under that key before that.
3. A store on which we cannot promise this refuses (:meth:`Storage.require_writable`), before anything was written.
4. ``open_write`` is for new files under names that nobody else knows. An exception inside its block removes what was
   written; a process that dies leaves at most a file that no log names, which VACUUM finds.
5. Nothing is cached: what another process wrote is seen by the next call.
6. A storage may be used by several threads at once; what ``open_read`` and ``open_write`` give, by one at a time.
7. Nothing outside of the root is read, written or deleted, whatever a key says and whatever lies below the root. Writing
   and deleting refuse a key that is not normalised (:func:`require_key`); reading finds nothing there. On a disk no
   symbolic link below the root is followed: :class:`~delta_log.errors.SymbolicLinkRefused`.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from delta_log.errors import InvalidRequest
from delta_log.storage.table_uri import require_no_credentials

if TYPE_CHECKING:
    from delta_log.storage.object_listing import KeySpan


@dataclass(frozen=True, slots=True)
class FileInfo:
    """One object of a listing.

    :param modification_time_ms: since the epoch, by the store's clock.
    :param tag: tells this content from another one under the same key (an ETag, a generation). ``None``: this store has no
        such thing, or this kind of listing does not give it.
    """

    key: str
    name: str
    size: int
    modification_time_ms: int
    tag: str | None = None

    def is_same_content(self, other: FileInfo) -> bool:
        """Whether both were told of the same object, as far as size, time and tag can tell.

        A listing and a single look at an object may round its time differently, but give the same tag.
        """
        if self.size != other.size:
            return False
        if self.tag is not None and other.tag is not None:
            return self.tag == other.tag
        return self.modification_time_ms == other.modification_time_ms


@dataclass(frozen=True, slots=True)
class TreePage:
    """Some of what lies below a table's root: its files as parallel lists, and some directories.

    :param keys: a list, or an Arrow column of text where a store lists very many at once; see :meth:`names`.
    :param sizes: in bytes; ``None``: this listing does not tell sizes and times, :meth:`Storage.head_many` does.
    :param modification_times_ms: as of :class:`FileInfo`.
    :param directories: those that were entered, and when each was changed last; none where a store has no directories.
    :param others: what is no file and no directory, above all symbolic links, and names that no key spells. Nobody
        follows them and nobody deletes them.
    :param runs: ``keys`` come grouped by the directory that they lie in themselves: how many in each, in their order.
        ``None``: the listing does not tell.
    """

    keys: Any = ()
    sizes: Sequence[int] | None = None
    modification_times_ms: Sequence[int] | None = None
    directories: Mapping[str, int] = field(default_factory=dict)
    others: Sequence[str] = ()
    runs: Mapping[str, int] | None = None

    def names(self) -> list[str]:
        """``keys`` as texts, one by one."""
        return list(self.keys.to_pylist() if hasattr(self.keys, "to_pylist") else self.keys)


#: Of the directories that a listing met, given by their keys, those that it is to look into.
EnterDirectories = Callable[[Sequence[str]], Collection[str]]

#: Over a network, opening a file reads so many bytes from its end: Parquet's footer is there, a small file is here whole, and
#: pieces of a large one are read in requests of this size.
READ_AHEAD_BYTES = 4 << 20


#: In keys that no path of a log spells: empty segments, ``.`` and ``..``, or a NUL.
ODD_KEY = re.compile(r"(^|/)\.{0,2}(/|\Z)|\x00")


def require_key(key: str) -> None:
    """
    :raises InvalidRequest: a key is not normalised, so that its file may be another's, or lie outside of the root.
    """
    if ODD_KEY.search(key):
        raise InvalidRequest(
            f"{key!r} is not a key: it must be a normalised path below the table's root. Nothing was written or deleted."
        )


class Storage(ABC):
    """One table's root on some store; see the module's docstring for what each method promises."""

    #: Address of the root, without a trailing slash.
    uri: str
    #: How many requests at once pay off here.
    concurrency: int = 16
    #: Where one request at a time is best, another thread may all the same read while one lists.
    reads_while_listing: bool = False
    #: Directories are there by themselves, and there may be symbolic links.
    has_directories: bool = False
    #: A listing can start and end at any key.
    has_key_ranges: bool = False

    @abstractmethod
    def read(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        """Bytes from ``start`` on, at most ``length``; what lies beyond the end is left out."""

    @abstractmethod
    def open_read(self, key: str) -> Any:
        """A seekable binary file, as ``pyarrow.parquet`` takes it."""

    @abstractmethod
    def open_write(self, key: str) -> AbstractContextManager[IO[bytes]]:
        """A context manager that gives a binary file under a new name; an exception inside it removes the file."""

    @abstractmethod
    def put(self, key: str, data: bytes) -> None:
        """Write or overwrite, whole."""

    @abstractmethod
    def put_if_absent(self, key: str, data: bytes) -> bool:
        """``False``: somebody else's object was there already, and was left alone."""

    @abstractmethod
    def list_from(self, directory: str, start_name: str = "") -> Iterator[FileInfo]:
        """Files directly in a directory whose names are ``>= start_name``, in byte order of their names.

        An absent directory is empty.
        """

    @abstractmethod
    def list_tree(self, enter: EnterDirectories) -> Iterator[TreePage]:
        """Everything below the root, in any order, streamed.

        :param enter: asked about the directories that are met, and from one thread at a time. A store that lists many
            directories by one request may leave it unasked about those below, and give their files.
        """

    def list_part(self, span: KeySpan, enter: EnterDirectories) -> Iterator[TreePage]:
        """A part of :meth:`list_tree`, for whoever spreads one over several processes.

        :param span: one directory, alone or with all below it; or a part of those, where ``has_key_ranges``.
        :param enter: of a deep span asked as by :meth:`list_tree`; else it is told the directories that were met, and what
            it answers makes no difference.
        """
        top = span.prefix.rstrip("/")

        def within(directories: Sequence[str]) -> list[str]:
            above = [name for name in directories if top == name or top.startswith(f"{name}/")]
            below = [name for name in directories if name.startswith(span.prefix) and name not in above]
            entered = enter(below) if below else ()
            return [*above, *(entered if span.deep else ())]

        for page in self.list_tree(within):
            names = page.names()
            rows = [row for row, name in enumerate(names) if name.startswith(span.prefix)]
            yield TreePage(
                [names[row] for row in rows],
                None if page.sizes is None else [page.sizes[row] for row in rows],
                None
                if page.modification_times_ms is None
                else [page.modification_times_ms[row] for row in rows],
                {
                    name: ms
                    for name, ms in page.directories.items()
                    if name == top or name.startswith(span.prefix)
                },
                [name for name in page.others if name.startswith(span.prefix)],
            )

    @abstractmethod
    def head(self, key: str) -> FileInfo | None: ...

    def head_many(self, keys: Sequence[str]) -> Iterator[FileInfo | None]:
        """:meth:`head` of several keys, in their order, asked concurrently."""
        if self.concurrency < 2 or len(keys) < 2:
            yield from map(self.head, keys)
            return
        with ThreadPoolExecutor(min(self.concurrency, len(keys))) as pool:
            yield from pool.map(self.head, keys)

    def sizes_and_times(self, keys: Sequence[str]) -> tuple[list[int | None], list[int | None]]:
        """Bytes of several keys, and milliseconds since the epoch; null for what is absent, a symbolic link or behind one."""
        infos = list(self.head_many(keys))
        return (
            [None if info is None else info.size for info in infos],
            [None if info is None else info.modification_time_ms for info in infos],
        )

    def symbolic_links(self, keys: Sequence[str]) -> Iterator[str | None]:
        """For each key of a file or directory, there or not, the symbolic link on the way to it: the key of the first one.

        ``None``: there is none.
        """
        yield from (None for _ in keys)

    @abstractmethod
    def delete(self, keys: Iterable[str]) -> None:
        """Delete files; absent ones are no error."""

    def take_back(self, key: str, data: bytes) -> None:
        """Delete what :meth:`put_if_absent` has just created, unless something else is there by now."""
        with suppress(FileNotFoundError):
            if self.read(key) == data:
                self.delete([key])

    def copy(self, source: str, target: str) -> bool:
        """A file under a second name, whole or not at all; made by the store itself, where it can do that.

        :param target: a name that nobody else knows, unless this very copy was begun before.
        :return: ``False``: there is no such file.
        """
        try:
            data = self.read(source)
        except FileNotFoundError:
            return False
        self.put(target, data)
        return True

    def remove_dir(self, directory: str) -> bool:
        """Remove an empty directory, where the store has directories; one that is not empty stays.

        Whether it was removed.
        """
        require_key(directory)
        return False

    def remove_leftovers(
        self, directories: Iterable[str], now_ms: int, *, dry_run: bool = False
    ) -> list[str]:
        """Remove temporary files of this storage's own making that a killed process left a day ago or earlier.

        :param directories: to look in, not below; some may not be there.
        :param now_ms: by the caller's clock. A file has to be that old by the store's clock, too.
        :param dry_run: write and delete nothing; only the caller's clock counts then.
        :return: their keys.
        """
        return []

    def require_writable(self) -> None:
        """Refuse, naming the reason, where :meth:`put_if_absent` cannot be promised."""

    def read_many(self, keys: list[str]) -> Iterator[bytes]:
        """The contents of several keys, in their order, read concurrently."""
        if len(keys) < 2:
            yield from map(self.read, keys)
            return
        with ThreadPoolExecutor(min(self.concurrency, len(keys))) as pool:
            yield from pool.map(self.read, keys)


def is_on_disk(table_uri: str) -> bool:
    """A path, or a ``file`` URI."""
    return _scheme(table_uri) in ("", "file")


def _scheme(table_uri: str) -> str:
    try:
        return urlsplit(table_uri).scheme if "://" in table_uri or table_uri[:5].lower() == "file:" else ""
    except ValueError as error:
        raise InvalidRequest(f"{table_uri} is not a URI ({error}). Check the address.") from error


def open_storage(table_uri: str, storage_options: Mapping[str, Any] | None = None) -> Storage:
    """The store of a table.

    :param table_uri: a local path, ``file://…`` or any URI that fsspec knows (``s3://``, ``gs://``, ``abfs://`` …).
    :param storage_options: passed to the fsspec file system, but for ``lock``, which is ours.
    :raises InvalidRequest: no such kind of store, its package is missing, or the address carries credentials.
    """
    require_no_credentials(table_uri)
    # A store's module is loaded where a table lives on it: client libraries are large.
    scheme = _scheme(table_uri)
    options = dict(storage_options or {})
    lock = options.pop("lock", None)
    if lock is not None:
        return _open_locked(table_uri, scheme, options, lock)
    if is_on_disk(table_uri):
        from delta_log.storage.local import LocalStorage

        return LocalStorage(unquote(urlsplit(table_uri).path) if scheme else table_uri)
    if scheme in ("s3", "s3a"):
        from delta_log.storage.s3 import S3Storage

        return S3Storage(table_uri, options)
    if scheme in ("gs", "gcs"):
        from delta_log.storage.gcs import GcsStorage

        return GcsStorage(table_uri, options)
    if scheme in ("abfs", "abfss", "az"):
        from delta_log.storage.azure import AzureStorage

        return AzureStorage(table_uri, options)
    from delta_log.storage.remote import RemoteStorage

    return RemoteStorage(table_uri, options)


def _open_locked(table_uri: str, scheme: str, options: Mapping[str, Any], lock: Mapping[str, Any]) -> Storage:
    """A store whose commits are coordinated by a lock outside it."""
    from delta_log.storage.locked import open_locked

    return open_locked(table_uri, scheme, options, lock)
