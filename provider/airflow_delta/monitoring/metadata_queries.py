"""Reads what tasks have reported, and what watchers remember, from Airflow's metadata database, in the API server.

A record is an entry of a task's state store. Each process of the API server keeps the newest record of each table, operation and DAG, and by
table the numbers of its entries. A request asks whether anything is new, and then reads the keys of new entries and the values of the newest: three
queries, and one if nothing is new, whatever the number of tables.

* An entry may become visible after one with a higher number, so the last numbers are read again each time.
* If one of these is not there any more, all keys are read anew, and once an hour in any case. So records that Airflow deletes or
  that become older than ``[delta] monitoring_days`` are forgotten.
* The records of a DAG are shown to those who may read the DAG, see :mod:`~airflow_delta.monitoring.api`.
* What watchers remember takes two or three queries more, twice a minute at most, see :mod:`~airflow_delta.monitoring.watched_tables`.

The value of an entry is parsed here and not in a query: the databases that Airflow runs on read JSON in different ways.
"""

from __future__ import annotations

import math
import threading
import time
from array import array
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from airflow.models.task_state_store import TaskStateStoreModel
from sqlalchemy import func, select

from airflow_delta.monitoring.fleet import BrokenRecord, ReportedState, TableRecords, TrendPoint, Watch, shown
from airflow_delta.monitoring.record import (
    KEY_PREFIX,
    ForeignRecord,
    Record,
    RecordHeader,
    Source,
    prefix_of_task,
    read_key,
    read_record,
    table_id,
)
from airflow_delta.monitoring.watched_tables import WatchedTables

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

#: Records of one table that its page shows: the newest.
MAX_HISTORY = 300
#: Readings of one table that its row in the fleet shows: the newest.
MAX_TREND = 20
_MAX_BROKEN = 20
#: So many of the last numbers are read again. An entry is written within a short transaction, so fewer are on their way at a time.
_OVERLAP = 2_000
_KEYS_AT_ONCE, _VALUES_AT_ONCE = 20_000, 5_000


class Entry(NamedTuple):
    """An entry of a state store, without its value."""

    number: int
    dag_id: str
    key: str
    time: datetime


@dataclass(slots=True)
class TableEntries:
    """The entries of one table.

    :param newest: the newest entries, by operation, whether the run failed, and DAG.
    """

    numbers: array[int] = field(default_factory=lambda: array("q"))
    newest: dict[tuple[str, bool, str], Entry] = field(default_factory=dict)
    trend: tuple[TrendPoint, ...] = ()

    def add(self, entry: Entry, header: RecordHeader) -> None:
        self.numbers.append(entry.number)
        if len(self.numbers) > 2 * MAX_HISTORY:
            self.numbers = self.newest_numbers()
        key = header.operation, header.has_failed, entry.dag_id
        held = self.newest.get(key)
        if held is None or (held.time, held.number) < (entry.time, entry.number):
            self.newest[key] = entry
        if header.num_files is not None or header.small_files is not None:
            point = TrendPoint(_ms(entry.time), entry.dag_id, header.num_files, header.small_files)
            self.trend = tuple(sorted((*self.trend, point), key=lambda one: one.time_ms))[-MAX_TREND:]

    def newest_numbers(self) -> array[int]:
        return array("q", sorted(self.numbers)[-MAX_HISTORY:])


