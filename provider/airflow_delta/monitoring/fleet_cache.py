"""Keeps the rows of the fleet that readers have seen, until a task reports something new.

To count and sort thousands of tables takes far longer than to answer with a page of them, and most requests come without news.
With news only the rows of the tables concerned are made again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from airflow_delta.assets import is_asset_of
from airflow_delta.monitoring.fleet import (
    FleetQuery,
    ReportedState,
    TableRecords,
    counts_of,
    matching,
    ordered,
    row_for,
)

#: Fleets of readers who may read different DAGs, and rows of one table for such readers. Beyond it they are made anew.
_MOST = 64


class Fleet(Struct, frozen=True, eq=False):
    """The rows of a reader by digest of the table, and their counts. Callers must not change them."""

    rows: Mapping[str, dict[str, Any]]
    counts: Mapping[str, int]
    _orders: dict[tuple[str, bool], Sequence[dict[str, Any]]] = {}

    @classmethod
    def of(cls, rows: Mapping[str, dict[str, Any]]) -> Fleet:
        return cls(rows, counts_of(rows.values()))

    def of_asset(self, name: str, uri: str) -> Fleet:
        """The tables whose maintenance or data an asset stands for, and those that its watcher looks at."""
        return Fleet.of(
            {
                table: row
                for table, row in self.rows.items()
                if is_asset_of(row["table"], uri) or (row["watch"] or {}).get("asset") == name
            }
        )

    def chosen(self, query: FleetQuery) -> Sequence[dict[str, Any]]:
        """All rows that the reader asked for, in order."""
        order = query.sort, query.descending
        if order not in self._orders:
            self._orders[order] = ordered(self.rows.values(), query.sort, descending=query.descending)
        rows = self._orders[order]
        return matching(rows, query) if query.status or query.search else rows


class FleetCache:
    """Makes the fleets of readers from what tasks have reported. Threads may share one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._state = ReportedState()
        #: By the DAGs that a reader may see.
        self._fleets: dict[frozenset[str], Fleet] = {}
        #: By table, what its rows are made of, and the rows by the DAGs that a reader may see.
        self._rows: dict[str, tuple[TableRecords, dict[frozenset[str], dict[str, Any]]]] = {}

    def fleet(self, state: ReportedState, readable: Callable[[str], bool]) -> Fleet:
        """
        :param readable: function that tells whether the reader may see what a DAG has reported.
        :return: a row for each table with a record that the reader may see, or that a watcher knows.
        """
        visible = frozenset(filter(readable, state.dags))
        with self._lock:
            if state is not self._state:
                self._state = state
                self._fleets.clear()
                self._rows = {name: held for name, held in self._rows.items() if name in state.tables}
            elif visible in self._fleets:
                return self._fleets[visible]
            seen = ((table, records, records.dags & visible) for table, records in state.tables.items())
            rows = {
                table: self._row(table, records, dags)
                for table, records, dags in seen
                if dags or records.watch is not None
            }
            if len(self._fleets) >= _MOST:
                self._fleets.clear()
            self._fleets[visible] = Fleet.of(rows)
            return self._fleets[visible]

    def _row(self, table: str, records: TableRecords, dags: frozenset[str]) -> dict[str, Any]:
        held = self._rows.get(table)
        if held is None or held[0] is not records:
            held = self._rows[table] = records, {}
        rows = held[1]
        if dags not in rows:
            if len(rows) >= _MOST:
                rows.clear()
            rows[dags] = row_for(records, dags)
        return rows[dags]
