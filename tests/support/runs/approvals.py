"""Examples in which a person approves a plan: their task ``approve`` on a real Airflow."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from tests.support.environment.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from live_airflow import LiveAirflow


def planned(airflow: LiveAirflow, dag_id: str, table: Path) -> str:
    """Start a run and wait until it asks for approval."""
    airflow.wait_for_dag(dag_id)
    run_id = airflow.trigger(dag_id, conf={"table": str(table)})

    def wait_for(holds: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not holds():
            assert time.monotonic() < deadline, airflow.story(dag_id, run_id)
            time.sleep(0.5)

    wait_for(lambda: airflow.task(dag_id, run_id, "approve")["state"] in ("awaiting_input", "deferred"))
    # An answer before the scheduler has seen the end of the asking process makes Airflow fail the task.
    wait_for(lambda: _has_seen_the_end(airflow, run_id))
    return run_id


def _has_seen_the_end(airflow: LiveAirflow, run_id: str) -> bool:
    log = airflow.logs / "scheduler.log"
    return any(
        "Received executor event" in line and run_id in line and "approve" in line
        for line in log.read_text(errors="replace").splitlines()
    )


def answer(airflow: LiveAirflow, dag_id: str, run_id: str, choice: str, table: Path) -> None:
    path = f"/api/v2/dags/{dag_id}/dagRuns/{quote(run_id, safe='')}/taskInstances/approve/-1/hitlDetails"
    # Airflow's form sends the DAG's parameters back, too.
    airflow.call("PATCH", path, {"chosen_options": [choice], "params_input": {"table": str(table)}})
