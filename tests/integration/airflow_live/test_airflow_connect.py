"""The example for a Spark Connect server, on a real Airflow and a real server: a rewrite that is stopped and goes on.

Restarts, kills and timeouts are in `tests/integration/airflow_matrix`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from deltalake import DeltaTable
from tests.support.environment.patience import PATIENCE_SECONDS
from tests.support.servers.gate import Gate
from tests.support.servers.spark_connect import TOKEN, SparkConnect, running_spark_connect

from live_airflow import LiveAirflow

pytestmark = [pytest.mark.slow, pytest.mark.airflow, pytest.mark.spark]

WriteTable = Callable[[str], Path]
DAG_ID = "optimize_on_spark_connect"


@pytest.fixture(scope="module")
def connect_server(airflow: LiveAirflow, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkConnect]:
    """A server, which the connection of the example names."""
    with running_spark_connect(tmp_path_factory.mktemp("connect")) as server:
        connection = {
            "connection_id": "spark_connect_default",
            "conn_type": "spark_connect",
            "host": "localhost",
            "port": server.port,
            "password": TOKEN,
        }
        airflow.call("POST", "/api/v2/connections", connection)
        yield server


def wait_until(found: Callable[[], Any], what: Callable[[], Any]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not found():
        assert time.monotonic() < deadline, what()
        time.sleep(0.3)


def deferred_run(airflow: LiveAirflow, table: Path) -> str:
    """A run whose task is deferred while the server is at work."""
    gate = Gate(table)
    gate.hold("part=x")
    run_id = airflow.trigger(DAG_ID, conf={"table": str(table)})
    wait_until(
        lambda: gate.held() and airflow.task(DAG_ID, run_id, "optimize")["state"] == "deferred",
        lambda: airflow.story(DAG_ID, run_id),
    )
    return run_id


def version_of(table: Path) -> int:
    return DeltaTable(str(table)).version()


def test_a_task_that_is_marked_failed_stops_the_server_and_clearing_it_goes_on(
    airflow: LiveAirflow, connect_server: SparkConnect, write_table: WriteTable
) -> None:
    table = write_table("events")
    before = version_of(table)
    run_id = deferred_run(airflow, table)
    wait_until(lambda: list(table.glob("_maintenance/*/*.json")), lambda: "no bin was finished")
    # The triggerer calls a trigger's on_kill only if it has begun to run it.
    time.sleep(3)
    path = f"/api/v2/dags/{DAG_ID}/dagRuns/{quote(run_id, safe='')}/taskInstances/optimize"
    airflow.call("PATCH", path, {"new_state": "failed"})
    wait_until(lambda: not connect_server.active_tasks(), lambda: airflow.story(DAG_ID, run_id))
    Gate(table).release()
    assert version_of(table) == before
    body = {"dry_run": False, "dag_run_id": run_id, "task_ids": ["optimize"], "only_failed": True}
    airflow.call("POST", f"/api/v2/dags/{DAG_ID}/clearTaskInstances", body)
    wait_until(lambda: airflow.run_state(DAG_ID, run_id) == "success", lambda: airflow.story(DAG_ID, run_id))
    report = airflow.xcom(DAG_ID, run_id, "optimize")
    assert (report["status"], report["version"]) == ("committed", before + 1)
    log = airflow.task_log(DAG_ID, run_id, "optimize", 2)
    assert any(line.startswith("1 of 2 bins was finished by an earlier try") for line in log)
    assert TOKEN not in airflow.story(DAG_ID, run_id)
    assert DeltaTable(str(table)).to_pyarrow_table().num_rows == 6
