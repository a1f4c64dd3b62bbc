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
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from typing import IO, Any

from delta_log.arrow.prefetch import map_ordered
from delta_log.errors import InvalidRequest


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


@dataclass(frozen=True, slots=True)
class KeySpan:
    """The keys that begin with a prefix and lie in ``[start, end)``.

    :param prefix: empty, or with a slash at its end.
    :param deep: includes all keys below the directories of the prefix. Otherwise the listing names those directories.
    :param start: must not be a key itself, because some stores leave out the key that a listing starts at.
    :param end: ``None``: no upper bound.
    """

    prefix: str
    deep: bool = False
    start: str = ""
    end: str | None = None


#: Given the keys of the directories that a listing met, returns those to descend into.
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
        """Yields :meth:`head` of each key, in the order of the keys; asks for several at once."""
        return map_ordered(self.head, keys, min(self.concurrency, len(keys)))

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
        """Yields the content of each key, in the order of the keys; reads several at once."""
        return map_ordered(self.read, keys, min(self.concurrency, len(keys)))
