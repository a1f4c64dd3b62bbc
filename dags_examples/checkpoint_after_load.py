"""Write a checkpoint after a bulk load: the next reader opens one file instead of every commit of the load.

The task then deletes the part of the log that no version in retention needs, and repairs the version's checksum file.
"""

from __future__ import annotations

# [START checkpoint_after_load]
from airflow.sdk import DAG, Param, task

from airflow_delta.operators import DeltaCheckpointOperator

with DAG(
    "checkpoint_after_load",
    schedule=None,
    params={"table": Param("s3://lake/events", type="string", description="Address of a Delta table")},
):

    @task
    def load() -> None:
        """Writes to the table."""

    load() >> DeltaCheckpointOperator(
        task_id="checkpoint",
        table="{{ params.table }}",
        if_due=False,
        cleanup_log=True,
        repair_checksum=True,
    )
# [END checkpoint_after_load]
