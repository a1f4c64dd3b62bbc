"""Send an e-mail when a table comes to need attention, and when its maintenance has failed three times."""

from __future__ import annotations

# [START tell_of_tables]
from typing import Any

from airflow.providers.smtp.notifications.smtp import SmtpNotifier
from airflow.sdk import DAG, Param, task

from airflow_delta.notifications import DeltaMaintenanceFailureNotifier, DeltaTableAttentionNotifier
from airflow_delta.operators import DeltaOptimizeOperator, DeltaTableHealthOperator


def mail(subject: str) -> SmtpNotifier:
    return SmtpNotifier(
        from_email="airflow@example.org",
        to="lakehouse@example.org",
        subject=subject,
        html_content='<pre>{{ delta.text | e }}</pre> <a href="{{ delta.page | e }}">Delta tables</a>',
    )


NEEDY = DeltaTableAttentionNotifier(mail("{{ delta.name }}: {{ delta.status }}"))
FAILING = DeltaMaintenanceFailureNotifier(
    mail("{{ delta.operation }} of {{ delta.name }} has failed {{ delta.failures }} times"), times=3
)

with DAG(
    "tell_of_tables",
    schedule="@daily",
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

    found = tables()
    health = DeltaTableHealthOperator.partial(
        task_id="health", small_files=4, on_success_callback=NEEDY, on_failure_callback=FAILING
    ).expand(table=found)
    health >> DeltaOptimizeOperator.partial(
        task_id="optimize", trigger_rule="all_done", on_failure_callback=FAILING
    ).expand(table=found)
# [END tell_of_tables]
