"""Event-driven scheduling and sensors in a real Airflow, with a triggerer that is killed."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable
from tests.support.environment.patience import PATIENCE_SECONDS
from tests.support.runs.tail_runs import DataVersions, RunReader, TailedTable, Writers, settle

from delta_log import Table
from delta_log.snapshot.deletion_ratio import deleted_rows
from live_airflow import LiveAirflow

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.airflow

WriteTable = Callable[[str], Path]


def wait_for(what: str, found: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not (value := found()):
        assert time.monotonic() < deadline, what
        time.sleep(1)
    return value


def runs_of(airflow: LiveAirflow, dag_id: str) -> list[str]:
    runs = airflow.call("GET", f"/api/v2/dags/{dag_id}/dagRuns?limit=100")["dag_runs"]
    return [run["dag_run_id"] for run in runs]


def wait_until_healthy(airflow: LiveAirflow) -> None:
    wait_for(
        "the triggerer is back",
        lambda: airflow.call("GET", "/api/v2/monitor/health")["triggerer"]["status"] == "healthy",
    )


def append(table: Path, rows: int = 2) -> None:
    import pyarrow as pa
    from deltalake import write_deltalake

    write_deltalake(str(table), pa.table({"id": list(range(rows))}), mode="append")


@pytest.mark.slow
def test_every_data_version_wakes_its_dag_though_the_triggerer_is_killed_and_the_dag_paused(
    airflow: LiveAirflow, tailed_tables: dict[str, TailedTable]
) -> None:
    versions = {name: DataVersions(table) for name, table in tailed_tables.items()}
    readers = {name: RunReader(airflow, table) for name, table in tailed_tables.items()}
    for table in tailed_tables.values():
        airflow.wait_for_dag(f"tail_{table.name}")
        airflow.set_paused(f"tail_{table.name}", False)
    writers = Writers(tailed_tables, dict.fromkeys(tailed_tables, 1.0))
    writers.start()
    try:
        wait_for("both DAGs have run", lambda: all(reader.read().ranges for reader in readers.values()))
        airflow.kill("triggerer")
        crash = datetime.now(UTC)
        airflow.start_component("triggerer")
        time.sleep(5)
        # Until the file is read again, the watcher goes on for a paused DAG, and Airflow drops its events.
        airflow.call("PATCH", "/api/v2/dags/tail_two", {"is_paused": True})
        time.sleep(5)
        airflow.set_paused("tail_two", True)
        time.sleep(5)
        # The watcher may have been stopped before it knew that Airflow has its last event.
        interruptions = {"one": [crash], "two": [crash, datetime.now(UTC)]}
        airflow.set_paused("tail_two", False)
        time.sleep(10)
        wait_until_healthy(airflow)
    finally:
        writers.stop()
    found = settle(readers, versions, PATIENCE_SECONDS)
    for name, told in found.items():
        assert told.missing(versions[name].gather()) == []
        assert told.breaks() == []
        assert told.out_of_order() == []
        assert told.unexplained_repeats(interruptions[name]) == []
        assert told.runs_without_data == 0
        airflow.set_paused(f"tail_{name}", True)
    # Maintenance alone starts no run. The watcher may have been stopped before it knew that Airflow has its last event; it then sends
    # that again when it starts, and says so.
    tailed_tables["one"].commit_by_ours(data_change=False)
    restart = datetime.now(UTC)
    airflow.set_paused("tail_one", False)
    time.sleep(15)
    after = readers["one"].read()
    assert {told.bounds for told in after.ranges} == {told.bounds for told in found["one"].ranges}
    assert after.unexplained_repeats([*interruptions["one"], restart]) == []
    assert after.runs_without_data == 0
    airflow.set_paused("tail_one", True)


def test_the_example_that_consumes_new_versions_is_run_by_a_commit(
    airflow: LiveAirflow, watched_tables: dict[str, Path]
) -> None:
    dag_id = "consume_new_versions"
    table = watched_tables[dag_id]
    append(table)
    airflow.wait_for_dag(dag_id)
    airflow.set_paused(dag_id, False)
    place = wait_for("the watcher has looked", lambda: _asset_state(airflow, "lake events"))
    assert place
    append(table)
    (run,) = wait_for("a run", lambda: runs_of(airflow, dag_id))
    assert airflow.wait_for_run(dag_id, run) == "success", airflow.story(dag_id, run)
    assert airflow.xcom(dag_id, run, "consume") == [[1, 1]]
    airflow.set_paused(dag_id, True)


def find_assets(airflow: LiveAirflow, name: str) -> list[dict[str, Any]]:
    assets = airflow.call("GET", "/api/v2/assets?limit=100")["assets"]
    return [asset for asset in assets if asset["name"] == name]


def _asset_state(airflow: LiveAirflow, name: str) -> list[Any]:
    (asset,) = find_assets(airflow, name)
    stored = airflow.call("GET", f"/api/v2/assets/{asset['id']}/state-store")
    return next(iter(value for value in stored.values() if isinstance(value, list)), [])


@pytest.mark.slow
def test_the_example_that_waits_goes_on_where_the_run_before_left_off_though_the_triggerer_is_killed(
    airflow: LiveAirflow, write_table: WriteTable
) -> None:
    dag_id = "wait_for_new_data"
    table = write_table("awaited")
    airflow.wait_for_dag(dag_id)
    first = airflow.trigger(dag_id, conf={"table": str(table)})
    assert airflow.wait_for_run(dag_id, first) == "success", airflow.story(dag_id, first)
    assert airflow.xcom(dag_id, first, "load") == [0, 1, 2]
    second = airflow.trigger(dag_id, conf={"table": str(table)})
    wait_for(
        "the sensor is deferred", lambda: airflow.task(dag_id, second, "new_data")["state"] == "deferred"
    )
    airflow.kill("triggerer")
    airflow.start_component("triggerer")
    # Maintenance is not what it waits for.
    DeltaTable(str(table)).optimize.compact()
    write_table("awaited")
    assert airflow.wait_for_run(dag_id, second) == "success", airflow.story(dag_id, second)
    found = airflow.xcom(dag_id, second, "new_data")
    assert found["firstVersion"] == 3
    assert airflow.xcom(dag_id, second, "load")[0] == 4


def test_the_example_that_reads_changes_gets_the_rows_of_its_range(
    airflow: LiveAirflow, write_table: WriteTable
) -> None:
    dag_id = "read_changes"
    table = write_table("changed")
    num_rows = Table(str(table)).snapshot().to_arrow().num_rows
    airflow.wait_for_dag(dag_id)
    first = airflow.trigger(dag_id, conf={"table": str(table)})
    assert airflow.wait_for_run(dag_id, first) == "success", airflow.story(dag_id, first)
    assert airflow.xcom(dag_id, first, "count_changes") == {"insert": num_rows}
    DeltaTable(str(table)).optimize.compact()
    deleted = DeltaTable(str(table)).delete("id % 2 = 0")["num_deleted_rows"]
    second = airflow.trigger(dag_id, conf={"table": str(table)})
    assert airflow.wait_for_run(dag_id, second) == "success", airflow.story(dag_id, second)
    counts = airflow.xcom(dag_id, second, "count_changes")
    # The writer has moved the rows that it kept to other files, and says nothing of them.
    assert counts["delete"] - counts.get("insert", 0) == deleted


@pytest.mark.slow
def test_a_first_run_that_is_rescheduled_sees_what_came_between_two_looks(
    airflow: LiveAirflow, write_table: WriteTable
) -> None:
    dag_id, task_id = "wait_between_looks", "rescheduled"
    table = write_table("looked_at")
    airflow.wait_for_dag(dag_id)
    run = airflow.trigger(dag_id, conf={"table": str(table)})
    wait_for("a first look", lambda: airflow.task(dag_id, run, task_id)["state"] == "up_for_reschedule")
    write_table("looked_at")
    assert airflow.wait_for_run(dag_id, run) == "success", airflow.story(dag_id, run)
    assert airflow.xcom(dag_id, run, task_id)["firstVersion"] == 3


@pytest.mark.slow
def test_a_sensor_that_is_deferred_holds_no_slot_and_keeps_to_its_timeouts(
    airflow: LiveAirflow, write_table: WriteTable
) -> None:
    dag_id = "wait_in_a_pool"
    table = write_table("pooled")
    pool = {"name": "waiting", "slots": 10, "include_deferred": False}
    airflow.call("POST", "/api/v2/pools", pool)
    airflow.wait_for_dag(dag_id)
    run = airflow.trigger(dag_id, conf={"table": str(table), "baseline": 2})

    def states() -> dict[str, str]:
        path = f"/api/v2/dags/{dag_id}/dagRuns/{run}/taskInstances"
        return {one["task_id"]: one["state"] for one in airflow.call("GET", path)["task_instances"]}

    waiting = {"poked": "running", "deferred": "deferred", "skipped": "skipped", "ended": "failed"}
    wait_for("two have given up", lambda: states() == waiting)
    used = airflow.call("GET", "/api/v2/pools/waiting")
    assert (used["occupied_slots"], used["running_slots"], used["deferred_slots"]) == (1, 1, 1)
    write_table("pooled")
    assert airflow.wait_for_run(dag_id, run) == "failed"
    assert states() == waiting | {"poked": "success", "deferred": "success"}
    found = [airflow.xcom(dag_id, run, task) for task in ("poked", "deferred")]
    assert [one["firstVersion"] for one in found] == [3, 3]
    for task in ("poked", "deferred"):
        said = [line for line in airflow.task_log(dag_id, run, task, 1) if "; awaited: a commit" in line]
        assert "version 2: no commit after version 2 yet" in said[0], (
            "the triggerer's looks are in the task's log"
        )
        assert "commits after version 2 count; awaited" in said[-1]


def files_by_partition(table: Path) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for file in Table(str(table)).snapshot().files(["path", "partition_values"]).to_pylist():
        found.setdefault(dict(file["partition_values"])["part"], set()).add(file["path"])
    return found


def deleted_shares(table: Path) -> dict[str | None, float]:
    """By partition, how many of its rows are deleted; where none are, it is left out."""
    partitions = deleted_rows(Table(str(table)).snapshot(), 0.0)
    return {one.partition["part"]: one.ratio for one in partitions}


@pytest.mark.slow
def test_deleted_rows_start_the_example_that_purges_them_once(
    airflow: LiveAirflow, watched_tables: dict[str, Path], delta_spark_session: SparkSession
) -> None:
    dag_id = "purge_deleted_rows"
    table, spark = watched_tables[dag_id], delta_spark_session
    rows = spark.range(200).selectExpr("id", "id % 2 AS part").coalesce(1)
    rows.write.format("delta").partitionBy("part").option("delta.enableDeletionVectors", "true").save(
        str(table)
    )
    airflow.wait_for_dag(dag_id)
    airflow.set_paused(dag_id, False)
    spark.sql(f"DELETE FROM delta.`{table}` WHERE part = 0 AND id < 4")
    before = files_by_partition(table)
    spark.sql(f"DELETE FROM delta.`{table}` WHERE part = 1 AND id < 60")
    assert deleted_shares(table) == {"0": 0.02, "1": 0.3}
    (run,) = wait_for("a run", lambda: runs_of(airflow, dag_id))
    assert airflow.wait_for_run(dag_id, run) == "success", airflow.story(dag_id, run)
    report = airflow.xcom(dag_id, run, "purge")
    assert report["status"] == "committed"
    assert report["metrics"]["numDeletionVectorsRemoved"] == 1
    assert deleted_shares(table) == {"0": 0.02}
    after = files_by_partition(table)
    assert after["0"] == before["0"]
    assert after["1"].isdisjoint(before["1"])
    time.sleep(15)
    assert runs_of(airflow, dag_id) == [run]
    (asset,) = find_assets(airflow, "lake events with many deleted rows")
    assert airflow.call("GET", f"/api/v2/assets/events?asset_id={asset['id']}")["total_entries"] == 1
    assert spark.read.format("delta").load(str(table)).count() == 168
    airflow.set_paused(dag_id, True)


def test_airflow_lists_the_sensors_and_triggers(airflow: LiveAirflow) -> None:
    listed = airflow.command("providers", "triggers", "--output", "json")
    # Airflow has no such command for sensors.
    known = airflow.command("providers", "get", "airflow-provider-delta", "--full", "--output", "json")
    for module in ("deletion_vector_ratio", "table_health", "table_version"):
        assert f"airflow_delta.triggers.{module}" in listed
        assert f"airflow_delta.sensors.{module}" in known
