"""Compact the small files of a day into large ones, every night.

``./dev demo`` runs this DAG on a table of its own, given as the parameter `table`.
"""

from __future__ import annotations

# [START nightly_optimize]
from airflow.sdk import DAG, Param

from airflow_delta.operators import DeltaOptimizeOperator

with DAG(
    "nightly_optimize",
    schedule="@daily",
    catchup=False,
    params={"table": Param("s3://lake/events", type="string", description="Address of a Delta table")},
):
    DeltaOptimizeOperator(task_id="optimize", table="{{ params.table }}", engine="spark")
# [END nightly_optimize]
