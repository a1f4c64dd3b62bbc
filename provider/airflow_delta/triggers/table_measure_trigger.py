"""Base of the triggers that measure a table and wait, on behalf of a task, until something passes a limit."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from airflow.triggers.base import TriggerEvent

from airflow_delta.triggers.table_event_trigger import TableEventTrigger
from airflow_delta.triggers.table_measure import TableMeasure


class TableMeasureTrigger(TableEventTrigger):
    """Measures tables whenever they have a new version.

    :param limits: JSON values, see :mod:`airflow_delta.triggers.table_measure`.
    """

    measure_class: type[TableMeasure]

    def __init__(
        self,
        table: str | Sequence[str],
        delta_conn_id: str | None = None,
        poll_interval: float = 60.0,
        *,
        limits: Mapping[str, Any],
    ) -> None:
        super().__init__(table, delta_conn_id, poll_interval)
        self.limits = dict(limits)

    def serialize(self) -> tuple[str, dict[str, Any]]:
        path, kwargs = super().serialize()
        return path, {**kwargs, "limits": dict(self.limits)}

    def measure(self, table: str) -> TableMeasure:
        return self.measure_class(table, self.store, self.limits)

    async def run(self) -> AsyncIterator[TriggerEvent]:
        measure = self.measure(self.tables[0])
        while True:
            outcome = await self.store.run(measure.look)
            if outcome is not None:
                yield TriggerEvent(outcome)  # type: ignore[no-untyped-call]
                return
            await asyncio.sleep(measure.seconds(self.poll_interval, random.random()))  # noqa: S311
