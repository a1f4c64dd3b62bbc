"""The example DAG that keeps a fleet healthy: nights one after the other on a real Airflow."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from deltalake import DeltaTable
from tests.support.environment.patience import PATIENCE_SECONDS
from tests.support.tables.small_tables import with_unknown_feature, write_days

from delta_log import Table
from live_airflow import LiveAirflow

pytestmark = pytest.mark.airflow

DAG_ID = "keep_fleet_healthy"


@pytest.fixture
def fleet(airflow: LiveAirflow, fleet_lake: Path) -> LiveAirflow:
    for name in ("events", "sales/orders"):
        write_days(fleet_lake / name, files=4)
        # The clock of a store is compared with ours, so a test cannot wait a week; the table's retention can be short.
        retention = {"delta.deletedFileRetentionDuration": "interval 0 seconds"}
        DeltaTable(str(fleet_lake / name)).alter.set_table_properties(retention)
    airflow.add_pool("delta_maintenance", slots=2)
    return airflow


def night(airflow: LiveAirflow, expected: str = "success") -> tuple[str, dict[str, Any]]:
    """A whole run: its id, and the report."""
    run_id = airflow.trigger(DAG_ID)
    assert airflow.wait_for_run(DAG_ID, run_id) == expected, airflow.story(DAG_ID, run_id)
    return run_id, airflow.xcom(DAG_ID, run_id, "fleet.account")


def operations(report: dict[str, Any]) -> list[tuple[str, str]]:
    return sorted((Path(one["table"]).name, one["run"]["operation"]) for one in report["done"])


def wait_for(airflow: LiveAirflow, run_id: str, holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not holds():
        assert time.monotonic() < deadline, airflow.story(DAG_ID, run_id)
        time.sleep(0.5)


def approve(airflow: LiveAirflow, run_id: str) -> None:
    def state() -> str:
        return str(airflow.task(DAG_ID, run_id, "fleet.approve")["state"])

    def scheduler_has_seen_the_end() -> bool:
        # An answer before the scheduler has seen the end of the asking process makes Airflow fail the task.
        log = (airflow.logs / "scheduler.log").read_text(errors="replace")
        return any(
            "Received executor event" in line and run_id in line and "fleet.approve" in line
            for line in log.splitlines()
        )

    wait_for(airflow, run_id, lambda: state() == "awaiting_input")
    wait_for(airflow, run_id, scheduler_has_seen_the_end)
    # Nothing else waits for the answer.
    wait_for(airflow, run_id, lambda: airflow.task(DAG_ID, run_id, "fleet.account")["state"] == "success")
    path = (
        f"/api/v2/dags/{DAG_ID}/dagRuns/{quote(run_id, safe='')}/taskInstances/fleet.approve/-1/hitlDetails"
    )
    assert "events`: VACUUM, 4 files" in airflow.call("GET", path)["body"]
    airflow.call("PATCH", path, {"chosen_options": ["Approve"], "params_input": {}})


def test_a_fleet_is_reported_maintained_and_cleaned_up_once_a_person_has_approved(
    fleet: LiveAirflow, fleet_lake: Path
) -> None:
    rows = sorted(Table(str(fleet_lake / "events")).snapshot().to_arrow()["id"].to_pylist())
    _, report = night(fleet)
    assert report["skipped"] == {"reported": 2}
    run_id, report = night(fleet)
    assert operations(report) == [("events", "optimize"), ("orders", "optimize")]
    mapped = fleet.call(
        "GET",
        f"/api/v2/dags/{DAG_ID}/dagRuns/{quote(run_id, safe='')}/taskInstances/fleet.maintain/listMapped",
    )["task_instances"]
    (name,) = [one["rendered_map_index"] for one in mapped]
    assert name in {f"{fleet_lake}/{table} and 1 more" for table in ("events", "sales/orders")}
    _, report = night(fleet)
    assert {Path(table).name for table in report["announced"]} == {"events", "orders"}
    waiting = fleet.trigger(DAG_ID)
    approve(fleet, waiting)
    assert fleet.wait_for_run(DAG_ID, waiting) == "success", fleet.story(DAG_ID, waiting)
    _, report = night(fleet)
    assert operations(report) == [("events", "vacuum"), ("orders", "vacuum")]
    assert sorted(Table(str(fleet_lake / "events")).snapshot().to_arrow()["id"].to_pylist()) == rows
    with_unknown_feature(fleet_lake / "sales/orders")
    _, report = night(fleet, "failed")
    assert [trouble["is_new"] for trouble in report["troubles"]] == [True]
    _, report = night(fleet)
    assert [trouble["is_new"] for trouble in report["troubles"]] == [False]
