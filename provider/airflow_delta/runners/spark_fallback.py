"""Where a job with ``engine="auto"`` hands work over that is too large for this worker.

A connection that is missing is told with the first job, and not on the day when a table outgrows the worker: one that the DAG names
fails the task, and where Airflow's default is missing the task's log says what would fail.
"""

from __future__ import annotations

from airflow_delta.runners.job_runner import JobCannotStart, TaskLog
from delta_maintenance.engine.choice import LOCAL_BYTES
from delta_maintenance.units import format_bytes

#: Airflow's name for the Spark connection where none is named.
DEFAULT_CONNECTION = "spark_default"


def master_for_large_work(spark_conn_id: str, log: TaskLog, *, rewrites: bool) -> str | None:
    """Return the Spark master that may take large work; ``None``: there is none.

    :param rewrites: whether the job rewrites files. Any other job can do without Spark, only slower.
    :raises JobCannotStart: the DAG names a connection, and it cannot be used.
    """
    try:
        return _master(spark_conn_id)
    except JobCannotStart as error:
        if spark_conn_id != DEFAULT_CONNECTION:
            raise
        if rewrites:
            log.warning(
                "%s This job is done on this worker all the same; a rewrite of more than %s would fail. With engine='local' "
                "this worker does work of any size.",
                error,
                format_bytes(LOCAL_BYTES),
            )
        return None


def _master(spark_conn_id: str) -> str:
    try:
        from airflow_delta.runners.spark_connect import is_spark_connect
        from airflow_delta.runners.spark_submit import master_of, require_connection
    except ImportError as error:
        raise JobCannotStart(
            f"Spark cannot be used here ({error}). Install airflow-provider-delta[airflow,spark], or use engine='local'."
        ) from error
    connection = require_connection(spark_conn_id)
    if is_spark_connect(connection):
        # Only the host: what follows it may be a token.
        return f"sc://{(connection.host or '').removeprefix('sc://').partition('/')[0]}"
    master = master_of(spark_conn_id)
    if master is None:
        raise JobCannotStart(
            f"Spark connection {spark_conn_id!r} cannot be used. Set its type to 'spark' and the master as its host, for example "
            "local[*], yarn or spark://host:7077; or use engine='local'."
        )
    return master
