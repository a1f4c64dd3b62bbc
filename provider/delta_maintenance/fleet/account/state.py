"""The place where a fleet keeps its memory: what it remembers, and a file for each of its nights."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from delta_log.errors import InvalidRequest
from delta_log.storage.opening import open_storage
from delta_log.storage.storage import Storage
from delta_maintenance.fleet.account.night import NIGHT_VERSION, Night
from delta_maintenance.fleet.history import HISTORY_VERSION, FleetHistory
from delta_maintenance.units import format_time

_HISTORY = "history.json.z"
_NIGHTS = "nights"
#: A fleet of a hundred thousand tables has a tenth of it.
_MAX_BYTES = 4 << 30
_Document = TypeVar("_Document", bound=Struct)


class FleetStore:
    """A directory of files: ``history.json.z``, and ``nights/<time>-<run id>.json.z``. All are JSON, compressed by zlib.

    One run at a time may write to it.
    """

    def __init__(self, storage: Storage) -> None:
        self.storage = storage

    @classmethod
    def open(cls, address: str, storage_options: Mapping[str, Any]) -> FleetStore:
        """
        :param address: path or URI of the directory, which need not exist.
        :raises InvalidRequest: it is no place in a store.
        """
        return cls(open_storage(address, storage_options))

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

    def keep(self, night: Night, history: FleetHistory) -> str:
        """Write a night, and then the history that follows from it; return the key of the night.

        If the process ends in between, the next run decides by the older history: it reports once more, and repeats no work, since it
        surveys the tables anew.
        """
        key = f"{_NIGHTS}/{format_time(night.started_ms, '%Y%m%dT%H%M%SZ')}-{night.run_id}.json.z"
        self.storage.put(key, _packed(night))
        self.storage.put(_HISTORY, _packed(history))
        return key

    def nights(self, since_ms: int) -> Iterator[Night]:
        """The nights that began at a moment or later, oldest first."""
        first = format_time(since_ms, "%Y%m%dT%H%M%SZ")
        for file in self.storage.list_from(_NIGHTS, first):
            night = self._read(file.key, Night)
            if night.night_version != NIGHT_VERSION:
                raise self._foreign(file.key, f"it has version {night.night_version}")
            yield night

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


def _packed(document: Struct) -> bytes:
    return zlib.compress(msgspec.json.encode(document))
