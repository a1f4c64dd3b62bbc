"""Compact a table on a Spark Connect server, every night. The task holds no worker slot while the server rewrites."""

from __future__ import annotations

# [START optimize_on_spark_connect]
from datetime import timedelta

from airflow.sdk import DAG, Param

from airflow_delta.operators import DeltaOptimizeOperator

with DAG(
    "optimize_on_spark_connect",
    schedule="@daily",
    catchup=False,
    params={"table": Param("s3://lake/events", type="string", description="Address of a Delta table")},
):
    DeltaOptimizeOperator(
        task_id="optimize",
        table="{{ params.table }}",
        engine="spark",
        spark_conn_id="spark_connect_default",
        deferrable=True,
        execution_timeout=timedelta(hours=3),
        retries=2,
    )
# [END optimize_on_spark_connect]
