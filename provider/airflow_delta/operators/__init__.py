"""Operators: one for each kind of maintenance, one that says which kind a table needs, and one that examines connections."""

from __future__ import annotations

from airflow_delta.operators.checkpoint import DeltaCheckpointOperator
from airflow_delta.operators.content.drop_feature import DeltaDropFeatureOperator
from airflow_delta.operators.content.expire import DeltaExpireOperator
from airflow_delta.operators.doctor import DeltaDoctorOperator
from airflow_delta.operators.local_jobs.analyze import DeltaAnalyzeOperator
from airflow_delta.operators.local_jobs.generate import DeltaGenerateOperator
from airflow_delta.operators.local_jobs.repair import DeltaRepairOperator
from airflow_delta.operators.local_jobs.restore import DeltaRestoreOperator
from airflow_delta.operators.optimize import DeltaOptimizeOperator
from airflow_delta.operators.reorg_purge import DeltaReorgPurgeOperator
from airflow_delta.operators.table_health import DeltaTableHealthOperator
from airflow_delta.operators.vacuum import DeltaVacuumOperator

__all__ = [
    "DeltaAnalyzeOperator",
    "DeltaCheckpointOperator",
    "DeltaDoctorOperator",
    "DeltaDropFeatureOperator",
    "DeltaExpireOperator",
    "DeltaGenerateOperator",
    "DeltaOptimizeOperator",
    "DeltaReorgPurgeOperator",
    "DeltaRepairOperator",
    "DeltaRestoreOperator",
    "DeltaTableHealthOperator",
    "DeltaVacuumOperator",
]
