"""Compact a table by a Spark driver that runs on the cluster, every night. The task holds no worker slot while the driver works."""

from __future__ import annotations

# [START optimize_in_cluster_mode]
from datetime import timedelta

from airflow.sdk import DAG, Param

from airflow_delta.operators import DeltaOptimizeOperator

with DAG(
    "optimize_in_cluster_mode",
    schedule="@daily",
    catchup=False,
    params={"table": Param("s3://lake/events", type="string", description="Address of a Delta table")},
):
    DeltaOptimizeOperator(
        task_id="optimize",
        table="{{ params.table }}",
        engine="spark",
        spark_conn_id="spark_cluster",
        deploy_mode="cluster",
        deferrable=True,
        spark_conf={"spark.executor.memory": "4g", "spark.driver.memory": "2g"},
        execution_timeout=timedelta(hours=3),
        retries=2,
    )
# [END optimize_in_cluster_mode]
