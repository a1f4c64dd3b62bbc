"""One real Airflow with a Spark of each kind, for the matrix of operators, ways of running and situations."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.support import ROOT
from tests.support.environment.prerequisites import require
from tests.support.runs.maintenance_matrix import Cell, cells_of_run, table_of
from tests.support.servers.gate import gated_environment
from tests.support.servers.matrix_places import Places, running_places

if str(ROOT / ".dev") not in sys.path:
    sys.path.insert(0, str(ROOT / ".dev"))

from live_airflow import LiveAirflow


@pytest.fixture(scope="session")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Places]:
    if "JAVA_HOME" not in os.environ:
        require("java", "to run Spark")
    with running_places(tmp_path_factory.mktemp("places")) as places:
        yield places


@pytest.fixture(scope="session")
def airflow(
    tmp_path_factory: pytest.TempPathFactory, new_database: Callable[[], str], places: Places
) -> Iterator[LiveAirflow]:
    home, dags = tmp_path_factory.mktemp("airflow"), tmp_path_factory.mktemp("dags")
    uploads, hadoop = tmp_path_factory.mktemp("uploads"), tmp_path_factory.mktemp("hadoop")
    shutil.copy(Path(__file__).parent / "dags" / "matrix_cases.py", dags)
    for operation, way in {(cell.operation, cell.way) for cell in cells_of_run()}:
        # A task reads its DAG file when it starts, so a file has few DAGs.
        (dags / f"{operation}_{way.replace(' ', '_')}.py").write_text(
            f"from matrix_cases import define_dags  # makes each airflow DAG\n\ndefine_dags({operation!r}, {way!r})\n"
        )
    settings = {
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": new_database(),
        "AIRFLOW__CORE__PARALLELISM": "12",
        # No file changes.
        "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "3600",
        "AIRFLOW__DAG_PROCESSOR__REFRESH_INTERVAL": "3600",
        # What a component has left that was killed is found sooner than by default; not so soon that a busy machine looks dead.
        "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "60",
        "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT_DETECTION_INTERVAL": "5",
        "AIRFLOW__SCHEDULER__ORPHANED_TASKS_CHECK_INTERVAL": "15",
        "AIRFLOW__SCHEDULER__JOB_HEARTBEAT_SEC": "2",
        "AIRFLOW__TRIGGERER__TRIGGERER_HEALTH_CHECK_THRESHOLD": "20",
        "AIRFLOW__TRIGGERER__JOB_HEARTBEAT_SEC": "2",
        "AIRFLOW__KUBERNETES_EXECUTOR__IN_CLUSTER": "False",
        "AIRFLOW__KUBERNETES_EXECUTOR__CONFIG_FILE": places.kubernetes.kubeconfig_through(
            places.valves["kubernetes"].port
        ),
        "HADOOP_CONF_DIR": str(hadoop),
        "MATRIX_WAYS": json.dumps(places.arguments(uploads)),
        **gated_environment(tmp_path_factory.mktemp("gated")),
        **{
            f"AIRFLOW_CONN_{name.upper()}": json.dumps(connection)
            for name, connection in places.connections().items()
        },
    }
    live = LiveAirflow(home, dags, settings)
    try:
        live.start()
        yield live
    finally:
        live.stop()


@pytest.fixture(scope="session")
def results() -> Iterator[dict[Cell, str]]:
    """What became of each cell. At the end it becomes a table, in the file that MATRIX_TABLE names."""
    found: dict[Cell, str] = {}
    yield found
    path = os.environ.get("MATRIX_TABLE")
    if path:
        Path(path).write_text(table_of(found) + "\n")
