"""Reads which tables watchers know from Airflow's metadata database.

A watcher keeps its place in the log of each of its tables in the state store of its asset (:mod:`airflow_delta.watch_memory`). Airflow
keeps the entries as long as there is the asset, also the entries of tables that are not watched any more. So an entry counts
only for the tables that a watcher of the asset has among its arguments today.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from airflow.models.asset import AssetModel, AssetWatcherModel
from airflow.models.asset_state_store import AssetStateStoreModel
from airflow.models.trigger import Trigger
from msgspec import Struct
from sqlalchemy import or_, select

from airflow_delta import watch_memory
from airflow_delta.monitoring.fleet import Watch
from airflow_delta.monitoring.record import table_id
from delta_log.storage.table_uri import one_spelling
from delta_maintenance.contract_json import storable

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

#: Who has written an entry of a state store, in Airflow's words. Not what a caller of its REST API has put there.
_WATCHER = "watcher"
_TRIGGERS_AT_ONCE = 500


class Watcher(Struct, frozen=True):
    """What a watcher looks at.

    :param prefix: prefix of the watcher's keys; ``None`` for trigger classes of other packages, including subclasses of ours.
    :param tables: addresses and names, as :class:`~airflow_delta.triggers.table_event_trigger.TableEventTrigger` takes them; ``None``: its
        arguments cannot be read.
    """

    prefix: str | None
    tables: Sequence[str] | None

    def knows(self, prefix: str, table: str) -> bool:
        if self.prefix not in (None, prefix):
            return False
        if self.tables is None:
            return True
        return any(
            table.rpartition("/")[0] == one[:-2] if one.endswith("/*") else table == (one.rstrip("/") or "/")
            for one in self.tables
        )


class WatchedTables:
    """What all watchers remember; a trigger's arguments are read once."""

    def __init__(self) -> None:
        #: By number and time of the trigger.
        self._watchers: dict[tuple[Any, ...], Watcher] = {}

    def read(self, session: Session) -> dict[str, tuple[str, Watch]]:
        """By digest of the table, its address and what a watcher remembers of it: rather one for versions, which looks at each, than one that measures."""
        by_asset = self._by_asset(session)
        found: dict[str, tuple[tuple[bool, int, str], Watch]] = {}
        for asset_id, asset, key, content in session.execute(_entries()):
            prefix = key.rpartition(".")[0]
            watchers = by_asset.get(asset_id, ())
            for table, remembered in _remembered(content).items():
                if not any(watcher.knows(prefix, table) for watcher in watchers):
                    continue
                version = watch_memory.version_of(remembered)
                rank = (prefix == watch_memory.VERSIONS, -1 if version is None else version, asset)
                address = one_spelling(str(storable(table)))
                if address not in found or found[address][0] < rank:
                    found[address] = rank, Watch(asset, version)
        return {table_id(address): (address, watch) for address, (_, watch) in found.items()}

    def _by_asset(self, session: Session) -> dict[int, list[Watcher]]:
        rows = session.execute(
            select(AssetWatcherModel.asset_id, Trigger.id, Trigger.created_date).join(
                Trigger, Trigger.id == AssetWatcherModel.trigger_id
            )
        ).all()
        # Airflow makes another trigger if the arguments change. SQLite may give it the number of one that is gone.
        triggers = {(number, made): number for _, number, made in rows}
        self._watchers = {key: held for key, held in self._watchers.items() if key in triggers}
        unread = sorted(number for key, number in triggers.items() if key not in self._watchers)
        for first in range(0, len(unread), _TRIGGERS_AT_ONCE):
            some = unread[first : first + _TRIGGERS_AT_ONCE]
            for trigger in session.scalars(select(Trigger).where(Trigger.id.in_(some))):
                self._watchers[trigger.id, trigger.created_date] = _watcher(trigger)
        found: dict[int, list[Watcher]] = {}
        for asset_id, *key in rows:
            watcher = self._watchers.get(tuple(key))
            if watcher is not None:
                found.setdefault(asset_id, []).append(watcher)
        return found


def _entries() -> Any:
    """Asset, name of the asset, key and JSON text of each entry with places."""
    entry = AssetStateStoreModel
    keys = (
        entry.key.like(f"{prefix.replace('_', '/_')}.__", escape="/")
        for prefix in watch_memory.PREFIXES.values()
    )
    return (
        select(entry.asset_id, AssetModel.name, entry.key, entry.value)
        .join(AssetModel, AssetModel.id == entry.asset_id)
        .where(
            or_(*keys),
            entry.last_updated_by_kind == _WATCHER,
            entry.asset_id.in_(select(AssetWatcherModel.asset_id)),
        )
    )


def _watcher(trigger: Trigger) -> Watcher:
    prefix = watch_memory.PREFIXES.get(trigger.classpath.rpartition(".")[2])
    try:
        table = trigger.kwargs["table"]
    except Exception:  # noqa: BLE001 - encrypted with a key that this process has not, or of another program
        return Watcher(prefix, () if prefix is None else None)
    return Watcher(prefix, (table,) if isinstance(table, str) else tuple(map(str, table)))


def _remembered(content: str) -> Mapping[str, Any]:
    """What an entry holds of each table. A backend of one's own may keep something else in its place."""
    try:
        value = msgspec.json.decode(content)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
