"""The contract between this package and a store: a local disk or an object store.

A key is a POSIX-style path relative to the table's root. It is decoded, has no leading slash, and is taken literally.
Callers may rely on these promises:

1. ``read`` and ``open_read`` raise :class:`FileNotFoundError` for a missing key. Every other failure, in any method, is a
   :class:`~delta_log.errors.StorageError`.
2. ``put_if_absent`` is atomic and durable. Exactly one of any number of callers gets ``True``, and no reader sees a part of
   the content. ``False`` means that another writer's object is there. It never means that an earlier attempt of the same
   call created it: client libraries repeat a request whose answer was lost, and the store refuses the repetition.
   After a :class:`StorageError` the outcome is unknown, and may change while a request is still on its way. The caller
   reads the key back before it tries other content under that key.
3. A store that cannot keep promise 2 refuses before anything is written (:meth:`Storage.require_writable`).
4. ``open_write`` creates a file under a name that only the caller knows. An exception inside its block removes the file. A
   process that dies leaves at most a file that no log names, which VACUUM finds.
5. Nothing is cached: the next call sees what another process wrote.
6. Several threads may use one storage at once. One thread at a time uses a file from ``open_read`` or ``open_write``.
7. Nothing outside the root is read, written or deleted, whatever a key says and whatever lies below the root. Writing and
   deleting refuse a key that is not normalised (:func:`require_key`); reading such a key finds nothing. On a disk, no
   symbolic link below the root is followed: :class:`~delta_log.errors.SymbolicLinkRefused`.

:mod:`delta_log.storage.opening` chooses the implementation for an address.
"""

from __future__ import annotations

import re
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from typing import IO, Any

from msgspec import Struct, field

from delta_log.arrow.prefetch import map_ordered
from delta_log.errors import InvalidRequest


class FileInfo(Struct, frozen=True):
    """One object of a listing.

    :param modification_time_ms: milliseconds since the epoch, by the store's clock.
    :param tag: text that changes with the content under the same key (an ETag, a generation). ``None``: the store has no tags,
        or this kind of listing does not give them.
    """

    key: str
    name: str
    size: int
    modification_time_ms: int
    tag: str | None = None

    @classmethod
    def of(cls, key: str, size: int, modified_seconds: float, tag: str | None = None) -> FileInfo:
        """
        :param modified_seconds: time of the last change, in seconds since the epoch.
        :param tag: tag as the store gives it; some listings leave out its quotation marks.
        """
        name, time_ms = key.rpartition("/")[2], int(modified_seconds * 1000)
        return cls(key, name, size, time_ms, tag.strip('"') if tag else None)

    def is_same_content(self, other: FileInfo) -> bool:
        """Whether both describe the same content, as far as size, time and tag show.

        A listing and ``head`` may round the time of an object differently, but give the same tag.
        """
        if self.size != other.size:
            return False
        if self.tag is not None and other.tag is not None:
            return self.tag == other.tag
        return self.modification_time_ms == other.modification_time_ms


class TreePage(Struct, frozen=True):
    """A part of a listing of the table's root: files as parallel lists, and directories.

    :param keys: a list, or an Arrow column where a store lists very many at once; see :meth:`names`.
    :param sizes: sizes in bytes; ``None``: this listing has no sizes and times; ask :meth:`Storage.head_many`.
    :param modification_times_ms: times as in :class:`FileInfo`.
    :param directories: directories that the listing entered, each with the time of its last change; empty where a store has no
        directories.
    :param others: entries that are neither file nor directory, above all symbolic links, and names that no key spells. They
        are never followed and never deleted.
    :param runs: number of keys of each directory, where ``keys`` come grouped by directory, in the same order. ``None``: they
        do not.
    """

    keys: Any = ()
    sizes: Sequence[int] | None = None
    modification_times_ms: Sequence[int] | None = None
    directories: Mapping[str, int] = field(default_factory=dict)
    others: Sequence[str] = ()
    runs: Mapping[str, int] | None = None

    @classmethod
    def of_files(cls, files: Sequence[FileInfo], others: Sequence[str] = ()) -> TreePage:
        return cls(
            [info.key for info in files],
            [info.size for info in files],
            [info.modification_time_ms for info in files],
            others=others,
        )

    def names(self) -> list[str]:
        """Return ``keys`` as a list of texts."""
        return list(self.keys.to_pylist() if hasattr(self.keys, "to_pylist") else self.keys)


