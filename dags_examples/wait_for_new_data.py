"""Wait, in a scheduled DAG, until the table has data that the previous run did not see."""

from __future__ import annotations

# [START wait_for_new_data]
from datetime import timedelta
from typing import Any

from airflow.sdk import DAG, Param, task

from airflow_delta.sensors import DeltaTableVersionSensor

with DAG(
    "wait_for_new_data",
    schedule="@hourly",
    catchup=False,
    max_active_runs=1,
    default_args={"retries": 2, "retry_delay": timedelta(seconds=30)},
    params={"table": Param("s3://lake/events", type="string", description="Address of a Delta table")},
):
    new_data = DeltaTableVersionSensor(
        task_id="new_data",
        table="{{ params.table }}",
        start_from="earliest",
        deferrable=True,
        poke_interval=30,
        timeout=50 * 60,
        soft_fail=True,
    )

    @task
    def load(found: Any) -> list[int]:
        """Load exactly the versions that the sensor found."""
        return [commit["version"] for commit in found["commits"]]

    load(new_data.output)
# [END wait_for_new_data]
