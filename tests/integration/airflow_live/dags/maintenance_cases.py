"""DAGs of the tests: every argument is a parameter of the run, and some tries come to a bad end."""

from __future__ import annotations

import os
import signal
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG, Asset, Param

from airflow_delta.assets import maintenance_asset
from airflow_delta.operators import DeltaOptimizeOperator

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_delta.runners.job_output import JobProgress

ARGUMENTS = ("table", "engine", "where", "full", "delta_conn_id", "spark_conn_id")
DEFAULTS = {
    "engine": "local",
    "spark_conn_id": "spark_default",
    "full": "False",
    "where": "true",
    "delta_conn_id": "ambient",
}
#: A program is chosen by the DAG file alone.
PROGRAMS = {
    "no_spark_submit": "/no/such/spark-submit",
    "broken_spark_submit": os.environ["BROKEN_SPARK_SUBMIT"],
}
TEXT: list[str] = ["string", "null"]


class FailsAfterCommit(DeltaOptimizeOperator):
    """Its first try is ended when the work is done: by an exception, or as by a lack of memory."""

    ending = "exception"

    def execute(self, context: Context) -> dict[str, Any]:
        result = super().execute(context)
        if context["ti"].try_number == 1:
            if self.ending == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            raise RuntimeError("after the commit")
        return result


class KilledAfterCommit(FailsAfterCommit):
    ending = "kill"


class KilledAtWork(DeltaOptimizeOperator):
    """Its first try is killed while the job is at work."""

    _try_number = 1

    def execute(self, context: Context) -> dict[str, Any]:
        self._try_number = context["ti"].try_number
        return super().execute(context)

    def _show(self, progress: JobProgress) -> None:
        super()._show(progress)
        if self._try_number == 1:
            os.kill(os.getpid(), signal.SIGKILL)


TEMPLATES: dict[str, Any] = {name: f"{{{{ params.{name} }}}}" for name in ARGUMENTS}
for dag_id, operator in {
    "optimize": DeltaOptimizeOperator,
    "fails_after_commit": FailsAfterCommit,
    "killed_after_commit": KilledAfterCommit,
    "killed_at_work": KilledAtWork,
    **dict.fromkeys(PROGRAMS, DeltaOptimizeOperator),
}.items():
    with DAG(
        dag_id,
        # May be backfilled, but is not scheduled by itself any more.
        schedule="@daily",
        start_date=datetime(2024, 1, 1, tzinfo=UTC),
        end_date=datetime(2024, 12, 31, tzinfo=UTC),
        catchup=False,
        max_active_runs=1,
        params={name: Param(DEFAULTS.get(name), type=TEXT) for name in ARGUMENTS},
    ):
        operator(
            task_id="optimize",
            retries=2,
            retry_delay=timedelta(seconds=1),
            spark_binary=PROGRAMS.get(dag_id),
            **TEMPLATES,
        )

with DAG("after_maintenance", schedule=maintenance_asset(os.environ["FOLLOWED_TABLE"])):
    EmptyOperator(task_id="wake")

with DAG("emits_data", schedule=None, params={"emits": Param("false", type="string")}):
    DeltaOptimizeOperator(
        task_id="optimize",
        table=os.environ["TOLD_TABLE"],
        engine="local",
        emit_data_asset="{{ params.emits }}",
    )

with DAG("after_data", schedule=Asset(name="data of a test", uri=os.environ["TOLD_TABLE"])):
    EmptyOperator(task_id="wake")
