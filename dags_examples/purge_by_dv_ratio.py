"""Rewrite files with more than a tenth of deleted rows, every night, in batches and within an hour.

Deletes and updates of a table with deletion vectors only mark rows, and every reader has to skip the marked ones.
"""

from __future__ import annotations

# [START purge_by_dv_ratio]
from airflow.sdk import DAG, Param

from airflow_delta.operators import DeltaReorgPurgeOperator

with DAG(
    "purge_by_dv_ratio",
    schedule="@daily",
    catchup=False,
    params={"table": Param("s3://lake/events", type="string", description="Address of a Delta table")},
):
    DeltaReorgPurgeOperator(
        task_id="purge",
        table="{{ params.table }}",
        max_deleted_rows_ratio=0.1,
        batch_size="16GiB",
        max_duration=3600,
    )
# [END purge_by_dv_ratio]
