"""Look at many tables every hour, and optimize those that need it, with the arguments that the reading recommends."""

from __future__ import annotations

# [START maintain_what_is_needed]
from typing import Any

from airflow.sdk import DAG, Param, task

from airflow_delta.operators import DeltaOptimizeOperator, DeltaTableHealthOperator

with DAG(
    "maintain_what_is_needed",
    schedule="@hourly",
    catchup=False,
    max_active_runs=1,
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
        return list(params["tables"])

    @task(trigger_rule="all_done")
    def recommended(documents: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """The arguments for each table that wants an OPTIMIZE."""
        return [
            {"table": document["table"], **advice["arguments"]}
            for document in documents
            for advice in document["recommendations"]
            if advice["operation"] == "optimize"
        ]

    health = DeltaTableHealthOperator.partial(
        task_id="health", small_files=4, map_index_template="{{ task.table }}"
    ).expand(table=tables())
    DeltaOptimizeOperator.partial(task_id="optimize", map_index_template="{{ task.table }}").expand_kwargs(
        recommended(health.output)  # type: ignore[arg-type]
    )
# [END maintain_what_is_needed]
