"""Trigger for a table that needs maintenance; for :class:`~airflow_delta.sensors.DeltaTableHealthSensor`."""

from __future__ import annotations

from collections.abc import Hashable

from airflow_delta.triggers.table_measure import HealthMeasure
from airflow_delta.triggers.table_measure_trigger import TableMeasureTrigger


class DeltaTableHealthTrigger(TableMeasureTrigger):
    """Fires when a table has too many small files, commits since its checkpoint, or tombstones; for tasks only."""

    state_prefix = "delta_health"
    measure_class = HealthMeasure

    def shared_stream_key(self) -> Hashable | None:
        return None
