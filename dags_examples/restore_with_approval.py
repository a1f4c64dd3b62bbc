"""Plan a RESTORE, ask a person, and make the table what it was at an earlier version."""

from __future__ import annotations

# [START restore_with_approval]
from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk import DAG, Param

from airflow_delta.operators import DeltaRestoreOperator

with DAG(
    "restore_with_approval",
    schedule=None,
    params={
        "table": Param("s3://lake/events", type="string", description="Address of a Delta table"),
        "version": Param(0, type="integer", minimum=0, description="The version to restore"),
    },
):
    plan = DeltaRestoreOperator(
        task_id="plan", table="{{ params.table }}", to_version="{{ params.version }}", dry_run=True
    )
    approve = ApprovalOperator(
        task_id="approve",
        subject="Restore version {{ params.version }} of {{ params.table }}?",
        body="""\
{% set plan = ti.xcom_pull(task_ids="plan")["plan"] %}
{{ plan.numRestoredFiles }} files are added again, {{ plan.numRemovedFiles }} files are removed
""",
    )
    restore = DeltaRestoreOperator(
        task_id="restore", table="{{ params.table }}", to_version="{{ params.version }}"
    )
    plan >> approve >> restore
# [END restore_with_approval]
