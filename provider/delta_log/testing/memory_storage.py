"""A storage in memory, for tests that need no disk."""

from __future__ import annotations

import io
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from delta_log.errors import StorageError
from delta_log.storage.storage import EnterDirectories, FileInfo, Storage, TreePage, require_key


class MemoryStorage(Storage):
    """Keeps every promise of :class:`~delta_log.storage.storage.Storage` in a dictionary.

    It is thread-safe and strongly consistent. Its clock ticks by one millisecond at each write.
    """

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
        require_key(key)
        buffer = io.BytesIO()
        yield buffer
        if not self.put_if_absent(key, buffer.getvalue()):
            raise StorageError(f"{key} is there already", key)

    def put(self, key: str, data: bytes) -> None:
        require_key(key)
        with self._lock:
            self._clock_ms += 1
            self.objects[key] = (data, self._clock_ms)

    def put_if_absent(self, key: str, data: bytes) -> bool:
        require_key(key)
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

    def list_tree(self, enter: EnterDirectories) -> Iterator[TreePage]:
        with self._lock:
            objects = {key: (len(data), time_ms) for key, (data, time_ms) in self.objects.items()}
        remaining = [""]
        while remaining:
            directory = remaining.pop()
            below = [key for key in objects if key.startswith(directory)]
            keys = sorted(key for key in below if "/" not in key[len(directory) :])
            yield TreePage(keys, [objects[key][0] for key in keys], [objects[key][1] for key in keys])
            names = {key[len(directory) :].partition("/")[0] for key in below if "/" in key[len(directory) :]}
            remaining += [f"{entered}/" for entered in enter(sorted(directory + name for name in names))]

    def head(self, key: str) -> FileInfo | None:
        found = self.objects.get(key)
        return None if found is None else FileInfo(key, key.rpartition("/")[2], len(found[0]), found[1])

    def delete(self, keys: Iterable[str]) -> None:
        with self._lock:
            for key in keys:
                require_key(key)
                self.objects.pop(key, None)
