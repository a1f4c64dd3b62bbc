"""Compact a table, and write manifests of its new files for readers that do not know Delta tables, before old files go."""

from __future__ import annotations

# [START generate_after_optimize]
from airflow.sdk import DAG, Param

from airflow_delta.operators import DeltaGenerateOperator, DeltaOptimizeOperator, DeltaVacuumOperator

with DAG(
    "generate_after_optimize",
    schedule=None,
    params={"table": Param("s3://lake/events", type="string", description="Address of a Delta table")},
):
    optimize = DeltaOptimizeOperator(task_id="optimize", table="{{ params.table }}")
    generate = DeltaGenerateOperator(task_id="generate", table="{{ params.table }}")
    vacuum = DeltaVacuumOperator(task_id="vacuum", table="{{ params.table }}")
    optimize >> generate >> vacuum
# [END generate_after_optimize]
