"""The example in deploy mode cluster, on a real Airflow and a real standalone cluster.

Restarts, kills and timeouts are in `tests/integration/airflow_matrix`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from deltalake import DeltaTable
from tests.support.servers.spark_standalone import SparkCluster

from live_airflow import LiveAirflow

pytestmark = [pytest.mark.airflow, pytest.mark.spark]

WriteTable = Callable[[str], Path]


def test_the_documented_dag_leaves_its_driver_to_the_cluster(
    airflow: LiveAirflow, spark_cluster: SparkCluster, write_table: WriteTable
) -> None:
    table, drivers_before = write_table("events"), set(spark_cluster.drivers())
    before = DeltaTable(str(table)).version()
    run_id = airflow.trigger("optimize_in_cluster_mode", conf={"table": str(table)})
    assert airflow.wait_for_run("optimize_in_cluster_mode", run_id) == "success", airflow.story(
        "optimize_in_cluster_mode", run_id
    )
    report = airflow.xcom("optimize_in_cluster_mode", run_id, "optimize")
    assert (report["status"], report["version"], report["engine"]) == ("committed", before + 1, "spark")
    new = {name: state for name, state in spark_cluster.drivers().items() if name not in drivers_before}
    assert list(new.values()) == ["FINISHED"]