class MetadataQueries:
    """The records of all tables.

    :param days: number of days to look back.
    :param seconds_between_watches: seconds after which the entries of watchers are read again.
    """

    def __init__(
        self,
        days: int,
        now: Callable[[], datetime] = lambda: datetime.now(timezone.utc),
        *,
        seconds_between_full_reads: float = 3600,
        seconds_between_watches: float = 30,
    ) -> None:
        self._days = timedelta(days=days)
        self._now = now
        self._seconds_between_full_reads = seconds_between_full_reads
        self._seconds_between_watches = seconds_between_watches
        self._fully_read = self._watches_read = -math.inf
        self._tables: dict[str, TableEntries] = {}
        #: The entries with the last numbers.
        self._recent: deque[Entry] = deque()
        self._values: dict[Entry, Record | BrokenRecord] = {}
        self._watched = WatchedTables()
        self._watches: Mapping[str, tuple[str, Watch]] = {}
        self._state = ReportedState()
        self._lock = threading.Lock()

    def read(self, session: Session) -> ReportedState:
        """What tasks have reported; the same object as before if nothing is new."""
        with self._lock:
            self._refresh(session)
            return self._state

    def history(self, session: Session, table: str) -> list[Record]:
        """The newest records of a table, oldest first.

        :param table: id of the table, from :func:`~airflow_delta.monitoring.record.table_id`.
        """
        with self._lock:
            self._refresh(session)
            held = self._tables.get(table, TableEntries())
            numbers = held.newest_numbers().tolist()
        found = _records(session, TaskStateStoreModel.id.in_(numbers))
        return [record for record in found if table_id(record.table) == table]

    def record(self, session: Session, number: int) -> Record | None:
        """The record of one entry; ``None``: there is no such entry, or it is no record."""
        return next(_records(session, TaskStateStoreModel.id == number), None)

    def of_task(self, session: Session, source: Source) -> list[Record]:
        """What the newest try of one task instance has reported, oldest first."""
        row = TaskStateStoreModel
        conditions = (
            row.dag_id == source.dag_id,
            row.run_id == source.run_id,
            row.task_id == source.task_id,
            row.key.startswith(prefix_of_task(source.map_index), autoescape=True),
            row.updated_at >= self._now() - self._days,
        )
        found = list(_values(session, *conditions))
        newest = max((header.try_number for _, header, _ in found), default=0)
        return [
            value for _, header, value in found if header.try_number == newest and isinstance(value, Record)
        ]

    def _refresh(self, session: Session) -> None:
        has_news = self._read_keys(session)
        if time.monotonic() >= self._watches_read + self._seconds_between_watches:
            watches = self._watched.read(session)
            has_news |= watches != self._watches
            self._watches, self._watches_read = watches, time.monotonic()
        if has_news:
            self._read_values(session)
            self._state = self._new_state()

    def _read_keys(self, session: Session) -> bool:
        """Read the keys of new entries, or of all; return whether anything is new."""
        now, fully_read = time.monotonic(), self._fully_read
        # All keys are read again if a query fails halfway.
        self._fully_read = -math.inf
        if now < fully_read + self._seconds_between_full_reads:
            lost = set(self._recent)
            has_news = self._have_last_entries_changed(session)
            if has_news:
                self._take_last_entries(session, lost)
            if not has_news or not lost:
                self._fully_read = fully_read
                return has_news
        self._tables, self._recent = {}, deque()
        self._take_last_entries(session, set())
        self._fully_read = now
        return True

    def _have_last_entries_changed(self, session: Session) -> bool:
        """Ask for sums, which say almost always that nothing is new, and cost less than the entries."""
        row = TaskStateStoreModel
        sums = select(func.count(), func.sum(row.id), func.max(row.updated_at)).where(*self._last_entries())
        count, total, newest = session.execute(sums).one()
        numbers, times = [one.number for one in self._recent], [one.time for one in self._recent]
        return (count, int(total or 0), newest) != (len(numbers), sum(numbers), max(times, default=None))

    def _last_entries(self) -> Sequence[Any]:
        """The condition for the entries with the last numbers, and for all later ones."""
        row = TaskStateStoreModel
        return (
            row.id > (self._recent[-1].number - _OVERLAP if self._recent else 0),
            row.key.startswith(KEY_PREFIX, autoescape=True),
            row.updated_at >= self._now() - self._days,
        )

    def _take_last_entries(self, session: Session, known: set[Entry]) -> None:
        """
        :param known: known entries; the method removes the entries that are still there.
        """
        row = TaskStateStoreModel
        query = select(row.id, row.dag_id, row.key, row.updated_at).where(*self._last_entries())
        recent = deque[Entry]()
        for found in session.execute(query.order_by(row.id).execution_options(yield_per=_KEYS_AT_ONCE)):
            entry = Entry(*found)
            recent.append(entry)
            while recent[0].number <= entry.number - _OVERLAP:
                recent.popleft()
            if entry in known:
                known.remove(entry)
            else:
                header = read_key(entry.key)
                self._tables.setdefault(header.table, TableEntries()).add(entry, header)
        self._recent = recent

    def _read_values(self, session: Session) -> None:
        """Read the values of the newest entries that have not been read."""
        newest = {entry for held in self._tables.values() for entry in held.newest.values()}
        self._values = {entry: value for entry, value in self._values.items() if entry in newest}
        unread = {entry.number: entry for entry in newest if entry not in self._values}
        numbers = sorted(unread)
        for first in range(0, len(numbers), _VALUES_AT_ONCE):
            some = numbers[first : first + _VALUES_AT_ONCE]
            for number, _, value in _values(session, TaskStateStoreModel.id.in_(some)):
                self._values[unread[number]] = value

    def _new_state(self) -> ReportedState:
        tables = {}
        for table in {*self._tables, *self._watches}:
            made = self._table(table)
            if made is not None:
                held = self._state.tables.get(table)
                tables[table] = held if held == made else made
        broken = [value for value in self._values.values() if isinstance(value, BrokenRecord)]
        broken.sort(key=lambda one: one.time_ms)
        dags = frozenset(dag for held in tables.values() for dag in held.dags)
        return ReportedState(tables, broken[-_MAX_BROKEN:], dags)

    def _table(self, table: str) -> TableRecords | None:
        held = self._tables.get(table, TableEntries())
        address, watch = self._watches.get(table, (None, None))
        newest: dict[bool, dict[tuple[str, str], Record]] = {False: {}, True: {}}
        for (operation, has_failed, dag_id), entry in held.newest.items():
            value = self._values.get(entry)
            if isinstance(value, Record):
                newest[has_failed][operation, dag_id] = value
                address = value.table
        if address is None:
            return None
        return TableRecords(address, newest[False], newest[True], held.trend, watch)


def _records(session: Session, *conditions: Any) -> Iterator[Record]:
    return (value for *_, value in _values(session, *conditions) if isinstance(value, Record))


def _values(session: Session, *conditions: Any) -> Iterator[tuple[int, RecordHeader, Record | BrokenRecord]]:
    """The number, what the key says, and the value of each entry with the key of a record, in the order of numbers."""
    row = TaskStateStoreModel
    query = select(row.id, row.updated_at, row.key, row.value, row.dag_id, row.run_id, row.task_id).where(
        row.key.startswith(KEY_PREFIX, autoescape=True), *conditions
    )
    for number, moment, key, content, dag_id, run_id, task_id in session.execute(query.order_by(row.id)):
        header = read_key(key)
        source, time_ms = Source(dag_id, run_id, task_id, header.map_index), _ms(moment)
        try:
            record = read_record(msgspec.json.decode(content), source, time_ms, number)
            if table_id(record.table) != header.table:
                raise ForeignRecord("its key does not name its table")
            yield number, header, record
        except (ForeignRecord, ValueError, RecursionError) as error:
            yield number, header, BrokenRecord(time_ms, source, shown(str(error)))


def _ms(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)
