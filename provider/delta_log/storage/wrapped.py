"""The base of storages that forward to another storage and change some calls.

Every method and attribute of :class:`~delta_log.storage.storage.Storage` is forwarded, including those with a default, because
the other storage may have a better implementation. A subclass overrides the calls that it changes. It must do so for every
method that reaches the same files (``head`` and ``head_many``, ``put`` and ``copy``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import IO, Any

from delta_log.storage.storage import EnterDirectories, FileInfo, KeySpan, Storage, TreePage


class WrappedStorage(Storage):
    """Forwards every call to another storage, and has its address and abilities."""

    def __init__(self, inner: Storage) -> None:
        self._inner = inner
        for name in Storage.__annotations__:
            setattr(self, name, getattr(inner, name))

    def read(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        return self._inner.read(key, start, length)

    def read_many(self, keys: list[str]) -> Iterator[bytes]:
        return self._inner.read_many(keys)

    def read_into(self, file: IO[bytes], key: str, start: int, length: int) -> int:
        return self._inner.read_into(file, key, start, length)

    def read_whole(self, key: str, target: memoryview) -> bool:
        return self._inner.read_whole(key, target)

    def open_read(self, key: str) -> Any:
        return self._inner.open_read(key)

    def open_write(self, key: str) -> AbstractContextManager[IO[bytes]]:
        return self._inner.open_write(key)

    def put(self, key: str, data: bytes) -> None:
        self._inner.put(key, data)

    def put_if_absent(self, key: str, data: bytes) -> bool:
        return self._inner.put_if_absent(key, data)

    def list_from(self, directory: str, start_name: str = "") -> Iterator[FileInfo]:
        return self._inner.list_from(directory, start_name)

    def list_tree(self, enter: EnterDirectories) -> Iterator[TreePage]:
        return self._inner.list_tree(enter)

    def list_part(self, span: KeySpan, enter: EnterDirectories) -> Iterator[TreePage]:
        return self._inner.list_part(span, enter)

    def list_directories(self, directory: str) -> list[str]:
        return self._inner.list_directories(directory)

    def head(self, key: str) -> FileInfo | None:
        return self._inner.head(key)

    def head_many(self, keys: Sequence[str]) -> Iterator[FileInfo | None]:
        return self._inner.head_many(keys)

    def sizes_and_times(self, keys: Sequence[str]) -> tuple[list[int | None], list[int | None]]:
        return self._inner.sizes_and_times(keys)

    def symbolic_links(self, keys: Sequence[str]) -> Iterator[str | None]:
        return self._inner.symbolic_links(keys)

    def delete(self, keys: Iterable[str]) -> None:
        self._inner.delete(keys)

    def take_back(self, key: str, data: bytes) -> None:
        self._inner.take_back(key, data)

    def copy(self, source: str, target: str) -> bool:
        return self._inner.copy(source, target)

    def remove_dir(self, directory: str) -> bool:
        return self._inner.remove_dir(directory)

    def remove_leftovers(
        self, directories: Iterable[str], now_ms: int, *, dry_run: bool = False
    ) -> list[str]:
        return self._inner.remove_leftovers(directories, now_ms, dry_run=dry_run)

    def require_writable(self) -> None:
        self._inner.require_writable()

    def permissions(self) -> frozenset[str] | None:
        return self._inner.permissions()
