"""Reads the records of tasks from Airflow's metadata database, in the API server.

Each process of the API server holds the newest records of every table, and by table the numbers of its events. A request reads
the events that came since the last one: five queries at most, whatever the number of tables. The first request of a process reads all
events of the last ``[delta] monitoring_days`` days.

* An event may become visible after one with a higher number, so each time the last minutes are looked at for numbers that are new.
* ``airflow db clean`` deletes the oldest events. What is older than the oldest event that is left is forgotten.
* The events of a DAG are shown to those who may read the DAG, see :mod:`~airflow_delta.monitoring.api`.

The content of an event is parsed here and not in a query: the databases that Airflow runs on read JSON in different ways, and a
query fails as a whole where one event has a text that the database cannot hold.
"""

from __future__ import annotations

import threading
from array import array
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

import msgspec
from airflow.models.asset import AssetEvent, AssetModel
from airflow.models.xcom import XComModel
from sqlalchemy import Text, cast, func, select

from airflow_delta.assets import MONITORING_ASSET
from airflow_delta.monitoring.fleet import TableRecords, TrendPoint, shown
from airflow_delta.monitoring.record import (
    FAILURE_KEY,
    ForeignRecord,
    Record,
    Source,
    read_record,
    table_id,
)

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

#: How far back events are read again. Airflow registers an event within one transaction, which takes less.
_OVERLAP = timedelta(minutes=10)
#: Failures that are looked at: the newest.
MAX_FAILURES = 2_000
#: Records of one table that its page shows: the newest.
MAX_HISTORY = 300
_MAX_BROKEN = 20
#: Readings of one table that its row in the fleet shows: the newest.
_MAX_TREND = 20
_ROWS_AT_ONCE = 5_000


class _Report(msgspec.Struct):
    operation: str


class _Merge(msgspec.Struct, rename="camel"):
    num_files_to_merge: int | None = None


class _Facts(msgspec.Struct, rename="camel"):
    num_files: int | None = None
    optimize: _Merge | None = None


class _Reading(msgspec.Struct):
    facts: _Facts | None = None


class _Head(msgspec.Struct):
    """As much of an event as tells which others it replaces, and the figures of which the fleet shows a trend."""

    table: str
    kind: str
    report: _Report | None = None
    health: _Reading | None = None

    @property
    def operation(self) -> str:
        return self.kind if self.report is None else self.report.operation

    def trend_point(self, time_ms: int, dag_id: str) -> TrendPoint | None:
        """``None``: it is no reading of health."""
        facts = None if self.health is None else self.health.facts
        if facts is None:
            return None
        small = None if facts.optimize is None else facts.optimize.num_files_to_merge
        return TrendPoint(time_ms, dag_id, facts.num_files, small)


_HEAD = msgspec.json.Decoder(_Head)


@dataclass(slots=True)
class Broken:
    """An event that is no record."""

    time_ms: int
    source: Source
    why: str


@dataclass(slots=True)
class Known:
    """What a process of the API server has read so far.

    :param asset_id: of the monitoring asset; another one means another database.
    :param recent: numbers of the events within the last minutes, which are read again.
    """

    asset_id: int | None = None
    until: datetime | None = None
    tables: dict[str, TableRecords] = field(default_factory=dict)
    numbers: dict[str, array[int]] = field(default_factory=dict)
    broken: deque[Broken] = field(default_factory=lambda: deque(maxlen=_MAX_BROKEN))
    recent: set[int] = field(default_factory=set)
    trends: dict[str, deque[TrendPoint]] = field(default_factory=dict)

    def note(self, table: str, number: int) -> None:
        """Remember the number of an event of a table."""
        numbers = self.numbers.setdefault(table, array("q"))
        numbers.append(number)
        if len(numbers) > 2 * MAX_HISTORY:
            del numbers[:-MAX_HISTORY]

    def note_trend(self, table: str, point: TrendPoint | None) -> None:
        """Remember two figures of a reading."""
        if point is not None:
            self.trends.setdefault(table, deque(maxlen=_MAX_TREND)).append(point)

    def forget_before(self, time_ms: int) -> None:
        """Drop what is older, and the tables of which nothing is left."""
        for table, records in list(self.tables.items()):
            records.newest = {key: held for key, held in records.newest.items() if held.time_ms >= time_ms}
            if not records.newest:
                del self.tables[table]
                self.numbers.pop(table, None)
                self.trends.pop(table, None)
        for points in self.trends.values():
            while points and points[0].time_ms < time_ms:
                points.popleft()
        self.broken = deque((held for held in self.broken if held.time_ms >= time_ms), self.broken.maxlen)


