"""The example DAG of a fleet in Airflow's own test run of a DAG: mapping, XComs, trigger rules and states are Airflow's."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.support.runs.fleet_example import fleet_example
from tests.support.tables.small_tables import with_unknown_feature, write_days

from delta_log import Table

pytestmark = pytest.mark.slow

#: Runs the DAG, and prints the state of the run and of each of its tasks.
_NIGHT = """
import json, runpy, sys
from airflow.sdk import DAG
dag = next(one for one in runpy.run_path(sys.argv[1]).values() if isinstance(one, DAG))
run = dag.test()
tasks = run.get_task_instances()
report = next(task for task in tasks if task.task_id == "fleet.account").xcom_pull("fleet.account")
states = {task.task_id.removeprefix("fleet."): [task.state, task.rendered_map_index] for task in tasks}
print("NIGHT", json.dumps({"run": run.state, "tasks": states, "report": report}))
"""


class Nights:
    """Nights of a fleet in an Airflow of their own."""

    def __init__(self, home: Path) -> None:
        self.lake, self._file = home / "lake", home / "dags" / "fleet.py"
        self._file.parent.mkdir()
        # The variable `dag` is what a DAG file need not have.
        text = fleet_example(self.lake, home / "state").replace(
            "max_active_runs=1):", "max_active_runs=1) as dag:"
        )
        self._file.write_text(text)
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW")}
        self._environment = {
            **inherited,
            "AIRFLOW_HOME": str(home),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__CORE__DAGS_FOLDER": str(self._file.parent),
            "AIRFLOW_CONN_LAKE": '{"conn_type": "delta"}',
        }
        self._python("-m", "airflow", "db", "migrate")

    def night(self) -> dict[str, Any]:
        lines = self._python("-c", _NIGHT, str(self._file)).splitlines()
        (found,) = [line for line in lines if line.startswith("NIGHT ")]
        return dict(json.loads(found.removeprefix("NIGHT ")))

    def _python(self, *arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, *arguments], env=self._environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


def test_a_fleet_is_reported_then_maintained_and_red_for_new_failures_alone(tmp_path: Path) -> None:
    nights = Nights(tmp_path)
    write_days(nights.lake / "events", files=4)
    rows = sorted(Table(str(nights.lake / "events")).snapshot().to_arrow()["id"].to_pylist())
    first = nights.night()
    assert first["run"] == "success"
    assert {name: state for name, (state, _) in first["tasks"].items()} == {
        "decide": "success",
        "maintain": "skipped",
        "account": "success",
        "approve": "skipped",
    }
    assert first["report"]["skipped"] == {"reported": 1}
    with_unknown_feature(write_days(nights.lake / "odd") and nights.lake / "odd")
    second = nights.night()
    assert second["tasks"]["maintain"] == ["success", str(nights.lake / "events")]
    assert second["tasks"]["account"][0] == "failed"
    assert second["run"] == "failed"
    assert [one["run"]["operation"] for one in second["report"]["done"]] == ["optimize"]
    third = nights.night()
    assert third["run"] == "success"
    assert [trouble["is_new"] for trouble in third["report"]["troubles"]] == [False]
    assert sorted(Table(str(nights.lake / "events")).snapshot().to_arrow()["id"].to_pylist()) == rows
