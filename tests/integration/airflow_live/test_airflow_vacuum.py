"""The example DAG in which a person approves a vacuum: it deletes what was approved and nothing more."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.runs.approvals import answer, planned
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


def test_what_was_approved_is_deleted(airflow: LiveAirflow, write_table: WriteTable) -> None:
    table = write_table("approved")
    age(table)
    with_orphans(table, "one.parquet", "two.parquet")
    before = files_below(table)
    run_id = planned(airflow, DAG_ID, table)
    assert files_below(table) == before
    answer(airflow, DAG_ID, run_id, "Approve", table)
    assert airflow.wait_for_run(DAG_ID, run_id) == "success", airflow.story(DAG_ID, run_id)
    assert before - files_below(table) == {"one.parquet", "two.parquet"}


@pytest.mark.slow
def test_no_person_is_asked_where_there_is_nothing_to_delete(
    airflow: LiveAirflow, write_table: WriteTable
) -> None:
    table = write_table("clean")
    airflow.wait_for_dag(DAG_ID)
    run_id = airflow.trigger(DAG_ID, conf={"table": str(table)})
    assert airflow.wait_for_run(DAG_ID, run_id) == "success", airflow.story(DAG_ID, run_id)
    states = {name: airflow.task(DAG_ID, run_id, name)["state"] for name in ("plan", "approve", "vacuum")}
    assert states == {"plan": "success", "approve": "skipped", "vacuum": "skipped"}


@pytest.mark.slow
def test_a_plan_that_has_grown_since_is_not_carried_out(
    airflow: LiveAirflow, write_table: WriteTable
) -> None:
    table = write_table("grown")
    age(table)
    with_orphans(table, "one.parquet")
    run_id = planned(airflow, DAG_ID, table)
    with_orphans(table, "another.parquet")
    before = files_below(table)
    answer(airflow, DAG_ID, run_id, "Approve", table)
    assert airflow.wait_for_run(DAG_ID, run_id) == "failed"
    assert files_below(table) == before
    log = "\n".join(airflow.task_log(DAG_ID, run_id, "vacuum", 1))
    assert "grown beyond what was approved: 2 files" in log
