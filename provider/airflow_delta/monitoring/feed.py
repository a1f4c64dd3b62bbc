"""Reads what tasks and watchers have told from Airflow's metadata database, in the API server.

Each process of the API server holds the newest records of every table, and by table the numbers of its events. A request asks
whether anything is new, and reads only that: six queries at most, whatever the number of tables, and three if nothing is new. The
first request of a process reads all events of the last ``[delta] monitoring_days`` days.

* An event may become visible after one with a higher number, so each time the number and the sum of the numbers of the events of the
  last minutes are compared with those that are known.
* ``airflow db clean`` deletes the oldest events. What is older than the oldest event that is left is forgotten.
* The events of a DAG are shown to those who may read the DAG, see :mod:`~airflow_delta.monitoring.api`.
* What watchers remember is read with two or three queries more, twice a minute at most, see :mod:`~airflow_delta.monitoring.watches`.

The content of an event is parsed here and not in a query: the databases that Airflow runs on read JSON in different ways, and a
query fails as a whole where one event has a text that the database cannot hold.
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

import msgspec
from airflow.models.asset import AssetEvent, AssetModel
from airflow.models.xcom import XComModel
from sqlalchemy import Text, cast, func, select

from airflow_delta.assets import MONITORING_ASSET
from airflow_delta.monitoring.fleet import TrendPoint, shown
from airflow_delta.monitoring.record import FAILURE_KEY, ForeignRecord, Record, Source, read_record
from airflow_delta.monitoring.record_head import read_head
from airflow_delta.monitoring.told import MAX_HISTORY, MAX_TREND, Broken, Known, Told
from airflow_delta.monitoring.watches import Watches

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

#: How far back events are read again. Airflow registers an event within one transaction, which takes less.
_OVERLAP = timedelta(minutes=10)
#: Failures that are looked at: the newest.
MAX_FAILURES = 2_000
_ROWS_AT_ONCE = 5_000
#: What watchers remember is read again after so many seconds.
SECONDS_BETWEEN_WATCHES = 30.0


class Feed:
    """The records of all tables.

    :param days: how far back to look.
    """

    def __init__(self, days: int, now: Callable[[], datetime] | None = None) -> None:
        self._days = timedelta(days=days)
        self._now = now or (lambda: datetime.now(timezone.utc))
        self._known = Known()
        self._watches = Watches()
        self._watches_read = -math.inf
        self._lock = threading.Lock()

    def read(self, session: Session) -> Told:
        """What tasks have told; the same object as before if nothing is new."""
        with self._lock:
            self._refresh(session)
            return self._known.tell()

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
        return [*told, *(one for one in self.read(session).failures if one.source == source)]

    def _refresh(self, session: Session) -> None:
        asset_id = session.scalar(select(AssetModel.id).where(AssetModel.name == MONITORING_ASSET.name))
        if asset_id != self._known.asset_id:
            self._known = Known(asset_id)
            self._watches_read = -math.inf
        if asset_id is not None:
            self._read_events(session, asset_id)
        self._read_failures(session)
        self._read_watches(session)

    def _read_events(self, session: Session, asset_id: int) -> None:
        known, horizon = self._known, self._now() - self._days
        since = horizon if known.until is None else max(horizon, known.until - _OVERLAP)
        window: tuple[Any, ...] = (AssetEvent.asset_id == asset_id, AssetEvent.timestamp >= since)
        oldest, *seen = session.execute(
            _state_of_events(asset_id, window, is_first=known.until is None)
        ).one()
        known.forget_before(_ms(max(horizon, _utc(oldest) if oldest else self._now())))
        until = known.until
        last: deque[tuple[int, datetime]] = deque()
        if until is not None:
            # Most often nothing is new. Else most events of the last minutes are known, and their content is not read again.
            if (seen[0], int(seen[1] or 0)) == (len(known.recent), sum(known.recent)):
                return
            marks = session.execute(select(AssetEvent.id, AssetEvent.timestamp).where(*window)).all()
            unread_numbers = [number for number, _ in marks if number not in known.recent]
            if not unread_numbers:
                known.recent = {number for number, _ in marks}
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

        newest: dict[tuple[str, str, str], Sequence[Any]] = {}
        trends: dict[str, deque[TrendPoint]] = {}
        for row in unread():
            head = read_head(row[-1])
            if head is None:
                # This says why it is no record, or finds one of an unusual form.
                for record in _records([row], known.broken.append):
                    known.note(record.table, row[0])
                    newest[record.table, record.operation, row[2]] = row
                continue
            known.note(head.table, row[0])
            point = head.trend_point(_ms(row[1]), row[2] or "")
            if point is not None:
                trends.setdefault(head.table, deque(maxlen=MAX_TREND)).append(point)
            newest[head.table, head.operation, row[2]] = row
        known.add(
            _records(newest.values(), known.broken.append),
            {name: tuple(held) for name, held in trends.items()},
        )
        known.until = until
        known.recent = {number for number, moment in last if until is not None and moment >= until - _OVERLAP}

    def _read_failures(self, session: Session) -> None:
        """Read the newest runs that failed, if others are there than the last time.

        An XCom that is no record, such as one of a custom backend, is left out.
        """
        failures = (XComModel.key == FAILURE_KEY, XComModel.timestamp >= self._now() - self._days)
        # Airflow deletes those of a task that is run again.
        state = select(func.count(), func.max(XComModel.timestamp), func.sum(XComModel.dag_run_id))
        mark = tuple(session.execute(state.where(*failures)).one())
        if mark == self._known.mark:
            return
        query = (
            select(
                XComModel.timestamp,
                XComModel.dag_id,
                XComModel.run_id,
                XComModel.task_id,
                XComModel.map_index,
                cast(XComModel.value, Text),
            )
            .where(*failures)
            .order_by(XComModel.timestamp.desc())
            .limit(MAX_FAILURES)
        )
        rows = ((None, *row) for row in session.execute(query))
        self._known.take_failures(mark, tuple(_records(rows, lambda _: None)))

    def _read_watches(self, session: Session) -> None:
        if time.monotonic() >= self._watches_read + SECONDS_BETWEEN_WATCHES:
            self._known.take_watches(self._watches.read(session))
            self._watches_read = time.monotonic()


def _state_of_events(asset_id: int, window: Sequence[Any], *, is_first: bool) -> Any:
    """A query for the time of the oldest event, and for what tells whether the events of a window are still the same."""
    oldest = select(func.min(AssetEvent.timestamp)).where(AssetEvent.asset_id == asset_id).scalar_subquery()
    if is_first:
        return select(oldest)
    return select(oldest, func.count(), func.sum(AssetEvent.id)).where(*window)


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


def _utc(moment: datetime) -> datetime:
    # SQLite keeps no time zone; Airflow's columns are UTC.
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=timezone.utc)


def _ms(moment: datetime) -> int:
    return int(_utc(moment).timestamp() * 1000)
