"""Every operator and every sensor is a task of one DAG on a real Airflow."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

import pytest
from tests.support.runs.maintenance_runs import enable_deletion_vectors, keys, mark_deleted
from tests.support.tables.small_tables import write_days

from airflow_delta import operators, sensors
from delta_log import Table
from live_airflow import LiveAirflow

pytestmark = pytest.mark.airflow

_DAG_ID = "every_operator_and_sensor"


def test_a_task_of_every_operator_and_sensor_succeeds(airflow: LiveAirflow, tmp_path: Path) -> None:
    table = tmp_path / "events"
    write_days(table)
    enable_deletion_vectors(table)
    mark_deleted(table, {keys(table)[0]: range(50)})
    rows = sorted(Table(str(table)).snapshot().to_arrow()["id"].to_pylist())
    airflow.wait_for_dag(_DAG_ID)
    run_id = airflow.trigger(_DAG_ID, conf={"table": str(table)})
    assert airflow.wait_for_run(_DAG_ID, run_id) == "success", airflow.story(_DAG_ID, run_id)
    path = f"/api/v2/dags/{_DAG_ID}/dagRuns/{quote(run_id, safe='')}/taskInstances"
    tasks = airflow.call("GET", path)["task_instances"]
    assert {task["operator_name"] for task in tasks} == {*operators.__all__, *sensors.__all__}
    committed = [airflow.xcom(_DAG_ID, run_id, name)["status"] for name in ("purge", "optimize")]
    assert committed == ["committed", "committed"]
    assert airflow.xcom(_DAG_ID, run_id, "checkpoint")["status"] == "written"
    assert airflow.xcom(_DAG_ID, run_id, "vacuum")["metrics"]["numDeletedFiles"] >= 6
    assert airflow.xcom(_DAG_ID, run_id, "drop_feature")["plan"]["protocol"]["readerFeatures"] == []
    assert airflow.xcom(_DAG_ID, run_id, "expire")["status"] == "nothing_to_do"
    # The first logs that a user of a new Airflow reads.
    assert {
        task["task_id"]: found
        for task in tasks
        if (found := _errors_in_log(airflow, run_id, task["task_id"]))
    } == {}
    after = Table(str(table)).snapshot()
    assert after.num_files == len({key.partition("/")[0] for key in keys(table)})
    assert sorted(after.to_arrow()["id"].to_pylist()) == rows


def _errors_in_log(airflow: LiveAirflow, run_id: str, task_id: str) -> list[str]:
    path = f"/api/v2/dags/{_DAG_ID}/dagRuns/{quote(run_id, safe='')}/taskInstances/{task_id}/logs/1?full_content=true"
    entries = [entry for entry in airflow.call("GET", path)["content"] if isinstance(entry, dict)]
    assert any(entry.get("level") == "info" for entry in entries), entries
    return [str(entry["event"]) for entry in entries if entry.get("level") in ("error", "critical")]
