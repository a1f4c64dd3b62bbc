"""A piece of work is committed once, and different work is done, on a real Airflow with real jobs."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psutil  # type: ignore[import-untyped]
import pytest
from deltalake import DeltaTable
from tests.support.environment.patience import PATIENCE_SECONDS

from live_airflow import LiveAirflow

pytestmark = pytest.mark.airflow

WriteTable = Callable[[str], Path]


def version_of(table: Path) -> int:
    return DeltaTable(str(table)).version()


def rows_of(table: Path) -> list[dict[str, Any]]:
    return sorted(DeltaTable(str(table)).to_pyarrow_table().to_pylist(), key=lambda row: row["id"])


def events_of(airflow: LiveAirflow, table: Path) -> list[dict[str, Any]]:
    events = airflow.call("GET", "/api/v2/assets/events?limit=100&order_by=-timestamp")["asset_events"]
    return [event for event in events if event["name"] == f"delta-maintenance:{table}"]


def state_store(airflow: LiveAirflow, dag_id: str, run_id: str) -> dict[str, Any]:
    path = f"/api/v2/dags/{dag_id}/dagRuns/{quote(run_id, safe='')}/taskInstances/optimize/state-store"
    return {entry["key"]: entry["value"] for entry in airflow.call("GET", path)["task_state_store"]}


def run(airflow: LiveAirflow, dag_id: str, table: Path, **conf: str) -> str:
    run_id = airflow.trigger(dag_id, conf={"table": str(table), **conf})
    assert airflow.wait_for_run(dag_id, run_id) == "success", logs_of(airflow, dag_id, run_id)
    return run_id


def logs_of(airflow: LiveAirflow, dag_id: str, run_id: str) -> str:
    tries = range(1, airflow.task(dag_id, run_id, "optimize")["try_number"] + 1)
    return "\n".join(
        line for number in tries for line in airflow.task_log(dag_id, run_id, "optimize", number)
    )


@pytest.mark.spark
def test_the_nightly_example_compacts_a_table_through_spark(
    airflow: LiveAirflow, write_table: WriteTable
) -> None:
    table = write_table("events")
    before, rows = version_of(table), rows_of(table)
    run_id = run(airflow, "nightly_optimize", table)
    assert airflow.task("nightly_optimize", run_id, "optimize")["logical_date"] is None
    report = airflow.xcom("nightly_optimize", run_id, "optimize")
    assert (report["status"], report["version"], report["engine"]) == ("committed", before + 1, "spark")
    assert (report["metrics"]["numAddedFiles"], report["metrics"]["numRemovedFiles"]) == (2, 6)
    assert rows_of(table) == rows
    (event,) = events_of(airflow, table)
    assert (event["extra"]["version"], event["extra"]["metrics"]) == (before + 1, report["metrics"])
    log = airflow.task_log("nightly_optimize", run_id, "optimize", 1)
    chosen = "6 of 6 files"
    assert any(line.startswith(f"chosen at version {before}: {chosen}") for line in log), (
        "what it will do, and why"
    )
    assert any(line.startswith("rewriting: 2 of 2 bins, ") for line in log), "progress is in the task log"
    assert any(line.startswith(f"Committed version {before + 1} in ") for line in log)


def test_the_example_of_a_checkpoint_after_a_load_writes_one(
    airflow: LiveAirflow, write_table: WriteTable
) -> None:
    table = write_table("events")
    version = version_of(table)
    run_id = airflow.trigger("checkpoint_after_load", conf={"table": str(table)})
    assert airflow.wait_for_run("checkpoint_after_load", run_id) == "success"
    report = airflow.xcom("checkpoint_after_load", run_id, "checkpoint")
    assert (report["status"], report["version"], report["metrics"]["numOfAddFiles"]) == (
        "written",
        version,
        6,
    )
    assert (table / "_delta_log" / f"{version:020d}.checkpoint.parquet").exists()
    (event,) = events_of(airflow, table)
    assert (event["extra"]["operation"], event["extra"]["version"]) == ("checkpoint", version)
    # The table is young, so nothing of its log has expired; its version had no checksum file.
    assert (report["plan"]["checksum"]["state"], report["plan"]["checksum"]["repaired"]) == ("missing", True)
    assert report["plan"]["logCleanup"]["reasons"] == ["no version is older than the log's retention"]
    assert DeltaTable(str(table)).version() == version


@pytest.mark.parametrize("dag_id", ["fails_after_commit", "killed_after_commit"])
def test_a_retry_after_the_commit_adds_no_version(
    airflow: LiveAirflow, write_table: WriteTable, dag_id: str
) -> None:
    table = write_table("events")
    before = version_of(table)
    run_id = run(airflow, dag_id, table)
    assert airflow.task(dag_id, run_id, "optimize")["try_number"] == 2
    assert version_of(table) == before + 1
    report = airflow.xcom(dag_id, run_id, "optimize")
    assert (report["status"], report["version"]) == ("already_done", before + 1)
    (event,) = events_of(airflow, table)
    assert event["extra"]["version"] == before + 1, "the try that committed was killed before it could report"


@pytest.mark.slow
def test_a_task_killed_while_its_job_is_at_work_is_tried_again(
    airflow: LiveAirflow, write_table: WriteTable
) -> None:
    table = write_table("events")
    before, rows = version_of(table), rows_of(table)
    run_id = run(airflow, "killed_at_work", table)
    assert airflow.task("killed_at_work", run_id, "optimize")["try_number"] == 2
    assert (version_of(table), rows_of(table)) == (before + 1, rows)
    deadline = time.monotonic() + PATIENCE_SECONDS
    while jobs_on(table) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert jobs_on(table) == [], "the first try's job has noticed that its task is gone"


def jobs_on(table: Path) -> list[int]:
    commands = ((process.pid, process.info["cmdline"]) for process in psutil.process_iter(["cmdline"]))
    return [pid for pid, command in commands if any(str(table) in argument for argument in command or ())]


@pytest.mark.slow
def test_two_manual_runs_in_one_second_each_do_their_own_work(
    airflow: LiveAirflow, write_table: WriteTable
) -> None:
    table = write_table("events")
    before = version_of(table)
    runs = [
        airflow.trigger("optimize", conf={"table": str(table), "where": f"part = '{part}'"}) for part in "xy"
    ]
    assert [airflow.wait_for_run("optimize", run_id) for run_id in runs] == ["success", "success"]
    versions = {airflow.xcom("optimize", run_id, "optimize")["version"] for run_id in runs}
    assert versions == {before + 1, before + 2}


@pytest.mark.slow
def test_a_backfill_of_an_older_date_does_its_own_work(airflow: LiveAirflow, write_table: WriteTable) -> None:
    table = write_table("events")
    run(airflow, "optimize", table)
    write_table("events")
    before = version_of(table)
    airflow.call(
        "POST",
        "/api/v2/backfills",
        {
            "dag_id": "optimize",
            "from_date": "2024-02-01T00:00:00Z",
            "to_date": "2024-02-01T00:00:00Z",
            "dag_run_conf": {"table": str(table)},
        },
    )
    assert airflow.wait_for_run("optimize", "backfill__2024-02-01T00:00:00+00:00") == "success"
    assert version_of(table) == before + 1


@pytest.mark.slow
def test_clearing_a_succeeded_task_does_it_again(airflow: LiveAirflow, write_table: WriteTable) -> None:
    table = write_table("events")
    run_id = run(airflow, "optimize", table)
    first = state_store(airflow, "optimize", run_id)["delta_maintenance_run"]
    write_table("events")
    before = version_of(table)
    clear = {"dry_run": False, "dag_run_id": run_id, "only_failed": False, "reset_dag_runs": True}
    airflow.call("POST", "/api/v2/dags/optimize/clearTaskInstances", {**clear, "task_ids": ["optimize"]})
    assert airflow.wait_for_run("optimize", run_id) == "success"
    assert version_of(table) == before + 1
    second = state_store(airflow, "optimize", run_id)["delta_maintenance_run"]
    assert second["version"] > first["version"]
    secret = state_store(airflow, "optimize", run_id)["delta_maintenance_run_key"]
    assert secret["run_id"] == second["run_id"]
    assert secret["key"] not in logs_of(airflow, "optimize", run_id)
    assert airflow.xcom("optimize", run_id, "optimize")["status"] == "committed"


def test_a_commit_starts_the_dag_that_waits_for_maintenance_and_an_idle_run_does_not(
    airflow: LiveAirflow, write_table: WriteTable, followed_table: Path
) -> None:
    shutil.copytree(write_table("events"), followed_table)
    airflow.call("PATCH", "/api/v2/dags/after_maintenance", {"is_paused": False})
    run(airflow, "optimize", followed_table)
    idle = run(airflow, "optimize", followed_table)
    assert airflow.xcom("optimize", idle, "optimize")["status"] == "nothing_to_do"
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not (woken := airflow.call("GET", "/api/v2/dags/after_maintenance/dagRuns")["dag_runs"]):
        assert time.monotonic() < deadline
        time.sleep(0.5)
    assert [entry["run_type"] for entry in woken] == ["asset_triggered"]
    assert len(events_of(airflow, followed_table)) == 1
