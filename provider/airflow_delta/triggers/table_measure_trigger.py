"""Base of the triggers that measure tables whenever they change, until something passes a limit."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow.triggers.base import TriggerEvent

from airflow_delta.triggers.deferral import Deferral
from airflow_delta.triggers.table_event_trigger import TableEventTrigger
from airflow_delta.triggers.table_measure import TableMeasure

if TYPE_CHECKING:
    from airflow_delta.triggers.table_stream import WatchedTable


class TableMeasureTrigger(TableEventTrigger):
    """Measures tables whenever they have a new version.

    For an asset it makes an event when something passes a limit, and again when something else passes one, or the same after it
    had fallen below its limit. It remembers what passes: a list of names for each table.

    :param limits: JSON values, see :mod:`airflow_delta.triggers.table_measure`. A subclass takes them one by one, by the same
        names, so that an asset's watcher and a task's trigger are serialised alike.
    """

    measure_class: type[TableMeasure]

    def __init__(
        self,
        table: str | Sequence[str],
        delta_conn_id: str | None = None,
        poll_interval: float = 60.0,
        *,
        limits: Mapping[str, Any],
        queue: str | None = None,
    ) -> None:
        super().__init__(table, delta_conn_id, poll_interval, queue=queue)
        self.limits = dict(limits)
        self._measures: dict[str, TableMeasure] = {}
        self._measured: dict[str, int] = {}
        #: The outcome of the last look, which Airflow may not have stored yet.
        self._known: dict[str, dict[str, Any]] = {}

    def serialize(self) -> tuple[str, dict[str, Any]]:
        path, kwargs = super().serialize()
        return path, {**kwargs, **self.limits}

    def passed(self, finding: Mapping[str, Any]) -> list[str]:
        """Name what passes a limit; each name is told once."""
        raise NotImplementedError

    def measure(self, table: str) -> TableMeasure:
        return self.measure_class(table, self.store, self.limits)

    async def tell(self, table: WatchedTable, latest: int, deadline: float) -> AsyncIterator[dict[str, Any]]:
        if latest < 0 or self._measured.get(table.uri, -1) >= latest:
            return
        measure = self._measures.setdefault(table.uri, self.measure(table.uri))
        storage = await self.store.run(self.store.open, table.uri)
        found = await self.store.run(measure.finding, storage, latest)
        over = [] if found is None else self.passed(found)
        known = self._known.get(table.uri) or self.recalled(table.uri) or {"over": []}
        if found is not None and not set(over) <= set(known["over"]):
            yield found
        self._measured[table.uri] = latest
        self._known[table.uri] = {"version": latest, "over": over}
        self.outcome(table.uri, self._known[table.uri])

    def earlier(self, one: Any, other: Any) -> Any:
        return min(one, other, key=lambda known: len(known["over"]))

    async def run(self) -> AsyncIterator[TriggerEvent]:
        measure, deferral = self.measure(self.tables[0]), Deferral()
        while True:
            outcome = await self.store.run(measure.look)
            if outcome is not None:
                await deferral.settled()
                yield TriggerEvent(outcome)  # type: ignore[no-untyped-call]
                return
            await asyncio.sleep(measure.seconds(self.poll_interval, random.random()))  # noqa: S311
