"""Maintain many tables every night: each has a task instance of its own, and one that fails stops no other.

The pool ``delta_maintenance`` bounds how many jobs run at once, whichever DAGs they belong to.
"""

from __future__ import annotations

# [START maintain_many_tables]
from typing import Any

from airflow.sdk import DAG, Param, task, task_group
from airflow.sdk.exceptions import AirflowFailException

from airflow_delta.operators import DeltaCheckpointOperator, DeltaOptimizeOperator, DeltaTableHealthOperator

#: For the tasks of each table. An unnamed map index would be a mere number in the UI.
COMMON: dict[str, Any] = {
    "delta_conn_id": "lake",
    "pool": "delta_maintenance",
    "map_index_template": "{{ task.table }}",
}
#: For those that start a job.
JOB: dict[str, Any] = {**COMMON, "asset_alias": "nightly", "memory_limit": "1GiB", "parallelism": 2}

with DAG(
    "maintain_many_tables",
    schedule="@daily",
    catchup=False,
    max_active_runs=1,
    max_active_tasks=64,
    default_args={"retries": 2},
    params={
        "tables": Param(
            ["s3://lake/events", "s3://lake/orders"],
            type="array",
            items={"type": "string"},
            description="Addresses of Delta tables",
        ),
    },
):

    @task
    def tables(params: Any = None) -> list[str]:
        """List the tables of tonight, for instance from a catalog."""
        return list(params["tables"])

    @task_group
    def maintain(table: str) -> None:
        optimize = DeltaOptimizeOperator(
            task_id="optimize", table=table, max_bytes="200GiB", max_duration=3600, **JOB
        )
        checkpoint = DeltaCheckpointOperator(task_id="checkpoint", table=table, cleanup_log=True, **JOB)
        # Also after a failure: the page "Delta tables" shows what the reading finds.
        health = DeltaTableHealthOperator(task_id="health", table=table, trigger_rule="all_done", **COMMON)
        optimize >> checkpoint >> health

    @task(trigger_rule="all_done", retries=0)
    def summary(listed: list[str], ti: Any = None) -> dict[str, int]:
        """Add up the night. A table that failed has no report, and fails the run when all others are done."""
        reports = {
            report["table"]: report for report in ti.xcom_pull(task_ids=["maintain.optimize"]) if report
        }
        replaced = sum(report["metrics"].get("numRemovedFiles", 0) for report in reports.values())
        print(len(reports), "tables,", replaced, "files replaced")  # noqa: T201
        failed = sorted(set(listed) - set(reports))
        if failed:
            raise AirflowFailException(f"{len(failed)} tables failed: {', '.join(failed[:20])}")
        return {"tables": len(reports), "replacedFiles": replaced}

    listed: Any = tables()
    maintain.expand(table=listed) >> summary(listed)
# [END maintain_many_tables]
