"""A DAG with a task of each operator and of each sensor, on one table."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from airflow.sdk import DAG

from airflow_delta.operators import (
    DeltaAnalyzeOperator,
    DeltaCheckpointOperator,
    DeltaDoctorOperator,
    DeltaDropFeatureOperator,
    DeltaExpireOperator,
    DeltaGenerateOperator,
    DeltaOptimizeOperator,
    DeltaReorgPurgeOperator,
    DeltaRepairOperator,
    DeltaRestoreOperator,
    DeltaTableHealthOperator,
    DeltaVacuumOperator,
)
from airflow_delta.sensors import (
    DeltaDeletionVectorRatioSensor,
    DeltaTableHealthSensor,
    DeltaTableVersionSensor,
)

with DAG(
    "every_operator_and_sensor",
    schedule=None,
    params={"table": ""},
    # Under load Airflow 3.3 now and then fails a task that it has just queued, before any of its code runs.
    default_args={"retries": 2, "retry_delay": timedelta(seconds=1)},
):
    lake: Any = {"table": "{{ params.table }}", "delta_conn_id": "lake"}
    local: Any = {**lake, "engine": "local"}
    (
        [
            DeltaTableVersionSensor(task_id="version", baseline=0, **lake),
            DeltaDeletionVectorRatioSensor(task_id="ratio", ratio=0.05, deferrable=True, **lake),
            DeltaTableHealthSensor(task_id="small_files", small_files=1, deferrable=True, **lake),
        ]
        >> DeltaDoctorOperator(task_id="doctor", **lake)
        >> DeltaTableHealthOperator(task_id="health", **lake)
        >> DeltaCheckpointOperator(task_id="checkpoint", if_due=False, **lake)
        >> DeltaReorgPurgeOperator(task_id="purge", **local)
        >> DeltaOptimizeOperator(task_id="optimize", **local)
        >> DeltaVacuumOperator(task_id="vacuum", retain_hours=0, retention_check=False, **local)
        >> DeltaDropFeatureOperator(task_id="drop_feature", feature="deletionVectors", **local)
        >> DeltaExpireOperator(task_id="expire", column="day", before="2024-01-01T00:00:00Z", **lake)
        >> DeltaAnalyzeOperator(task_id="analyze", every_file=True, **lake)
        >> DeltaRepairOperator(task_id="repair", **lake)
        >> DeltaGenerateOperator(task_id="generate", **lake)
        >> DeltaRestoreOperator(
            task_id="restore", to_version="{{ ti.xcom_pull(task_ids='optimize')['version'] }}", **lake
        )
    )
