"""The example DAG in which a person approves that old rows go: what was approved goes, and nothing more."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from tests.support.runs.approvals import answer, planned

from live_airflow import LiveAirflow

pytestmark = pytest.mark.airflow

DAG_ID = "expire_with_approval"


def test_the_rows_that_were_approved_go(airflow: LiveAirflow, tmp_path: Path) -> None:
    table, now = tmp_path / "events", datetime.now(timezone.utc)
    ages = [timedelta(days=days) for days in (500, 401, 399, 1)]
    rows = pa.table({"event_time": pa.array([now - age for age in ages], pa.timestamp("us", "UTC"))})
    write_deltalake(str(table), rows)
    run_id = planned(airflow, DAG_ID, table)
    assert DeltaTable(str(table)).version() == 0
    answer(airflow, DAG_ID, run_id, "Approve", table)
    assert airflow.wait_for_run(DAG_ID, run_id) == "success", airflow.story(DAG_ID, run_id)
    left = DeltaTable(str(table)).to_pyarrow_table()["event_time"].to_pylist()
    assert sorted(left) == sorted(rows["event_time"].to_pylist()[2:])