class KeySpan(Struct, frozen=True):
    """The keys that begin with a prefix and lie in ``[start, end)``.

    :param prefix: prefix of the keys: empty, or with a slash at its end.
    :param deep: ``True`` includes all keys below the directories of the prefix. Otherwise the listing names those directories.
    :param start: lower bound. It must not be a key itself, because some stores leave out the key that a listing starts at.
    :param end: ``None``: no upper bound.
    """

    prefix: str
    deep: bool = False
    start: str = ""
    end: str | None = None


#: Given the keys of the directories that a listing met, returns those to descend into.
EnterDirectories = Callable[[Sequence[str]], Collection[str]]

#: Over a network, opening a file reads this many bytes from its end, and further requests have this size. The end of a Parquet
#: file holds its footer, and a small file is read whole.
READ_AHEAD_BYTES = 4 << 20


#: Bytes of one request where many are copied, and the most requests at once. Twice as many answers wait in memory.
_PIECE_BYTES = 4 << 20
_PIECES_AT_ONCE = 4

#: Matches a key that no path of a log spells: with an empty segment, ``.``, ``..``, or a NUL.
ODD_KEY = re.compile(r"(^|/)\.{0,2}(/|\Z)|\x00")


def require_key(key: str) -> None:
    """
    :raises InvalidRequest: the key is not normalised. It may name the file of another key, or a file outside the root.
    """
    if ODD_KEY.search(key):
        raise InvalidRequest(
            f"{key!r} is not a key: it must be a normalised path below the table's root. Nothing was written or deleted."
        )


class RequestCount:
    """Counts the requests that this process makes to object stores: S3, Google Cloud Storage and Azure Storage. Any thread may use it.

    Repetitions that a client library makes by itself are not counted.
    """

    def __init__(self) -> None:
        self.total = 0
        self._lock = threading.Lock()

    def add(self, number: int = 1) -> None:
        with self._lock:
            self.total += number


#: The requests of this process.
REQUESTS = RequestCount()


