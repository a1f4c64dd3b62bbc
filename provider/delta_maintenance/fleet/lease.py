"""Keeps two runs of fleets off one table.

A lease is a file in the table's maintenance folder, ``_maintenance/_fleet/lease-<number>.json``, with its owner and its expiry. The file
with the highest number counts, and is never deleted. A run takes the table by writing the next number, put if absent, once the one
before has expired or was released; of two runs one succeeds. A run that was asleep between looking and writing finds a higher number
afterwards, and gives way. No clock but the owner's decides while the owner lives: a lease is long, and a taker waits for some
time in addition, for clocks that differ.

A lease saves work that would be done twice. It does not protect the table: commits do that by themselves.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

from delta_log.catalog.lookup import locate, without_catalogs
from delta_log.runtime import Runtime
from delta_log.storage.opening import open_storage
from delta_log.storage.storage import Storage
from delta_maintenance.units import HOUR_MS, format_time

_DIRECTORY = "_maintenance/_fleet"
_NAME = re.compile(r"lease-(\d{10})\.json")
#: Longer than work on a table takes in one window.
LEASE_MS = 12 * HOUR_MS
#: By so much clocks of two machines may differ.
_CLOCKS_MS = 5 * 60_000


class LeaseNote(Struct, frozen=True):
    """The content of a lease.

    :param owner: id of the run that has it.
    :param expires_ms: moment from which on others may take the table; 0: it was released.
    """

    owner: str
    expires_ms: int


class Held(Struct, frozen=True):
    """The answer where another run works on the table."""

    why: str


class Lease(Struct, frozen=True):
    """A table that is ours until we release it."""

    storage: Storage
    number: int
    note: LeaseNote

    def release(self) -> None:
        """Let others have the table at once; without it, they have it once the lease expires."""
        released = LeaseNote(self.note.owner, 0)
        if self.storage.put_if_absent(_key(self.number + 1), msgspec.json.encode(released)):
            self.storage.delete([_key(self.number)])


def take_lease(
    table: str, storage_options: Mapping[str, Any], owner: str, runtime: Runtime, period_ms: int = LEASE_MS
) -> Lease | Held:
    """Take a table for a run.

    :param table: address of the table, or its name in a catalog.
    :param owner: id of the run.
    :raises DeltaLogError: the store does not answer.
    """
    storage = open_storage(locate(table, storage_options), without_catalogs(dict(storage_options)))
    return lease_of(storage, owner, runtime, period_ms)


def lease_of(storage: Storage, owner: str, runtime: Runtime, period_ms: int = LEASE_MS) -> Lease | Held:
    numbers = sorted(_numbers(storage))
    last = numbers[-1] if numbers else 0
    held = _note(storage, last) if numbers else None
    now_ms = runtime.now_ms()
    if held is not None and held.expires_ms and now_ms < held.expires_ms + _CLOCKS_MS:
        return Held(_why(held))
    note = LeaseNote(owner, now_ms + period_ms)
    if not storage.put_if_absent(_key(last + 1), msgspec.json.encode(note)):
        return Held("Another run took the table in this moment.")
    if max(_numbers(storage)) > last + 1:
        storage.delete([_key(last + 1)])
        return Held("Other runs have taken the table meanwhile.")
    storage.delete(_key(number) for number in numbers)
    return Lease(storage, last + 1, note)


def _why(note: LeaseNote) -> str:
    until = format_time(note.expires_ms, "%Y-%m-%d %H:%M UTC")
    return f"Run {note.owner} works on it, until {until} at the latest."


def _numbers(storage: Storage) -> list[int]:
    names = (info.key.rpartition("/")[2] for info in storage.list_from(_DIRECTORY))
    return [int(match[1]) for match in map(_NAME.fullmatch, names) if match]


def _note(storage: Storage, number: int) -> LeaseNote:
    """The content of a lease; one that cannot be read counts as expired, since no owner of ours writes such."""
    try:
        return msgspec.json.decode(storage.read(_key(number)), type=LeaseNote)
    except (FileNotFoundError, msgspec.DecodeError):
        return LeaseNote("", 0)


def _key(number: int) -> str:
    return f"{_DIRECTORY}/lease-{number:010d}.json"