class Feed:
    """The records of all tables.

    :param days: how far back to look.
    """

    def __init__(self, days: int, now: Callable[[], datetime] | None = None) -> None:
        self._days = timedelta(days=days)
        self._now = now or (lambda: datetime.now(timezone.utc))
        self._known = Known()
        self._lock = threading.Lock()

    def read(self, session: Session) -> tuple[dict[str, TableRecords], list[Broken]]:
        """The newest records by table, and events that are none; both are copies."""
        with self._lock:
            self._refresh(session)
            tables = {
                table: TableRecords(dict(records.newest), list(self._known.trends.get(table, ())))
                for table, records in self._known.tables.items()
            }
            return tables, list(self._known.broken)

    def table_of(self, session: Session, identity: str, others: Iterable[str]) -> str | None:
        """The address of a table by its :func:`~airflow_delta.monitoring.record.table_id`.

        :param others: tables that have no event.
        """
        with self._lock:
            self._refresh(session)
            tables = [*self._known.tables, *others]
        return next((table for table in tables if table_id(table) == identity), None)

    def history(self, session: Session, table: str) -> list[Record]:
        """The newest records of a table, oldest first."""
        with self._lock:
            self._refresh(session)
            numbers = sorted(self._known.numbers.get(table, ()))[-MAX_HISTORY:]
            asset_id = self._known.asset_id
        query = _events().where(AssetEvent.asset_id == asset_id, AssetEvent.id.in_(numbers))
        found = list(_records(session.execute(query.order_by(AssetEvent.id)), lambda _: None))
        return [record for record in found if record.table == table]

    def record(self, session: Session, event_number: int) -> Record | None:
        """The record of one event; ``None``: there is no such event, or it is no record."""
        query = (
            _events()
            .join(AssetModel, AssetModel.id == AssetEvent.asset_id)
            .where(AssetEvent.id == event_number, AssetModel.name == MONITORING_ASSET.name)
        )
        return next(_records(session.execute(query), lambda _: None), None)

    def of_task(self, session: Session, source: Source) -> list[Record]:
        """What one task instance has told, oldest first, failures last."""
        query = (
            _events()
            .join(AssetModel, AssetModel.id == AssetEvent.asset_id)
            .where(
                AssetModel.name == MONITORING_ASSET.name,
                AssetEvent.timestamp >= self._now() - self._days,
                AssetEvent.source_dag_id == source.dag_id,
                AssetEvent.source_run_id == source.run_id,
                AssetEvent.source_task_id == source.task_id,
                AssetEvent.source_map_index == source.map_index,
            )
            .order_by(AssetEvent.id)
        )
        told = list(_records(session.execute(query), lambda _: None))
        return [*told, *(one for one in self.failures(session) if one.source == source)]

    def failures(self, session: Session) -> list[Record]:
        """The newest runs that failed. An XCom that is no record, such as one of a custom backend, is left out."""
        query = (
            select(
                XComModel.timestamp,
                XComModel.dag_id,
                XComModel.run_id,
                XComModel.task_id,
                XComModel.map_index,
                cast(XComModel.value, Text),
            )
            .where(XComModel.key == FAILURE_KEY, XComModel.timestamp >= self._now() - self._days)
            .order_by(XComModel.timestamp.desc())
            .limit(MAX_FAILURES)
        )
        rows = ((None, *row) for row in session.execute(query))
        return list(_records(rows, lambda _: None))

    def _refresh(self, session: Session) -> None:
        asset_id = session.scalar(select(AssetModel.id).where(AssetModel.name == MONITORING_ASSET.name))
        if asset_id != self._known.asset_id:
            self._known = Known(asset_id)
        if asset_id is None:
            return
        known, horizon = self._known, self._now() - self._days
        since = horizon if known.until is None else max(horizon, known.until - _OVERLAP)
        oldest = session.scalar(select(func.min(AssetEvent.timestamp)).where(AssetEvent.asset_id == asset_id))
        known.forget_before(_ms(max(horizon, oldest or self._now())))
        window: tuple[Any, ...] = (AssetEvent.asset_id == asset_id, AssetEvent.timestamp >= since)
        until = known.until
        last: deque[tuple[int, datetime]] = deque()
        if until is not None:
            # Most events of the last minutes are known. Their content is not read again.
            marks = session.execute(select(AssetEvent.id, AssetEvent.timestamp).where(*window)).all()
            unread_numbers = [number for number, _ in marks if number not in known.recent]
            if not unread_numbers:
                return
            last.extend((number, moment) for number, moment in sorted(marks) if number in known.recent)
            window = (*window, AssetEvent.id >= min(unread_numbers))
        query = _events().where(*window).order_by(AssetEvent.id).execution_options(yield_per=_ROWS_AT_ONCE)

        def unread() -> Iterator[Sequence[Any]]:
            nonlocal until
            for row in session.execute(query):
                number, moment = row[0], row[1]
                if number in known.recent:
                    continue
                until = moment if until is None else max(until, moment)
                last.append((number, moment))
                while last[0][1] < until - _OVERLAP:
                    last.popleft()
                yield row

        # Most events are older than another one of the same kind, and are not parsed in full.
        newest: dict[tuple[str, str, str], Sequence[Any]] = {}
        for row in unread():
            try:
                head = _HEAD.decode(row[-1])
            except (msgspec.MsgspecError, TypeError):
                # Most likely it is no record. This says why, or finds one of an unusual form.
                for record in _records([row], known.broken.append):
                    known.note(record.table, row[0])
                    newest[record.table, record.operation, row[2]] = row
                continue
            known.note(head.table, row[0])
            known.note_trend(head.table, head.trend_point(_ms(row[1]), row[2] or ""))
            newest[head.table, head.operation, row[2]] = row
        for record in _records(newest.values(), known.broken.append):
            known.tables.setdefault(record.table, TableRecords()).add(record)
        known.recent, known.until = {number for number, _ in last}, until


def _events() -> Any:
    return select(
        AssetEvent.id,
        AssetEvent.timestamp,
        AssetEvent.source_dag_id,
        AssetEvent.source_run_id,
        AssetEvent.source_task_id,
        AssetEvent.source_map_index,
        cast(AssetEvent.extra, Text),
    )


def _records(rows: Iterable[Sequence[Any]], broken: Callable[[Broken], None]) -> Iterator[Record]:
    """
    :param rows: number, time, DAG, run, task, map index and JSON text.
    """
    for number, moment, dag_id, run_id, task_id, map_index, content in rows:
        source = Source(dag_id or "", run_id or "", task_id or "", -1 if map_index is None else map_index)
        try:
            if not source.dag_id:
                # A caller of Airflow's REST API may create events. Nothing says then who vouches for the content.
                raise ForeignRecord("no task has left it")
            yield read_record(msgspec.json.decode(content or "null"), source, _ms(moment), number)
        except (ForeignRecord, ValueError) as error:
            broken(Broken(_ms(moment), source, shown(str(error))))


def _ms(moment: datetime) -> int:
    # SQLite keeps no time zone; Airflow's columns are UTC.
    aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=timezone.utc)
    return int(aware.timestamp() * 1000)
