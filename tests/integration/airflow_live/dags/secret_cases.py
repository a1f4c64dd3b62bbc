"""Tasks that use a connection with secrets: one waits, some work, and one is refused by the store."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from airflow.sdk import DAG

from airflow_delta.operators import DeltaDoctorOperator, DeltaOptimizeOperator, DeltaTableHealthOperator
from airflow_delta.sensors import DeltaTableVersionSensor

with DAG(
    "uses_secrets",
    schedule=None,
    params={"table": "", "forbidden": "", "baseline": 0},
    # Under load Airflow 3.3 now and then fails a task that it has just queued, before any of its code runs.
    default_args={"retries": 2, "retry_delay": timedelta(seconds=1)},
):
    lake: Any = {"table": "{{ params.table }}", "delta_conn_id": "secret_lake"}
    (
        DeltaTableVersionSensor(
            task_id="wait", baseline="{{ params.baseline }}", deferrable=True, poke_interval=1, **lake
        )
        >> DeltaDoctorOperator(task_id="doctor", **lake)
        >> DeltaTableHealthOperator(task_id="health", **lake)
        >> DeltaOptimizeOperator(task_id="optimize", engine="local", **lake)
    )
    DeltaOptimizeOperator(
        task_id="refused", engine="local", table="{{ params.forbidden }}", delta_conn_id="secret_lake"
    )
