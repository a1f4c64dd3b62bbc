"""What tasks have told: what a process of the API server keeps of it, and what it hands to readers."""

from __future__ import annotations

import math
from array import array
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from airflow_delta.monitoring.fleet import TableRecords, TrendPoint, Watch, newest_of
from airflow_delta.monitoring.record import Record, Source, table_id

#: Records of one table that its page shows: the newest.
MAX_HISTORY = 300
#: Readings of one table that its row in the fleet shows: the newest.
MAX_TREND = 20
_MAX_BROKEN = 20


class Broken(Struct):
    """An event that is no record."""

    time_ms: int
    source: Source
    why: str


class Told(Struct, frozen=True, eq=False):
    """What tasks have told so far. It never changes; with news comes another one, whose tables without news are the same objects.

    :param failures: runs that failed, the newest first.
    :param dags: those that have told of a table.
    :param addresses: of the tables, by :func:`~airflow_delta.monitoring.record.table_id`.
    """

    tables: Mapping[str, TableRecords] = {}
    addresses: Mapping[str, str] = {}
    failures: Sequence[Record] = ()
    broken: Sequence[Broken] = ()
    dags: frozenset[str] = frozenset()


class Known(Struct):
    """What a process of the API server has read so far.

    :param asset_id: of the monitoring asset; another one means another database.
    :param recent: numbers of the events within the last minutes, which are looked at again.
    :param mark: of the failures in the database when they were read.
    :param oldest_ms: nothing that is shown is older.
    :param told: what readers get; ``None``: something is new.
    """

    asset_id: int | None = None
    until: datetime | None = None
    tables: dict[str, TableRecords] = {}
    numbers: dict[str, array[int]] = {}
    broken: deque[Broken] = field(default_factory=lambda: deque(maxlen=_MAX_BROKEN))
    recent: set[int] = set()
    mark: tuple[Any, ...] = ()
    failures: Sequence[Record] = ()
    addresses: dict[str, str] = {}
    oldest_ms: float = math.inf
    told: Told | None = None

    def note(self, table: str, number: int) -> None:
        """Remember the number of an event of a table."""
        numbers = self.numbers.setdefault(table, array("q"))
        numbers.append(number)
        if len(numbers) > 2 * MAX_HISTORY:
            del numbers[:-MAX_HISTORY]

    def add(self, records: Iterable[Record], trends: Mapping[str, Sequence[TrendPoint]]) -> None:
        """Take the records of new events, and by table what they add to its trend."""
        news: dict[str, list[Record]] = {}
        for record in records:
            news.setdefault(record.table, []).append(record)
        for table, new in news.items():
            held = self.tables.get(table, TableRecords())
            points = (*held.trend, *trends.get(table, ()))[-MAX_TREND:]
            self._keep(table, replace(held, newest=newest_of([*held.newest.values(), *new]), trend=points))
        self.oldest_ms = min(self.oldest_ms, self._oldest_ms(news))
        self.told = None

    def take_failures(self, mark: tuple[Any, ...], failures: Sequence[Record]) -> None:
        """Take the runs that have failed, instead of those that were known."""
        by_table: dict[str, list[Record]] = {table: [] for table, held in self.tables.items() if held.failed}
        for failure in failures:
            by_table.setdefault(failure.table, []).append(failure)
        for table, failed in by_table.items():
            self._keep(table, replace(self.tables.get(table, TableRecords()), failed=newest_of(failed)))
        self.mark, self.failures, self.told = mark, failures, None

    def take_watches(self, watches: Mapping[str, Watch]) -> None:
        """Take what watchers remember, by table, instead of what was known."""
        watched = [table for table, held in self.tables.items() if held.watch is not None]
        for table in {*watched, *watches}:
            held = self.tables.get(table, TableRecords())
            if held.watch != watches.get(table):
                self._keep(table, replace(held, watch=watches.get(table)))
                self.told = None

    def forget_before(self, time_ms: int) -> None:
        """Drop events that are older, and the tables of which nothing is left."""
        if time_ms <= self.oldest_ms:
            return
        for table, held in list(self.tables.items()):
            newest = {key: one for key, one in held.newest.items() if one.time_ms >= time_ms}
            trend = tuple(point for point in held.trend if point.time_ms >= time_ms)
            if (len(newest), len(trend)) != (len(held.newest), len(held.trend)):
                self._keep(table, replace(held, newest=newest, trend=trend if newest else ()))
        self.broken = deque((held for held in self.broken if held.time_ms >= time_ms), self.broken.maxlen)
        self.oldest_ms = self._oldest_ms(self.tables)
        self.told = None

    def _oldest_ms(self, tables: Iterable[str]) -> float:
        held = [self.tables[table] for table in tables]
        times = [record.time_ms for one in held for record in one.newest.values()]
        times += [point.time_ms for one in held for point in one.trend]
        times += [one.time_ms for one in self.broken]
        return min(times, default=math.inf)

    def _keep(self, table: str, records: TableRecords) -> None:
        if not records.newest:
            self.numbers.pop(table, None)
        if records.newest or records.failed or records.watch is not None:
            if table not in self.tables:
                self.addresses[table_id(table)] = table
            self.tables[table] = records
        elif self.tables.pop(table, None) is not None:
            self.addresses.pop(table_id(table), None)

    def tell(self) -> Told:
        if self.told is None:
            dags = frozenset(dag for held in self.tables.values() for _, dag in (*held.newest, *held.failed))
            self.told = Told(dict(self.tables), dict(self.addresses), self.failures, tuple(self.broken), dags)
        return self.told
