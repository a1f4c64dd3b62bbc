"""Look for missing files every week; where some are missing, ask a person before they are taken out of the log."""

from __future__ import annotations

# [START repair_with_approval]
from typing import Any

from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk import DAG, Param, task

from airflow_delta.operators import DeltaRepairOperator

with DAG(
    "repair_with_approval",
    schedule="@weekly",
    catchup=False,
    params={"table": Param("s3://lake/events", type="string", description="Address of a Delta table")},
):
    plan = DeltaRepairOperator(task_id="plan", table="{{ params.table }}", remove_missing=True, dry_run=True)

    @task.short_circuit
    def asks_for_something(report: Any) -> bool:
        return bool(report["plan"]["numFilesToRemove"])

    approve = ApprovalOperator(
        task_id="approve",
        subject="Take missing files of {{ params.table }} out of its log?",
        body="""\
{% set plan = ti.xcom_pull(task_ids="plan")["plan"] %}
{{ plan.numMissingFiles }} of {{ plan.numFilesScanned }} files are missing; their rows are lost.
""",
    )
    repair = DeltaRepairOperator(
        task_id="repair", table="{{ params.table }}", remove_missing=True, approved_plan=plan.output
    )
    asks_for_something(plan.output) >> approve >> repair
# [END repair_with_approval]
