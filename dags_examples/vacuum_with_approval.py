"""Plan a vacuum, ask a person, and delete no more than was approved."""

from __future__ import annotations

# [START vacuum_with_approval]
from typing import Any

from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk import DAG, Param, task

from airflow_delta.operators import DeltaVacuumOperator

with DAG(
    "vacuum_with_approval",
    schedule="@weekly",
    catchup=False,
    params={"table": Param("s3://lake/events", type="string", description="Address of a Delta table")},
):
    plan = DeltaVacuumOperator(task_id="plan", table="{{ params.table }}", dry_run=True)

    @task.short_circuit
    def asks_for_something(report: Any) -> bool:
        return bool(report["plan"]["numFilesToDelete"])

    approve = ApprovalOperator(
        task_id="approve",
        subject="Vacuum {{ params.table }}?",
        body="""\
{% set plan = ti.xcom_pull(task_ids="plan")["plan"] %}
{{ plan.numFilesToDelete }} files, {{ plan.sizeOfDataToDelete }} bytes

{% for reason, found in plan.reasons.items() %}* {{ reason }}: {{ found.numFiles }} files
{% endfor %}
""",
    )
    vacuum = DeltaVacuumOperator(task_id="vacuum", table="{{ params.table }}", approved_plan=plan.output)
    asks_for_something(plan.output) >> approve >> vacuum
# [END vacuum_with_approval]
