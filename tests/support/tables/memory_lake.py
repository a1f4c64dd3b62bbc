"""A bucket in memory with many tables, which counts the calls that reach it and fails where it is told to."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from delta_log.errors import StorageError
from delta_log.storage.storage import Storage
from delta_log.testing import FaultyStorage, MemoryStorage

#: A commit that makes a table of no columns.
COMMIT = (
    b'{"protocol":{"minReaderVersion":1,"minWriterVersion":2}}\n'
    b'{"metaData":{"id":"5fba94ed-9794-4965-ba6e-6ee3c0d22af9","format":{"provider":"parquet","options":{}},'
    b'"schemaString":"{\\"type\\":\\"struct\\",\\"fields\\":[]}","partitionColumns":[],"configuration":{}}}\n'
)


class MemoryLake:
    """A bucket; its tables are opened by :meth:`open`.

    :ivar objects: contents and times in milliseconds, by address.
    :ivar calls: calls that reached the bucket, each with the address that it was about.
    :ivar failing: function that says whether a call, given by its number, fails.
    """

    def __init__(self) -> None:
        self.objects: dict[str, tuple[bytes, int]] = {}
        self.calls: list[tuple[str, str]] = []
        self.failing: Callable[[int], bool] = lambda number: False

    def put(self, address: str, data: bytes = b"") -> None:
        self.objects[address] = (data, len(self.objects) + 1)

    def put_table(self, address: str, directory: Path | None = None) -> None:
        """Put a table of a disk, or one without columns."""
        if directory is None:
            self.put(f"{address}/_delta_log/{0:020}.json", COMMIT)
            return
        for path in sorted(path for path in directory.rglob("*") if path.is_file()):
            known = self.objects.get(f"{address}/{path.relative_to(directory).as_posix()}")
            if known is None or known[0] != path.read_bytes():
                self.put(f"{address}/{path.relative_to(directory).as_posix()}", path.read_bytes())

    def open(self, address: str) -> Storage:
        storage, prefix = MemoryStorage(address), f"{address}/"
        storage.objects = {
            key[len(prefix) :]: value for key, value in self.objects.items() if key.startswith(prefix)
        }

        def before(name: str, key: str) -> None:
            number = len(self.calls)
            self.calls.append((name, f"{prefix}{key}".rstrip("/")))
            if self.failing(number):
                raise StorageError(f"{prefix}{key}: the store is out of order. Run again.", prefix + key)

        return FaultyStorage(storage, before)
