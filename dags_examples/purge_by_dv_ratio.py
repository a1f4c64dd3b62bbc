"""Every night, files of which a tenth and more is marked as deleted are written anew, in batches and within an hour.

Deletes and updates of a table with deletion vectors only mark rows, and every reader has to skip what was marked.
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
