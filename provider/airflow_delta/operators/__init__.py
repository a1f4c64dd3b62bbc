"""Operators: one for each kind of maintenance, and one that says which kind a table needs."""

from __future__ import annotations

from airflow_delta.operators.checkpoint import DeltaCheckpointOperator
from airflow_delta.operators.optimize import DeltaOptimizeOperator
from airflow_delta.operators.reorg_purge import DeltaReorgPurgeOperator
from airflow_delta.operators.table_health import DeltaTableHealthOperator
from airflow_delta.operators.vacuum import DeltaVacuumOperator

__all__ = [
    "DeltaCheckpointOperator",
    "DeltaOptimizeOperator",
    "DeltaReorgPurgeOperator",
    "DeltaTableHealthOperator",
    "DeltaVacuumOperator",
]
