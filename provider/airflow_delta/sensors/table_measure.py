"""Base of the sensors that measure a table, with the same measure in the task and in the triggerer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from airflow_delta.sensors.base import DeltaTableSensor
from delta_log.printable import printable

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_delta.triggers.table_measure import TableMeasure
    from airflow_delta.triggers.table_measure_trigger import TableMeasureTrigger
    from airflow_delta.triggers.table_wait import Outcome


class TableMeasureSensor(DeltaTableSensor):
    """Waits until something about a table passes a limit; the XCom is what was found."""

    _measure: TableMeasure | None = None

    def trigger(self) -> TableMeasureTrigger:
        raise NotImplementedError

    def summary(self, finding: Mapping[str, Any]) -> str:
        """The finding in one line for the task's log."""
        raise NotImplementedError

    def look(self, context: Context) -> Outcome | None:
        if self._measure is None:
            self._measure = self.trigger().measure(self.value_of("table"))
        return self._measure.look()

    def result(self, context: Context, outcome: Mapping[str, Any]) -> dict[str, Any]:
        finding: dict[str, Any] = outcome["finding"]
        summary = printable(self.summary(finding))
        self.log.info("%s, version %d: %s.", printable(finding["table"]), finding["version"], summary)
        return finding
