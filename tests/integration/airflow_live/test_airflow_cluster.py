"""Jobs in deploy mode cluster, on a real Airflow and a real standalone cluster: slots, restarts, kills."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from tests.support.servers.spark_standalone import SparkCluster

from live_airflow import LiveAirflow

pytestmark = [pytest.mark.airflow, pytest.mark.spark]

WriteTable = Callable[[str], Path]
_SECONDS = 90
_ALIVE = {"SUBMITTED", "RUNNING", "RELAUNCHING"}


@pytest.fixture
def drivers_before(spark_cluster: SparkCluster) -> set[str]:
    return set(spark_cluster.drivers())


def wait_until(found: Callable[[], Any], what: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + _SECONDS
    while not (value := found()):
        assert time.monotonic() < deadline, what()
        time.sleep(0.3)
    return value


def version_of(table: Path) -> int:
    return DeltaTable(str(table)).version()


def task_of(airflow: LiveAirflow, dag_id: str, run_id: str) -> dict[str, Any]:
    return airflow.task(dag_id, run_id, "optimize")


def new_drivers(cluster: SparkCluster, before: set[str]) -> dict[str, str]:
    return {driver: state for driver, state in cluster.drivers().items() if driver not in before}


def started(
    airflow: LiveAirflow, cluster: SparkCluster, before: set[str], dag_id: str, table: Path
) -> tuple[str, str]:
    """A run, and its driver, when that is at work."""
    run_id = airflow.trigger(dag_id, conf={"table": str(table)})
    (driver,) = wait_until(
        lambda: [d for d, state in new_drivers(cluster, before).items() if state == "RUNNING"],
        lambda: airflow.story(dag_id, run_id),
    )
    return run_id, driver


def test_a_deferred_job_holds_no_slot_and_outlives_scheduler_and_triggerer(
    airflow: LiveAirflow, spark_cluster: SparkCluster, drivers_before: set[str], write_table: WriteTable
) -> None:
    table = write_table("events")
    before = version_of(table)
    run_id, driver = started(airflow, spark_cluster, drivers_before, "cluster_deferred", table)
    wait_until(
        lambda: task_of(airflow, "cluster_deferred", run_id)["state"] == "deferred",
        lambda: airflow.story("cluster_deferred", run_id),
    )
    pool = airflow.call("GET", "/api/v2/pools/default_pool")
    assert (pool["running_slots"], pool["queued_slots"], pool["deferred_slots"]) == (0, 0, 1)
    for component in ("scheduler", "triggerer"):
        airflow.kill(component)
        airflow.start_component(component)
    assert airflow.wait_for_run("cluster_deferred", run_id) == "success", airflow.story(
        "cluster_deferred", run_id
    )
    report = airflow.xcom("cluster_deferred", run_id, "optimize")
    assert (report["status"], report["version"], report["engine"]) == ("committed", before + 1, "spark")
    assert version_of(table) == before + 1
    assert new_drivers(spark_cluster, drivers_before) == {driver: "FINISHED"}
    assert task_of(airflow, "cluster_deferred", run_id)["try_number"] == 1


@pytest.mark.parametrize("dag_id", ["cluster_deferred", "cluster_waiting"])
def test_marking_the_task_failed_ends_the_driver(
    airflow: LiveAirflow,
    spark_cluster: SparkCluster,
    drivers_before: set[str],
    write_table: WriteTable,
    dag_id: str,
) -> None:
    table = write_table("events")
    before = version_of(table)
    run_id, driver = started(airflow, spark_cluster, drivers_before, dag_id, table)
    if dag_id == "cluster_deferred":
        wait_until(lambda: task_of(airflow, dag_id, run_id)["state"] == "deferred", lambda: "")
        # The triggerer calls a trigger's on_kill only if it has begun to run it.
        time.sleep(3)
    path = f"/api/v2/dags/{dag_id}/dagRuns/{run_id}/taskInstances/optimize"
    airflow.call("PATCH", path.replace("+", "%2B").replace(":", "%3A"), {"new_state": "failed"})
    wait_until(lambda: spark_cluster.drivers()[driver] not in _ALIVE, lambda: airflow.story(dag_id, run_id))
    assert spark_cluster.drivers()[driver] == "KILLED"
    wait_until(lambda: not spark_cluster.state()["activeapps"], spark_cluster.state)
    assert version_of(table) == before


def test_a_try_whose_worker_was_killed_has_its_driver_followed_by_the_next(
    airflow: LiveAirflow, spark_cluster: SparkCluster, drivers_before: set[str], write_table: WriteTable
) -> None:
    table = write_table("events")
    before = version_of(table)
    run_id = airflow.trigger("cluster_killed_worker", conf={"table": str(table)})
    assert airflow.wait_for_run("cluster_killed_worker", run_id) == "success", airflow.story(
        "cluster_killed_worker", run_id
    )
    assert task_of(airflow, "cluster_killed_worker", run_id)["try_number"] == 2
    report = airflow.xcom("cluster_killed_worker", run_id, "optimize")
    assert (report["status"], report["version"]) == ("committed", before + 1)
    assert len(new_drivers(spark_cluster, drivers_before)) == 1


def test_the_execution_timeout_of_a_deferred_task_ends_the_driver(
    airflow: LiveAirflow, spark_cluster: SparkCluster, drivers_before: set[str], write_table: WriteTable
) -> None:
    table = write_table("events")
    before = version_of(table)
    run_id, driver = started(airflow, spark_cluster, drivers_before, "cluster_timeout", table)
    assert airflow.wait_for_run("cluster_timeout", run_id) == "failed"
    wait_until(
        lambda: spark_cluster.drivers()[driver] == "KILLED", lambda: airflow.story("cluster_timeout", run_id)
    )
    assert "execution_timeout" in airflow.story("cluster_timeout", run_id)
    assert version_of(table) == before


@pytest.mark.parametrize("dag_id", ["cluster_run_timeout_deferred", "cluster_run_timeout_waiting"])
def test_the_timeout_of_a_dag_run_ends_the_driver(
    airflow: LiveAirflow,
    spark_cluster: SparkCluster,
    drivers_before: set[str],
    write_table: WriteTable,
    dag_id: str,
) -> None:
    table = write_table("events")
    before = version_of(table)
    run_id, driver = started(airflow, spark_cluster, drivers_before, dag_id, table)
    assert airflow.wait_for_run(dag_id, run_id) == "failed"
    wait_until(lambda: spark_cluster.drivers()[driver] == "KILLED", lambda: airflow.story(dag_id, run_id))
    assert task_of(airflow, dag_id, run_id)["state"] == "skipped"
    assert version_of(table) == before


def test_the_documented_dag_leaves_its_driver_to_the_cluster(
    airflow: LiveAirflow, spark_cluster: SparkCluster, drivers_before: set[str], write_table: WriteTable
) -> None:
    table = write_table("events")
    before = version_of(table)
    run_id = airflow.trigger("optimize_in_cluster_mode", conf={"table": str(table)})
    assert airflow.wait_for_run("optimize_in_cluster_mode", run_id) == "success", airflow.story(
        "optimize_in_cluster_mode", run_id
    )
    assert version_of(table) == before + 1
    assert list(new_drivers(spark_cluster, drivers_before).values()) == ["FINISHED"]
