"""Doubles at the storage seam, for this project's tests and for those of whoever builds on it.

* :class:`MemoryStorage` keeps every promise of :class:`~delta_log.storage.Storage` in memory;
* :class:`FaultyStorage` wraps any storage and fails at the call that a test chooses;
* :class:`StorageContract` is the suite that every storage has to pass: subclass it and give a ``storage`` fixture.
"""

from __future__ import annotations

import io
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any

import pyarrow as pa

from delta_log.errors import StorageError
from delta_log.storage import FileInfo, Storage


class MemoryStorage(Storage):
    """A store in a dictionary; thread-safe, strongly consistent, with a clock that ticks by one at each write."""

    concurrency = 1

    def __init__(self, uri: str = "memory://table") -> None:
        self.uri = uri
        self.objects: dict[str, tuple[bytes, int]] = {}
        self._lock = threading.Lock()
        self._clock_ms = 0

    def read(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        try:
            data = self.objects[key][0]
        except KeyError:
            raise FileNotFoundError(key) from None
        return data[start : None if length is None else start + length]

    def open_read(self, key: str) -> Any:
        return pa.BufferReader(self.read(key))

    @contextmanager
    def open_write(self, key: str) -> Iterator[Any]:
        buffer = io.BytesIO()
        yield buffer
        if not self.put_if_absent(key, buffer.getvalue()):
            raise StorageError(f"{key} is there already", key)

    def put(self, key: str, data: bytes) -> None:
        with self._lock:
            self._clock_ms += 1
            self.objects[key] = (data, self._clock_ms)

    def put_if_absent(self, key: str, data: bytes) -> bool:
        with self._lock:
            if key in self.objects:
                return False
            self._clock_ms += 1
            self.objects[key] = (data, self._clock_ms)
            return True

    def list_from(self, directory: str, start_name: str = "") -> Iterator[FileInfo]:
        prefix = f"{directory}/" if directory else ""
        with self._lock:
            names = sorted(
                key[len(prefix) :]
                for key in self.objects
                if key.startswith(prefix)
                and "/" not in key[len(prefix) :]
                and key[len(prefix) :] >= start_name
            )
        for name in names:
            info = self.head(prefix + name)
            if info is not None:
                yield info

    def head(self, key: str) -> FileInfo | None:
        found = self.objects.get(key)
        return None if found is None else FileInfo(key, key.rpartition("/")[2], len(found[0]), found[1])

    def delete(self, keys: Iterable[str]) -> None:
        with self._lock:
            for key in keys:
                self.objects.pop(key, None)


class Fault(Exception):
    """What :class:`FaultyStorage` raises where a process is meant to die; nothing in the product catches it."""


class FaultyStorage(Storage):
    """Another storage, with a hook before each call.

    :param before: called with the method's name and its key; what it raises is raised in the place of the call.
    :param after: the same after the call took effect, for outcomes that the caller never learns.
    """

    def __init__(
        self,
        inner: Storage,
        before: Callable[[str, str], None] | None = None,
        after: Callable[[str, str], None] | None = None,
    ) -> None:
        self._inner, self._before, self._after = inner, before, after
        self.uri, self.concurrency = inner.uri, 1

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

    def head(self, key: str) -> FileInfo | None:
        found: FileInfo | None = self._call("head", key, lambda: self._inner.head(key))
        return found

    def delete(self, keys: Iterable[str]) -> None:
        for key in list(keys):
            self._call("delete", key, partial(self._inner.delete, [key]))

    def remove_dir(self, directory: str) -> None:
        self._call("remove_dir", directory, lambda: self._inner.remove_dir(directory))

    def require_writable(self) -> None:
        self._inner.require_writable()


class StorageContract:
    """What :mod:`delta_log.storage` promises, as tests; subclass with a ``storage`` fixture of an empty store."""

    def test_what_is_put_is_read_back_whole_and_in_ranges(self, storage: Storage) -> None:
        storage.put("dir/a", b"0123456789")
        assert storage.read("dir/a") == b"0123456789"
        assert storage.read("dir/a", 3) == b"3456789"
        assert storage.read("dir/a", 3, 4) == b"3456"
        assert storage.read("dir/a", 8, 100) == b"89"
        with storage.open_read("dir/a") as file:
            assert file.read() == b"0123456789"

    def test_put_overwrites(self, storage: Storage) -> None:
        storage.put("a", b"old and longer")
        storage.put("a", b"new")
        assert storage.read("a") == b"new"

    def test_a_missing_key_is_file_not_found(self, storage: Storage) -> None:
        assert storage.head("no/such") is None
        for read in (storage.read, storage.open_read):
            try:
                read("no/such")
            except FileNotFoundError:
                continue
            raise AssertionError(f"{read} did not raise FileNotFoundError")

    def test_put_if_absent_creates_once_and_leaves_the_first_content(self, storage: Storage) -> None:
        assert storage.put_if_absent("log/1", b"mine") is True
        assert storage.put_if_absent("log/1", b"yours") is False
        assert storage.read("log/1") == b"mine"

    def test_of_many_racing_writers_exactly_one_wins_and_its_content_is_whole(self, storage: Storage) -> None:
        bodies = [bytes([65 + n]) * 50_000 for n in range(32)]
        for round_ in range(5):
            key = f"log/{round_}"
            with ThreadPoolExecutor(32) as pool:
                outcomes = list(pool.map(partial(storage.put_if_absent, key), bodies))
            assert sum(outcomes) == 1
            assert storage.read(key) == bodies[outcomes.index(True)]

    def test_listing_is_sorted_starts_where_asked_and_shows_files_of_one_directory(
        self, storage: Storage
    ) -> None:
        for name in ("b", "a", "c.json", "_x", "sub/deep"):
            storage.put(f"log/{name}", name.encode())
        assert [info.name for info in storage.list_from("log")] == ["_x", "a", "b", "c.json"]
        assert [info.name for info in storage.list_from("log", "b")] == ["b", "c.json"]
        assert [(info.key, info.size) for info in storage.list_from("log/sub")] == [("log/sub/deep", 8)]
        assert list(storage.list_from("nowhere")) == []

    def test_no_temporary_file_is_left_and_none_is_listed(self, storage: Storage) -> None:
        storage.put_if_absent("log/1", b"x")
        storage.put_if_absent("log/1", b"y")
        storage.put("log/2", b"z")
        assert [info.name for info in storage.list_from("log")] == ["1", "2"]

    def test_a_new_file_is_written_in_pieces(self, storage: Storage) -> None:
        with storage.open_write("part/data") as file:
            file.write(b"one")
            file.write(b"two")
        assert storage.read("part/data") == b"onetwo"
        info = storage.head("part/data")
        assert info is not None
        assert (info.key, info.name, info.size) == ("part/data", "data", 6)

    def test_a_failed_write_leaves_nothing(self, storage: Storage) -> None:
        try:
            with storage.open_write("part/data") as file:
                file.write(b"half")
                raise Fault
        except Fault:
            pass
        assert storage.head("part/data") is None

    def test_delete_tolerates_absent_keys(self, storage: Storage) -> None:
        storage.put("a", b"1")
        storage.put("b", b"2")
        storage.delete(["a", "never", "b"])
        assert storage.head("a") is None
        assert storage.head("b") is None

    def test_keys_with_odd_characters_are_taken_literally(self, storage: Storage) -> None:
        for key in ("a b/c%20d", "p=a%3Ab/x", "ü/é.parquet", "a#b?c"):
            storage.put(key, key.encode())
            assert storage.read(key) == key.encode()
