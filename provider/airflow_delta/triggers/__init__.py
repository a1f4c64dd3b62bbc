"""Triggers: what waits in the triggerer, for a sensor or for an asset."""

from __future__ import annotations

from airflow_delta.triggers.deletion_vector_ratio import DeltaDeletionVectorRatioTrigger
from airflow_delta.triggers.table_health import DeltaTableHealthTrigger
from airflow_delta.triggers.table_version import DeltaTableVersionTrigger

__all__ = ["DeltaDeletionVectorRatioTrigger", "DeltaTableHealthTrigger", "DeltaTableVersionTrigger"]
