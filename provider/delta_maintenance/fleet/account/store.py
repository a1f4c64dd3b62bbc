"""The place where a fleet keeps its memory: what it remembers, and a file for each of its nights."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from itertools import takewhile
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from delta_log.catalog.lookup import without_catalogs
from delta_log.errors import InvalidRequest
from delta_log.storage.opening import open_storage
from delta_log.storage.storage import Storage
from delta_maintenance.fleet.account.night import NIGHT_VERSION, Night, UnitResult, finished, next_history
from delta_maintenance.fleet.history import FORGOTTEN_AFTER_MS, HISTORY_VERSION, FleetHistory
from delta_maintenance.units import format_time

_HISTORY = "history.json.z"
_NIGHTS = "nights"
#: A fleet of a hundred thousand tables has a tenth of it.
_MAX_BYTES = 4 << 30
_Document = TypeVar("_Document", bound=Struct)


class FleetStore:
    """A directory of files: ``history.json.z``, ``nights/<time>-<run id>.json.z``, and, as long as a night goes on,
    ``results/<run id>/<unit>.json.z``. All are JSON, compressed by zlib.

    One night at a time may write to it; each of its units may be done by another process.
    """

    def __init__(self, storage: Storage) -> None:
        self.storage = storage

    @classmethod
    def open(cls, address: str, storage_options: Mapping[str, Any]) -> FleetStore:
        """
        :param address: path or URI of the directory, which need not exist.
        :raises InvalidRequest: it is no place in a store.
        """
        return cls(open_storage(address, without_catalogs(storage_options)))

    def history(self) -> FleetHistory:
        """What is remembered; nothing, before the first run.

        :raises InvalidRequest: the file is not one of this release.
        """
        if self.storage.head(_HISTORY) is None:
            return FleetHistory()
        found = self._read(_HISTORY, FleetHistory)
        if found.history_version != HISTORY_VERSION:
            raise self._foreign(_HISTORY, f"it has version {found.history_version}")
        return found

    def begin(self, night: Night) -> None:
        """Write a night that has been decided, before anything is done."""
        self.storage.put(_key(night), _packed(night))

    def add(self, night: Night, unit: int, result: UnitResult) -> None:
        """Write what came of a unit of a night. Any process may do so.

        :param unit: number of the unit within the decision.
        """
        self.storage.put(_result_key(night, unit), _packed(result))

    def result(self, night: Night, unit: int) -> UnitResult | None:
        """What came of a unit so far; ``None``: no process has written anything."""
        key = _result_key(night, unit)
        return None if self.storage.head(key) is None else self._read(key, UnitResult)

    def finish(self, night: Night, now_ms: int) -> Night:
        """Account for a night: its results so far become part of it, and of what is remembered. Nights of more than 90 days before
        are deleted.

        If the process ends in between, the next run finishes the night.
        """
        results = {_unit_of(file.name): file.key for file in self.storage.list_from(_results_of(night))}
        found = {number: self._read(key, UnitResult) for number, key in results.items()}
        whole = finished(night, found, now_ms)
        self.storage.put(_HISTORY, _packed(next_history(whole)))
        self.storage.put(_key(whole), _packed(whole))
        self.storage.delete([*results.values(), *self._old_nights(night.started_ms - FORGOTTEN_AFTER_MS)])
        return whole

    def _old_nights(self, before_ms: int) -> Iterator[str]:
        last = f"{_NIGHTS}/{_moment(before_ms)}"
        return takewhile(lambda key: key < last, (file.key for file in self.storage.list_from(_NIGHTS)))

    def unfinished_night(self) -> Night | None:
        """The newest night, if its run was killed or still goes on."""
        night = self.newest_night()
        return None if night is None or night.is_finished else night

    def nights(self, since_ms: int) -> Iterator[Night]:
        """The nights that began at a moment or later, oldest first."""
        for file in self.storage.list_from(_NIGHTS, _moment(since_ms)):
            yield self._night(file.key)

    def newest_night(self) -> Night | None:
        """The night that began last; ``None``: there was none."""
        newest = max((file.key for file in self.storage.list_from(_NIGHTS)), default=None)
        return None if newest is None else self._night(newest)

    def night(self, run_id: str) -> Night:
        """The night of a run.

        :raises InvalidRequest: there is none.
        """
        ending = f"-{run_id}.json.z"
        keys = [file.key for file in self.storage.list_from(_NIGHTS) if file.key.endswith(ending)]
        if not keys:
            raise InvalidRequest(f"{self.storage.uri} holds no night {run_id}. Was its file deleted?")
        return self._night(keys[0])

    def _night(self, key: str) -> Night:
        night = self._read(key, Night)
        if night.night_version != NIGHT_VERSION:
            raise self._foreign(key, f"it has version {night.night_version}")
        return night

    def _read(self, key: str, kind: type[_Document]) -> _Document:
        try:
            unpacked = zlib.decompressobj().decompress(self.storage.read(key), _MAX_BYTES)
            return msgspec.json.decode(unpacked, type=kind)
        except (zlib.error, msgspec.DecodeError) as error:
            raise self._foreign(key, str(error)) from None

    def _foreign(self, key: str, why: str) -> InvalidRequest:
        return InvalidRequest(
            f"{self.storage.uri}/{key} cannot be read as memory of a fleet: {why}. Was it written by another release? Name another "
            "directory for the state, or delete the file: the fleet then begins anew, and reports every table before it changes it."
        )


def _moment(time_ms: int) -> str:
    """A moment in names of files, which sort by it."""
    return f"{format_time(time_ms, '%Y%m%dT%H%M%S')}.{time_ms % 1000:03}Z"


def _key(night: Night) -> str:
    return f"{_NIGHTS}/{_moment(night.started_ms)}-{night.run_id}.json.z"


def _results_of(night: Night) -> str:
    return f"results/{night.run_id}"


def _result_key(night: Night, unit: int) -> str:
    return f"{_results_of(night)}/{unit:06d}.json.z"


def _unit_of(name: str) -> int:
    """The number of the unit of a result."""
    return int(name.partition(".")[0])


def history_at(address: str | None, storage_options: Mapping[str, Any]) -> FleetHistory:
    """What is remembered at a place; nothing, where none is named."""
    return FleetHistory() if address is None else FleetStore.open(address, storage_options).history()


def _packed(document: Struct) -> bytes:
    return zlib.compress(msgspec.json.encode(document))
