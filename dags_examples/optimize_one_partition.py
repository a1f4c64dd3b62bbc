"""Compact the partition of a day once the day is complete. Files of other partitions are not touched."""

from __future__ import annotations

# [START optimize_one_partition]
from airflow.sdk import DAG, Param

from airflow_delta.operators import DeltaOptimizeOperator

with DAG(
    "optimize_one_partition",
    schedule=None,
    params={
        "table": Param("s3://lake/events", type="string", description="Address of a Delta table"),
        "day": Param("2026-01-31", type="string", description="The partition that is complete"),
    },
):
    DeltaOptimizeOperator(
        task_id="optimize",
        table="{{ params.table }}",
        where="day = '{{ params.day }}'",
        verify="full",
    )
# [END optimize_one_partition]
