"""Maintenance on demand: a form offers the choices, and the connection's allowed roots refuse every other address.

The connection ``sales`` has type ``delta`` and ``{"allowed_roots": "s3://lake/sales"}`` in its extra.
"""

from __future__ import annotations

# [START adhoc_maintenance]
from typing import Any

from airflow.sdk import DAG, Param, task

from airflow_delta.operators import DeltaCheckpointOperator, DeltaOptimizeOperator, DeltaReorgPurgeOperator

with DAG(
    "adhoc_maintenance",
    schedule=None,
    params={
        "table": Param(
            "s3://lake/sales/events",
            type="string",
            pattern="^s3://lake/sales/[a-z0-9_]+$",
            description="Address of a Delta table",
        ),
        "operation": Param(
            "optimize",
            type="string",
            enum=["optimize", "purge", "checkpoint"],
            description="optimize: merge small files; purge: take out deleted rows; checkpoint: keep the log short",
        ),
        "where": Param(
            "true",
            type="string",
            minLength=1,
            description="Predicate on partition columns; true: every partition",
        ),
        "dry_run": Param(True, type="boolean", description="Plan only: say what would be done"),
    },
):

    @task.branch
    def choose(params: Any = None) -> str:
        return str(params["operation"])

    # The form decides neither the connection nor what the job runs with.
    common: dict[str, Any] = {
        "table": "{{ params.table }}",
        "delta_conn_id": "sales",
        "dry_run": "{{ params.dry_run }}",
    }
    choose() >> [
        DeltaOptimizeOperator(task_id="optimize", where="{{ params.where }}", **common),
        DeltaReorgPurgeOperator(task_id="purge", where="{{ params.where }}", **common),
        DeltaCheckpointOperator(task_id="checkpoint", **common),
    ]
# [END adhoc_maintenance]
