"""Reads the fleets from Airflow's metadata database, in the API server.

A request asks for the heads of all fleets: one query. The parts of a night are read, by their keys, when its head has changed.

What a task has written counts, and nothing that a caller of Airflow's REST API has put in its place. What persons say is written by that API.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from airflow.models.asset import AssetModel
from airflow.models.asset_state_store import AssetStateStoreModel
from msgspec import Struct
from sqlalchemy import select

from airflow_delta.monitoring.fleets.record import HEAD, HOLDS, ForeignFleet, read_head, read_view
from airflow_delta.monitoring.record import Source
from delta_log.errors import InvalidRequest
from delta_maintenance.fleet.account.view import FleetView
from delta_maintenance.fleet.decision.holds import Hold, read_holds

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

_TASK = "task"


class KeptFleet(Struct, frozen=True, eq=False):
    """One fleet.

    :param asset: name of its asset, and ``asset_id`` its number.
    :param source: task instance that has kept the night; a reader sees the fleet who may read its DAG.
    :param view: ``None``: it cannot be read, and ``broken`` says why.
    :param holds: what persons say now; the night was decided by ``view.holds``.
    :param broken_holds: why they cannot be read; empty: they can.
    """

    asset_id: int
    asset: str
    source: Source
    view: FleetView | None
    broken: str = ""
    holds: tuple[Hold, ...] = ()
    broken_holds: str = ""


class _Entry(NamedTuple):
    asset_id: int
    asset: str
    key: str
    value: str
    time: datetime
    kind: str | None
    dag_id: str | None
    run_id: str | None
    task_id: str | None
    map_index: int | None


class FleetQueries:
    """The newest night of each fleet. Threads may share one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        #: By asset, when its head was written, and what it led to.
        self._views: dict[int, tuple[datetime, FleetView | str]] = {}

    def read(self, session: Session) -> dict[int, KeptFleet]:
        """The fleets by the number of their asset."""
        entries = [_Entry(*row) for row in session.execute(_heads())]
        holds = {one.asset_id: one for one in entries if one.key == HOLDS}
        heads = [one for one in entries if one.key == HEAD and one.kind == _TASK]
        with self._lock:
            known = self._views
            self._views = {one.asset_id: self._view(session, one, known.get(one.asset_id)) for one in heads}
            return {
                one.asset_id: _fleet(one, self._views[one.asset_id][1], holds.get(one.asset_id))
                for one in heads
            }

    @staticmethod
    def _view(
        session: Session, head: _Entry, known: tuple[datetime, FleetView | str] | None
    ) -> tuple[datetime, FleetView | str]:
        if known is not None and known[0] == head.time:
            return known
        try:
            read = read_head(msgspec.json.decode(head.value))
            return head.time, read_view(read, _parts(session, head.asset_id, read.part_keys()))
        except (ForeignFleet, ValueError) as error:
            return head.time, str(error)


def _heads() -> Any:
    entry = AssetStateStoreModel
    return (
        select(
            entry.asset_id,
            AssetModel.name,
            entry.key,
            entry.value,
            entry.updated_at,
            entry.last_updated_by_kind,
            entry.last_updated_by_dag_id,
            entry.last_updated_by_run_id,
            entry.last_updated_by_task_id,
            entry.last_updated_by_map_index,
        )
        .join(AssetModel, AssetModel.id == entry.asset_id)
        .where(entry.key.in_((HEAD, HOLDS)))
    )


def _parts(session: Session, asset_id: int, keys: list[str]) -> Mapping[str, Any]:
    entry = AssetStateStoreModel
    found = session.execute(
        select(entry.key, entry.value).where(
            entry.asset_id == asset_id, entry.key.in_(keys), entry.last_updated_by_kind == _TASK
        )
    )
    return {key: msgspec.json.decode(value) for key, value in found}


def _fleet(head: _Entry, view: FleetView | str, holds: _Entry | None) -> KeptFleet:
    index = -1 if head.map_index is None else head.map_index
    source = Source(head.dag_id or "", head.run_id or "", head.task_id or "", index)
    said, broken = _said(holds)
    if isinstance(view, str):
        return KeptFleet(head.asset_id, head.asset, source, None, view, said, broken)
    return KeptFleet(head.asset_id, head.asset, source, view, "", said, broken)


def _said(entry: _Entry | None) -> tuple[tuple[Hold, ...], str]:
    if entry is None:
        return (), ""
    try:
        return read_holds(msgspec.json.decode(entry.value), f"the key {HOLDS} of its state store"), ""
    except (InvalidRequest, msgspec.DecodeError) as error:
        return (), str(error)
