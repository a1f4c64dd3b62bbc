"""Count the rows that are older than 400 days, ask a person, and remove no more than was approved."""

from __future__ import annotations

# [START expire_with_approval]
from typing import Any

from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk import DAG, Param, task

from airflow_delta.operators import DeltaExpireOperator

with DAG(
    "expire_with_approval",
    schedule="@weekly",
    catchup=False,
    params={
        "table": Param("s3://lake/events", type="string", description="Address of a Delta table"),
        "column": Param("event_time", type="string", description="Column that says how old a row is"),
    },
):
    given = {"table": "{{ params.table }}", "column": "{{ params.column }}"}
    plan = DeltaExpireOperator(task_id="plan", **given, older_than="400d", dry_run=True)

    @task.short_circuit
    def asks_for_something(report: Any) -> bool:
        return bool(report["plan"]["numExpiredRows"])

    approve = ApprovalOperator(
        task_id="approve",
        subject="Remove old rows of {{ params.table }}?",
        body="""\
{% set plan = ti.xcom_pull(task_ids="plan")["plan"] %}
{{ plan.numExpiredRows }} rows with {{ plan.column }} before {{ plan.before }}

* {{ plan.numExpiredFiles }} files as a whole
* rows of {{ plan.numPartlyExpiredFiles }} other files, by {{ plan.by }}
""",
    )
    expire = DeltaExpireOperator(
        task_id="expire",
        **given,
        before="{{ ti.xcom_pull(task_ids='plan')['plan']['before'] }}",
        max_rows="{{ ti.xcom_pull(task_ids='plan')['plan']['numExpiredRows'] }}",
    )
    asks_for_something(plan.output) >> approve >> expire
# [END expire_with_approval]
