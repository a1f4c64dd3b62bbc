"""Read exactly the rows that changed since the previous run: inserted, deleted and updated rows of the new versions."""

from __future__ import annotations

# [START read_changes]
from datetime import timedelta
from typing import Any

from airflow.sdk import DAG, Param, task

from airflow_delta.sensors import DeltaTableVersionSensor

with DAG(
    "read_changes",
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
    def count_changes(found: Any) -> dict[str, int]:
        """Count the changed rows by kind; a real task would write each batch to where it is needed."""
        from airflow_delta.hooks import DeltaTableHook

        table = DeltaTableHook().get_table(found["table"])
        counts: dict[str, int] = {}
        for batch in table.changes(found["firstVersion"], found["lastVersion"]):
            for change_type in batch.column("_change_type").to_pylist():
                counts[change_type] = counts.get(change_type, 0) + 1
        return counts

    count_changes(new_data.output)
# [END read_changes]
