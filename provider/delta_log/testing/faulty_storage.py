"""A storage that fails at the call that a test chooses."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

from delta_log.storage.storage import EnterDirectories, FileInfo, KeySpan, Storage, TreePage
from delta_log.storage.wrapped import WrappedStorage


class Fault(Exception):
    """Raised by a hook where a process is to die; no code of this distribution catches it."""


class FaultyStorage(WrappedStorage):
    """Forwards each call to another storage, with a hook before and after it. One call is made at a time.

    A method that takes several keys calls the hooks for each key, by the names ``read``, ``head`` and ``delete``.

    :param before: hook that is called with the method's name and its key. An exception that it raises takes the place of the call.
    :param after: hook that is called in the same way when the call has taken effect. An exception that it raises is an answer
        that was lost: the caller does not learn the outcome.
    """

    def __init__(
        self,
        inner: Storage,
        before: Callable[[str, str], None] | None = None,
        after: Callable[[str, str], None] | None = None,
    ) -> None:
        super().__init__(inner)
        self._before, self._after = before, after
        self.concurrency, self.reads_while_listing = 1, False

    def _call(self, name: str, key: str, call: Callable[[], Any]) -> Any:
        if self._before is not None:
            self._before(name, key)
        result = call()
        if self._after is not None:
            self._after(name, key)
        return result

    def read(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        return bytes(self._call("read", key, lambda: self._inner.read(key, start, length)))

    def read_many(self, keys: list[str]) -> Iterator[bytes]:
        return map(self.read, keys)

    def read_into(self, file: Any, key: str, start: int, length: int) -> int:
        return int(self._call("read", key, lambda: self._inner.read_into(file, key, start, length)))

    def open_read(self, key: str) -> Any:
        return self._call("open_read", key, lambda: self._inner.open_read(key))

    def open_write(self, key: str) -> Any:
        return self._call("open_write", key, lambda: self._inner.open_write(key))

    def put(self, key: str, data: bytes) -> None:
        self._call("put", key, lambda: self._inner.put(key, data))

    def put_if_absent(self, key: str, data: bytes) -> bool:
        return bool(self._call("put_if_absent", key, lambda: self._inner.put_if_absent(key, data)))

    def list_from(self, directory: str, start_name: str = "") -> Iterator[FileInfo]:
        return iter(
            self._call("list_from", directory, lambda: list(self._inner.list_from(directory, start_name)))
        )

    def list_tree(self, enter: EnterDirectories) -> Iterator[TreePage]:
        return iter(self._call("list_tree", "", lambda: list(self._inner.list_tree(enter))))

    def list_part(self, span: KeySpan, enter: EnterDirectories) -> Iterator[TreePage]:
        return iter(self._call("list_part", span.prefix, lambda: list(self._inner.list_part(span, enter))))

    def list_directories(self, directory: str) -> list[str]:
        return list(
            self._call("list_directories", directory, lambda: self._inner.list_directories(directory))
        )

    def head(self, key: str) -> FileInfo | None:
        found: FileInfo | None = self._call("head", key, lambda: self._inner.head(key))
        return found

    def head_many(self, keys: Sequence[str]) -> Iterator[FileInfo | None]:
        return map(self.head, keys)

    def sizes_and_times(self, keys: Sequence[str]) -> tuple[list[int | None], list[int | None]]:
        sizes: list[int | None] = []
        times: list[int | None] = []
        for key in keys:
            found = self._call("head", key, partial(self._inner.sizes_and_times, [key]))
            sizes += found[0]
            times += found[1]
        return sizes, times

    def symbolic_links(self, keys: Sequence[str]) -> Iterator[str | None]:
        for key in keys:
            yield self._call("symbolic_links", key, partial(next, self._inner.symbolic_links([key])))

    def delete(self, keys: Iterable[str]) -> None:
        for key in list(keys):
            self._call("delete", key, partial(self._inner.delete, [key]))

    def take_back(self, key: str, data: bytes) -> None:
        Storage.take_back(self, key, data)

    def copy(self, source: str, target: str) -> bool:
        return bool(self._call("copy", source, lambda: self._inner.copy(source, target)))

    def remove_dir(self, directory: str) -> bool:
        return bool(self._call("remove_dir", directory, lambda: self._inner.remove_dir(directory)))

    def remove_leftovers(
        self, directories: Iterable[str], now_ms: int, *, dry_run: bool = False
    ) -> list[str]:
        return list(
            self._call(
                "remove_leftovers",
                "",
                lambda: self._inner.remove_leftovers(directories, now_ms, dry_run=dry_run),
            )
        )


class TornListings(FaultyStorage):
    """Lists a directory as a disk may while others write to it: shows the last of the new files and hides the others.

    :param meanwhile: function that is called during each listing, to write what other writers write at that moment.
    """

    def __init__(self, inner: Storage, meanwhile: Callable[[], None]) -> None:
        super().__init__(inner)
        self._meanwhile = meanwhile

    def list_from(self, directory: str, start_name: str = "") -> Iterator[FileInfo]:
        before = {info.name for info in self._inner.list_from(directory, start_name)}
        self._meanwhile()
        after = list(self._inner.list_from(directory, start_name))
        new = [info for info in after if info.name not in before]
        return (info for info in after if not self.is_hidden(new, info))

    def is_hidden(self, new: list[FileInfo], info: FileInfo) -> bool:
        return info in new[:-1]