class Storage(ABC):
    """The root of one table on a store; the module's docstring has the promises of its methods."""

    #: Address of the root, without a trailing slash.
    uri: str
    #: How many requests at once are worthwhile.
    concurrency: int = 16
    #: Whether reading in one thread while another lists is worthwhile, even if ``concurrency`` is 1.
    reads_while_listing: bool = False
    #: Whether the store has directories of its own, and perhaps symbolic links.
    has_directories: bool = False
    #: Whether a listing can start and end at any key.
    has_key_ranges: bool = False

    @abstractmethod
    def read(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        """Read bytes from ``start`` on, at most ``length``, up to the end of the file."""

    def read_into(self, file: IO[bytes], key: str, start: int, length: int) -> int:
        """Append bytes of a file to a new one, in little memory and by the shortest way that the store has.

        :param file: file from :meth:`open_write` of this storage.
        :return: the number of bytes; fewer than ``length`` only at the end of the file.
        """
        pieces = [
            (at, min(_PIECE_BYTES, start + length - at)) for at in range(start, start + length, _PIECE_BYTES)
        ]
        copied = 0
        threads = min(self.concurrency, _PIECES_AT_ONCE, len(pieces))
        for data in map_ordered(lambda piece: self.read(key, *piece), pieces, threads):
            file.write(data)
            copied += len(data)
        return copied

    def read_whole(self, key: str, target: memoryview) -> bool:
        """Read a file into memory, and return whether it has the length of the target."""
        with self.open_read(key) as source:
            return filled_from(source, target)

    @abstractmethod
    def open_read(self, key: str) -> Any:
        """Open a seekable binary file for ``pyarrow.parquet``."""

    @abstractmethod
    def open_write(self, key: str) -> AbstractContextManager[IO[bytes]]:
        """Return a context manager for a new binary file; an exception inside its block removes the file."""

    @abstractmethod
    def put(self, key: str, data: bytes) -> None:
        """Write or overwrite a file as a whole."""

    @abstractmethod
    def put_if_absent(self, key: str, data: bytes) -> bool:
        """Create a file as a whole. ``False``: another writer's object was there, and was left alone."""

    @abstractmethod
    def list_from(self, directory: str, start_name: str = "") -> Iterator[FileInfo]:
        """Yield the files directly in a directory whose names are ``>= start_name``, in byte order.

        An absent directory is empty.
        """

    @abstractmethod
    def list_tree(self, enter: EnterDirectories) -> Iterator[TreePage]:
        """Yield everything below the root, in any order.

        :param enter: function that chooses the directories to descend into; called from one thread at a time. A store that
            lists many directories by one request may list directories below an entered one without asking.
        """

    def list_part(self, span: KeySpan, enter: EnterDirectories) -> Iterator[TreePage]:
        """Yield a part of :meth:`list_tree`, so that several processes can share one listing.

        :param span: one directory, alone or with all below it. Where ``has_key_ranges``, it may be a range of their keys.
        :param enter: function that chooses the directories of a deep span, as for :meth:`list_tree`. For another span it is called
            with the directories that the listing met, and its answer is ignored.
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

    def list_directories(self, directory: str) -> list[str]:
        """Return the keys of the directories directly in a directory, in byte order. An absent directory has none."""
        found: list[str] = []

        def note(directories: Sequence[str]) -> Collection[str]:
            found.extend(directories)
            return ()

        for _ in self.list_part(KeySpan(f"{directory}/" if directory else ""), note):
            pass
        return sorted(found)

    @abstractmethod
    def head(self, key: str) -> FileInfo | None: ...

    def head_many(self, keys: Sequence[str]) -> Iterator[FileInfo | None]:
        """Yield :meth:`head` of each key, in the order of the keys; ask for several at once."""
        return map_ordered(self.head, keys, min(self.concurrency, len(keys)))

    def sizes_and_times(self, keys: Sequence[str]) -> tuple[list[int | None], list[int | None]]:
        """Return the sizes of several keys, and their times in milliseconds since the epoch.

        Both are null for a key that is absent, or that is or lies behind a symbolic link.
        """
        infos = list(self.head_many(keys))
        return (
            [None if info is None else info.size for info in infos],
            [None if info is None else info.modification_time_ms for info in infos],
        )

    def symbolic_links(self, keys: Sequence[str]) -> Iterator[str | None]:
        """Yield for each key the key of the first symbolic link on the path to it, or ``None``.

        A key may name a file or a directory, and need not exist.
        """
        yield from (None for _ in keys)

    @abstractmethod
    def delete(self, keys: Iterable[str]) -> None:
        """Delete files; an absent file is no error."""

    def take_back(self, key: str, data: bytes) -> None:
        """Delete what :meth:`put_if_absent` has just created, unless the key has other content by now."""
        with suppress(FileNotFoundError):
            if self.read(key) == data:
                self.delete([key])

    def copy(self, source: str, target: str) -> bool:
        """Copy a file, whole or not at all, by a request to the store where it has one.

        :param target: a name that only this caller knows. An earlier attempt of the same copy may have written it.
        :return: ``False``: there is no such file.
        """
        try:
            data = self.read(source)
        except FileNotFoundError:
            return False
        self.put(target, data)
        return True

    def remove_dir(self, directory: str) -> bool:
        """Remove a directory if the store has directories and this one is empty.

        :return: whether it was removed.
        """
        require_key(directory)
        return False

    def remove_leftovers(
        self, directories: Iterable[str], now_ms: int, *, dry_run: bool = False
    ) -> list[str]:
        """Remove temporary files of this storage that a killed process left a day ago or earlier.

        :param directories: directories to look in, without the directories below; some may be absent.
        :param now_ms: time by the caller's clock. A file must be a day old by the store's clock, too.
        :param dry_run: ``True`` writes and deletes nothing, and uses the caller's clock alone.
        :return: the keys of the files.
        """
        return []

    def require_writable(self) -> None:
        """Refuse, with the reason, where :meth:`put_if_absent` cannot keep its promise.

        :raises InvalidRequest: it cannot.
        """

    def permissions(self) -> frozenset[str] | None:
        """Return the maintenance that the catalog permits which ratifies the table's commits; ``None``: no catalog does."""
        return None

    def read_many(self, keys: list[str]) -> Iterator[bytes]:
        """Yield the content of each key, in the order of the keys; read several at once."""
        return map_ordered(self.read, keys, min(self.concurrency, len(keys)))


def filled_from(source: Any, target: memoryview) -> bool:
    """Read a file from its beginning, and return whether it has the length of the target.

    :param source: file from :meth:`Storage.open_read`.
    """
    source.seek(0)
    return source.readinto(target) == len(target) and not source.read(1)
