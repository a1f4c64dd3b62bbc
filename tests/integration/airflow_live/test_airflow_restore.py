"""The example DAG in which a person approves a RESTORE: afterwards the table is what it was."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.runs.approvals import answer, planned

from delta_log import Table
from live_airflow import LiveAirflow

pytestmark = pytest.mark.airflow

DAG_ID = "restore_with_approval"


def test_an_approved_version_is_restored(airflow: LiveAirflow, write_table: Callable[[str], Path]) -> None:
    table = write_table("restored")
    before = Table(str(table)).snapshot()
    assert before.version > 0
    first = Table(str(table)).snapshot(0)
    run_id = planned(airflow, DAG_ID, table)
    assert Table(str(table)).snapshot().version == before.version
    answer(airflow, DAG_ID, run_id, "Approve", table)
    assert airflow.wait_for_run(DAG_ID, run_id) == "success", airflow.story(DAG_ID, run_id)
    restored = Table(str(table)).snapshot()
    assert restored.version == before.version + 1
    assert restored.to_arrow().to_pylist() == first.to_arrow().to_pylist()
