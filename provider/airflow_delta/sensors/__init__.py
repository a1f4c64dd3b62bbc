"""Sensors: tasks that wait for a table."""

from __future__ import annotations

from airflow_delta.sensors.deletion_vector_ratio import DeltaDeletionVectorRatioSensor
from airflow_delta.sensors.table_health import DeltaTableHealthSensor
from airflow_delta.sensors.table_version import DeltaTableVersionSensor

__all__ = ["DeltaDeletionVectorRatioSensor", "DeltaTableHealthSensor", "DeltaTableVersionSensor"]
