"""Lock tables for tests, and the tests that every lock table has to pass."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from delta_log.storage.lock.dynamodb_lock import LockEntry, LockTable

_FIRST = f"{0:020d}.json"


class MemoryLockTable(LockTable):
    """Keeps every promise of :class:`~delta_log.storage.lock.dynamodb_lock.LockTable` in a dictionary. It is thread-safe."""

    def __init__(self) -> None:
        self.entries: dict[str, LockEntry] = {}
        self._lock = threading.Lock()

    def get(self, file_name: str) -> LockEntry | None:
        return self.entries.get(file_name)

    def latest(self) -> LockEntry | None:
        with self._lock:
            return self.entries[max(self.entries)] if self.entries else None

    def put_if_absent(self, entry: LockEntry) -> bool:
        with self._lock:
            return self.entries.setdefault(entry.file_name, entry) is entry

    def complete(self, entry: LockEntry, expire_time_s: int) -> None:
        with self._lock:
            if self.entries.get(entry.file_name) == entry and not entry.complete:
                self.entries[entry.file_name] = entry.completed(expire_time_s)


class FaultyLockTable(LockTable):
    """Forwards each call to another lock table, with hooks as in :class:`~delta_log.testing.FaultyStorage`."""

    def __init__(
        self,
        inner: LockTable,
        before: Callable[[str, str], None] | None = None,
        after: Callable[[str, str], None] | None = None,
    ) -> None:
        self._inner, self._before, self._after = inner, before, after

    def _call(self, name: str, file_name: str, call: Callable[[], Any]) -> Any:
        if self._before is not None:
            self._before(name, file_name)
        result = call()
        if self._after is not None:
            self._after(name, file_name)
        return result

    def get(self, file_name: str) -> LockEntry | None:
        found: LockEntry | None = self._call("lock.get", file_name, lambda: self._inner.get(file_name))
        return found

    def latest(self) -> LockEntry | None:
        found: LockEntry | None = self._call("lock.latest", "", self._inner.latest)
        return found

    def put_if_absent(self, entry: LockEntry) -> bool:
        return bool(
            self._call("lock.put_if_absent", entry.file_name, lambda: self._inner.put_if_absent(entry))
        )

    def complete(self, entry: LockEntry, expire_time_s: int) -> None:
        self._call("lock.complete", entry.file_name, lambda: self._inner.complete(entry, expire_time_s))

    def require_usable(self) -> None:
        self._inner.require_usable()


class LockTableContract:
    """Tests the promises of :class:`~delta_log.storage.lock.dynamodb_lock.LockTable`.

    A subclass gives a ``lock`` fixture, which returns an empty lock table.
    """

    def test_an_empty_table_has_no_entry(self, lock: LockTable) -> None:
        lock.require_usable()
        assert lock.latest() is None
        assert lock.get(_FIRST) is None

    def test_an_entry_is_created_once_and_keeps_its_first_content(self, lock: LockTable) -> None:
        mine = LockEntry(_FIRST, ".tmp/mine")
        assert lock.put_if_absent(mine) is True
        assert lock.put_if_absent(LockEntry(_FIRST, ".tmp/yours")) is False
        assert lock.get(_FIRST) == lock.latest() == mine

    def test_the_latest_entry_has_the_greatest_name(self, lock: LockTable) -> None:
        for version in (2, 10, 9):
            assert lock.put_if_absent(LockEntry(f"{version:020d}.json", "x"))
        latest = lock.latest()
        assert latest is not None
        assert latest.file_name == f"{10:020d}.json"

    def test_an_entry_becomes_complete_once(self, lock: LockTable) -> None:
        entry = LockEntry(_FIRST, ".tmp/mine")
        lock.put_if_absent(entry)
        lock.complete(entry, 1000)
        lock.complete(entry, 2000)
        assert lock.get(_FIRST) == LockEntry(_FIRST, ".tmp/mine", True, 1000)

    def test_an_entry_that_is_gone_or_another_is_left_alone(self, lock: LockTable) -> None:
        lock.complete(LockEntry(_FIRST, ".tmp/mine"), 1000)
        assert lock.get(_FIRST) is None
        lock.put_if_absent(LockEntry(_FIRST, ".tmp/yours"))
        lock.complete(LockEntry(_FIRST, ".tmp/mine"), 1000)
        assert lock.get(_FIRST) == LockEntry(_FIRST, ".tmp/yours")

    def test_of_many_racing_writers_exactly_one_has_the_entry(self, lock: LockTable) -> None:
        for version in range(5):
            entries = [LockEntry(f"{version:020d}.json", f".tmp/{n}") for n in range(32)]
            with ThreadPoolExecutor(32) as pool:
                outcomes = list(pool.map(lock.put_if_absent, entries))
            assert sum(outcomes) == 1
            assert lock.latest() == entries[outcomes.index(True)]
