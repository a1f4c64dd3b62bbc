"""DAGs that run jobs in deploy mode cluster; the connection and the Spark properties come from the environment."""

from __future__ import annotations

import json
import os
import signal
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import DAG, Param

from airflow_delta.operators import DeltaOptimizeOperator

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_delta.runners.job_output import JobProgress

#: Properties of a job that waits for a minute, holding a driver, and of one that does not.
WAITS, QUICK = json.loads(os.environ["CLUSTER_SPARK_CONF"])


class KilledWhileWaiting(DeltaOptimizeOperator):
    """The worker of its first try is killed while it waits for the driver."""

    _try_number = 1

    def execute(self, context: Context) -> dict[str, Any]:
        self._try_number = context["ti"].try_number
        return super().execute(context)

    def _show(self, progress: JobProgress) -> None:
        super()._show(progress)
        if self._try_number == 1:
            os.kill(os.getpid(), signal.SIGKILL)


#: A DAG run with one of these ids may last so long.
RUN_TIMEOUT = timedelta(seconds=20)
CASES: dict[str, tuple[type[DeltaOptimizeOperator], dict[str, Any]]] = {
    "cluster_deferred": (DeltaOptimizeOperator, {"deferrable": True, "spark_conf": WAITS}),
    "cluster_waiting": (DeltaOptimizeOperator, {"deferrable": False, "spark_conf": WAITS}),
    "cluster_run_timeout_deferred": (DeltaOptimizeOperator, {"deferrable": True, "spark_conf": WAITS}),
    "cluster_run_timeout_waiting": (DeltaOptimizeOperator, {"deferrable": False, "spark_conf": WAITS}),
    "cluster_killed_worker": (KilledWhileWaiting, {"deferrable": False, "spark_conf": QUICK}),
    "cluster_timeout": (
        DeltaOptimizeOperator,
        {"deferrable": True, "spark_conf": WAITS, "execution_timeout": timedelta(seconds=15), "retries": 0},
    ),
}
for dag_id, (operator, arguments) in CASES.items():
    with DAG(
        dag_id,
        schedule=None,
        start_date=datetime(2024, 1, 1, tzinfo=UTC),
        params={"table": Param("", type="string")},
        dagrun_timeout=RUN_TIMEOUT if dag_id.startswith("cluster_run_timeout") else None,
    ):
        operator(
            task_id="optimize",
            table="{{ params.table }}",
            engine="spark",
            spark_conn_id="spark_cluster",
            retry_delay=timedelta(seconds=1),
            **{"retries": 1, **arguments},
        )
