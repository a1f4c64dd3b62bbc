"""Keeps two runs of fleets off one table, or off one memory.

A lease is a file ``_maintenance/_fleet/lease-<number>.json`` in the directory of the table, with its owner and its expiry. The file with
the highest number counts, and is never deleted. A run takes the table by writing the next number, put if absent, once the one before has
expired or was released; of two runs one succeeds. A run that was asleep between looking and writing finds a higher number afterwards,
and gives way. As long as the owner works, a thread renews the lease by further numbers; after a crash it expires soon.

A lease saves work that would be done twice. It does not protect the table: commits do that by themselves.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import msgspec
from msgspec import Struct

from delta_log.catalog.lookup import locate, opening_options
from delta_log.errors import DeltaLogError
from delta_log.runtime import Runtime
from delta_log.storage.opening import open_storage
from delta_log.storage.storage import Storage
from delta_log.storage.table_uri import AllowedRoots, require_within
from delta_maintenance.units import format_time

_DIRECTORY = "_maintenance/_fleet"
_NAME = re.compile(r"lease-(\d{10})\.json")
LEASE_MS = 15 * 60_000
#: By so much clocks of two machines may differ.
CLOCKS_MS = 5 * 60_000


class LeaseNote(Struct, frozen=True):
    """The content of a lease.

    :param owner: id of the run that has it.
    :param expires_ms: moment from which on others may take the table; 0: it was released.
    """

    owner: str
    expires_ms: int


class Held(Struct, frozen=True):
    """The answer where another run is at work."""

    why: str


class Lease:
    """A table that is ours. As a context it renews itself meanwhile, and is released at the end."""

    def __init__(self, storage: Storage, number: int, owner: str, runtime: Runtime, period_ms: int) -> None:
        self._storage, self._number, self._owner = storage, number, owner
        self._runtime, self._period_ms = runtime, period_ms
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._renew_until_ended, name="lease", daemon=True)

    def __enter__(self) -> Lease:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        # A store that does not answer now does not undo the work: the lease expires by itself.
        with suppress(DeltaLogError):
            self.release()

    def renew(self) -> bool:
        """Put the expiry off. ``False``: another run has taken the table, since the lease had expired."""
        return self._follow_with(LeaseNote(self._owner, self._runtime.now_ms() + self._period_ms))

    def release(self) -> None:
        """Let others have the table at once; without it, they have it when the lease expires."""
        self._follow_with(LeaseNote(self._owner, 0))

    def _follow_with(self, note: LeaseNote) -> bool:
        if not self._storage.put_if_absent(_key(self._number + 1), msgspec.json.encode(note)):
            return False
        self._storage.delete([_key(self._number)])
        self._number += 1
        return True

    def _renew_until_ended(self) -> None:
        while not self._ended.wait(self._period_ms / 3000):
            try:
                if not self.renew():
                    return
            except DeltaLogError:
                # The next renewal may reach the store again. Work goes on meanwhile: commits protect the table.
                continue


def take_lease(
    table: str,
    storage_options: Mapping[str, Any],
    owner: str,
    runtime: Runtime,
    period_ms: int = LEASE_MS,
    *,
    takes_over_own: bool = False,
    allowed_roots: AllowedRoots | None = None,
) -> Lease | Held:
    """Take a table for a run.

    :param table: address of the table, or its name in a catalog.
    :param owner: id of the run.
    :param takes_over_own: a lease of the same owner does not count: the process that had it was killed.
    :param allowed_roots: lists of roots below which the table must lie, by who set them.
    :raises DeltaLogError: the table lies elsewhere, its catalog does not know it any more, or the store does not answer.
    """
    place = locate(table, storage_options)
    require_within(place, allowed_roots or {})
    storage = open_storage(place, opening_options(table, storage_options))
    return lease_of(storage, owner, runtime, period_ms, takes_over_own=takes_over_own)


def lease_of(
    storage: Storage,
    owner: str,
    runtime: Runtime,
    period_ms: int = LEASE_MS,
    *,
    takes_over_own: bool = False,
) -> Lease | Held:
    """Take a directory for a run, see :func:`take_lease`."""
    numbers = sorted(_numbers(storage))
    last = numbers[-1] if numbers else 0
    held = _note(storage, last) if numbers else None
    now_ms = runtime.now_ms()
    is_ours = held is not None and takes_over_own and held.owner == owner
    if held is not None and not is_ours and held.expires_ms and now_ms < held.expires_ms + CLOCKS_MS:
        return Held(_why(held))
    note = LeaseNote(owner, now_ms + period_ms)
    if not storage.put_if_absent(_key(last + 1), msgspec.json.encode(note)):
        return Held("Another run began in this moment.")
    if max(_numbers(storage)) > last + 1:
        storage.delete([_key(last + 1)])
        return Held("Other runs have begun meanwhile.")
    storage.delete(_key(number) for number in numbers)
    return Lease(storage, last + 1, owner, runtime, period_ms)


def _why(note: LeaseNote) -> str:
    until = format_time(note.expires_ms + CLOCKS_MS, "%Y-%m-%d %H:%M UTC")
    return f"The run {note.owner} is at work; if it was killed, others may begin after {until}."


def _numbers(storage: Storage) -> list[int]:
    names = (info.key.rpartition("/")[2] for info in storage.list_from(_DIRECTORY))
    return [int(match[1]) for match in map(_NAME.fullmatch, names) if match]


def _note(storage: Storage, number: int) -> LeaseNote:
    """The content of a lease; one that cannot be read counts as released, since no owner of ours writes such."""
    try:
        return msgspec.json.decode(storage.read(_key(number)), type=LeaseNote)
    except (FileNotFoundError, msgspec.DecodeError):
        return LeaseNote("", 0)


def _key(number: int) -> str:
    return f"{_DIRECTORY}/lease-{number:010d}.json"
