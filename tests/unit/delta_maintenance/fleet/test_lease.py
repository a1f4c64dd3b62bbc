"""Of all runs that want a table, at most one has it, whatever the others do between any two of its requests."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import count
from typing import Any

import pytest

from delta_log.runtime import Runtime
from delta_log.storage.storage import FileInfo
from delta_log.testing import MemoryStorage
from delta_maintenance.fleet.lease import CLOCKS_MS, LEASE_MS, Held, Lease, lease_of

NOW = Runtime(now_ms=lambda: 1_000_000)
LATER = Runtime(now_ms=lambda: 1_000_000 + LEASE_MS + CLOCKS_MS)


class Interrupted(MemoryStorage):
    """The storage of a run that is held up before one of its requests, while others act.

    :param at: number of the request.
    """

    def __init__(self, storage: MemoryStorage, at: int, others: Callable[[], object]) -> None:
        super().__init__(storage.uri)
        self.objects = storage.objects
        self._at, self._others, self._number = at, others, 0

    def _arrive(self) -> None:
        if self._number == self._at:
            self._others()
        self._number += 1

    def list_from(self, directory: str, start_name: str = "") -> Iterator[FileInfo]:
        self._arrive()
        yield from super().list_from(directory, start_name)

    def read(self, key: str, *where: Any) -> bytes:
        self._arrive()
        return super().read(key, *where)

    def put_if_absent(self, key: str, data: bytes) -> bool:
        self._arrive()
        return super().put_if_absent(key, data)

    def delete(self, keys: Iterable[str]) -> None:
        self._arrive()
        super().delete(keys)

    @property
    def has_ended(self) -> bool:
        return self._number <= self._at


def _begun(storage: MemoryStorage) -> None:
    """A directory with a lease that has been taken and released."""
    lease = lease_of(storage, "first", NOW)
    assert isinstance(lease, Lease)
    lease.release()


def _taken(storage: MemoryStorage) -> list[Lease | Held]:
    return [lease_of(storage, "second", NOW)]


def _taken_released_and_taken(storage: MemoryStorage) -> list[Lease | Held]:
    for owner in ("second", "third"):
        lease = lease_of(storage, owner, NOW)
        if isinstance(lease, Lease):
            lease.release()
    return [lease_of(storage, "fourth", NOW)]


def _extend(
    found: list[Lease | Held], others: Callable[[MemoryStorage], list[Lease | Held]], storage: MemoryStorage
) -> None:
    found.extend(others(storage))


@pytest.mark.parametrize("before", [lambda storage: None, _begun])
@pytest.mark.parametrize("others", [_taken, _taken_released_and_taken])
def test_at_most_one_run_has_a_table(
    before: Callable[[MemoryStorage], None], others: Callable[[MemoryStorage], list[Lease | Held]]
) -> None:
    for at in count():
        storage = MemoryStorage()
        before(storage)
        found: list[Lease | Held] = []
        mine = Interrupted(storage, at, partial(_extend, found, others, storage))
        found.append(lease_of(mine, "mine", NOW))
        assert sum(isinstance(one, Lease) for one in found) <= 1
        if mine.has_ended:
            assert at > 3
            return


def test_a_lease_is_held_until_it_is_released() -> None:
    storage = MemoryStorage()
    lease = lease_of(storage, "first", NOW)
    assert isinstance(lease, Lease)
    held = lease_of(storage, "second", NOW)
    assert isinstance(held, Held)
    assert "first" in held.why
    lease.release()
    assert isinstance(lease_of(storage, "second", NOW), Lease)


def test_the_lease_of_a_killed_run_expires() -> None:
    storage = MemoryStorage()
    lease_of(storage, "killed", NOW)
    almost = Runtime(now_ms=lambda: LATER.now_ms() - 1)
    assert isinstance(lease_of(storage, "second", almost), Held)
    assert isinstance(lease_of(storage, "second", LATER), Lease)


def test_a_renewed_lease_is_held_longer() -> None:
    storage, moments = MemoryStorage(), [1_000_000]
    lease = lease_of(storage, "first", Runtime(now_ms=lambda: moments[0]))
    assert isinstance(lease, Lease)
    moments[0] += LEASE_MS
    assert lease.renew()
    assert isinstance(lease_of(storage, "second", LATER), Held)


def test_a_run_that_slept_through_its_lease_cannot_renew_it() -> None:
    storage = MemoryStorage()
    lease = lease_of(storage, "first", NOW)
    assert isinstance(lease, Lease)
    assert isinstance(lease_of(storage, "second", LATER), Lease)
    assert not lease.renew()


def test_one_file_is_left_in_the_directory() -> None:
    storage = MemoryStorage()
    for number in range(3):
        lease = lease_of(storage, f"run {number}", NOW)
        assert isinstance(lease, Lease)
        with lease:
            pass
    assert len(storage.objects) == 1


def test_a_broken_lease_keeps_nobody_out() -> None:
    storage = MemoryStorage()
    storage.put("_maintenance/_fleet/lease-0000000007.json", b"{")
    assert isinstance(lease_of(storage, "first", NOW), Lease)
