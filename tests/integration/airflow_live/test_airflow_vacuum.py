"""The example DAG in which a person approves a vacuum: it deletes what was approved and nothing more."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import pytest
from tests.support.runs.vacuum_runs import files_below
from tests.support.tables.vacuumable_tables import age

from live_airflow import LiveAirflow

pytestmark = pytest.mark.airflow

WriteTable = Callable[[str], Path]
DAG_ID = "vacuum_with_approval"


def with_orphans(table: Path, *names: str) -> None:
    for name in names:
        (table / name).write_bytes(b"no reader knows it")
        os.utime(table / name, (time.time() - 40 * 86_400,) * 2)


def planned(airflow: LiveAirflow, table: Path) -> str:
    """Starts a run and waits until it asks for approval."""
    airflow.wait_for_dag(DAG_ID)
    run_id = airflow.trigger(DAG_ID, conf={"table": str(table)})
    wait_for(airflow, run_id, lambda: _state(airflow, run_id) in ("awaiting_input", "deferred"))
    # An answer before the scheduler has seen the end of the asking process makes Airflow fail the task.
    wait_for(airflow, run_id, lambda: _has_seen_the_end(airflow, run_id))
    return run_id


def wait_for(airflow: LiveAirflow, run_id: str, holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 240
    while not holds():
        assert time.monotonic() < deadline, airflow.story(DAG_ID, run_id)
        time.sleep(0.5)


def _state(airflow: LiveAirflow, run_id: str) -> str:
    return str(airflow.task(DAG_ID, run_id, "approve")["state"])


def _has_seen_the_end(airflow: LiveAirflow, run_id: str) -> bool:
    log = airflow.logs / "scheduler.log"
    return any(
        "Received executor event" in line and run_id in line and "approve" in line
        for line in log.read_text(errors="replace").splitlines()
    )


def answer(airflow: LiveAirflow, run_id: str, choice: str, table: Path) -> None:
    path = f"/api/v2/dags/{DAG_ID}/dagRuns/{quote(run_id, safe='')}/taskInstances/approve/-1/hitlDetails"
    # Airflow's form sends the DAG's parameters back, too.
    airflow.call("PATCH", path, {"chosen_options": [choice], "params_input": {"table": str(table)}})


def test_what_was_approved_is_deleted(airflow: LiveAirflow, write_table: WriteTable) -> None:
    table = write_table("approved")
    age(table)
    with_orphans(table, "one.parquet", "two.parquet")
    before = files_below(table)
    run_id = planned(airflow, table)
    assert files_below(table) == before
    answer(airflow, run_id, "Approve", table)
    assert airflow.wait_for_run(DAG_ID, run_id) == "success", airflow.story(DAG_ID, run_id)
    assert before - files_below(table) == {"one.parquet", "two.parquet"}


def test_a_plan_that_has_grown_since_is_not_carried_out(
    airflow: LiveAirflow, write_table: WriteTable
) -> None:
    table = write_table("grown")
    age(table)
    with_orphans(table, "one.parquet")
    run_id = planned(airflow, table)
    with_orphans(table, "another.parquet")
    before = files_below(table)
    answer(airflow, run_id, "Approve", table)
    assert airflow.wait_for_run(DAG_ID, run_id) == "failed"
    assert files_below(table) == before
    log = "\n".join(airflow.task_log(DAG_ID, run_id, "vacuum", 1))
    assert "grown beyond what was approved: 2 files" in log
