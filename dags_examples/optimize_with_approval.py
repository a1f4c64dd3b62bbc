"""Plan an OPTIMIZE, ask a person, and rewrite exactly what was approved."""

from __future__ import annotations

# [START optimize_with_approval]
from typing import Any

from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk import DAG, Param, task

from airflow_delta.operators import DeltaOptimizeOperator

with DAG(
    "optimize_with_approval",
    schedule="@weekly",
    catchup=False,
    params={"table": Param("s3://lake/events", type="string", description="Address of a Delta table")},
):
    plan = DeltaOptimizeOperator(task_id="plan", table="{{ params.table }}", dry_run=True)

    @task.short_circuit
    def asks_for_something(report: Any) -> bool:
        return bool(report["plan"]["numFilesToRemove"])

    approve = ApprovalOperator(
        task_id="approve",
        subject="Compact {{ params.table }}?",
        body="""\
{% set plan = ti.xcom_pull(task_ids="plan")["plan"] %}
{{ plan.numFilesToRemove }} files, {{ plan.numBytesToRemove }} bytes, become about {{ plan.numFilesToAddEstimate }}.

{% for reason, files in plan.numChosenFiles.items() %}* {{ reason }}: {{ files }} files
{% endfor %}
""",
    )
    optimize = DeltaOptimizeOperator(
        task_id="optimize", table="{{ params.table }}", approved_plan=plan.output
    )
    asks_for_something(plan.output) >> approve >> optimize
# [END optimize_with_approval]
