"""One real Airflow for all tests of this directory, and tables written by delta-rs."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

ROOT = Path(__file__).resolve().parents[3]
if str(ROOT / ".dev") not in sys.path:
    sys.path.insert(0, str(ROOT / ".dev"))

from live_airflow import LiveAirflow  # noqa: E402

WriteTable = Callable[[str], Path]


@pytest.fixture(scope="session")
def followed_table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The table whose maintenance the DAG `after_maintenance` waits for; not written yet."""
    return tmp_path_factory.mktemp("followed") / "events"


@pytest.fixture(scope="session")
def airflow(tmp_path_factory: pytest.TempPathFactory, followed_table: Path) -> Iterator[LiveAirflow]:
    home = tmp_path_factory.mktemp("airflow")
    dags = tmp_path_factory.mktemp("dags")
    for folder in (ROOT / "dags_examples", Path(__file__).parent / "dags"):
        for file in folder.glob("*.py"):
            shutil.copy(file, dags)
    settings = {
        "AIRFLOW_CONN_SPARK_DEFAULT": '{"conn_type": "spark", "host": "local[2]"}',
        "AIRFLOW_CONN_NO_MASTER": '{"conn_type": "http", "host": "example.org"}',
        "AIRFLOW_CONN_NO_STORAGE": '{"conn_type": "aws"}',
    }
    live = LiveAirflow(home, dags, settings | {"FOLLOWED_TABLE": str(followed_table)})
    try:
        live.start()
        for dag_id in ("optimize", "nightly_optimize", "checkpoint_after_load", "after_maintenance"):
            live.wait_for_dag(dag_id)
        yield live
    finally:
        live.stop()


@pytest.fixture
def write_table(tmp_path: Path) -> WriteTable:
    """Writes a table with three small files in each of two partitions, or adds them to one that is there."""
    from deltalake import write_deltalake

    def write(name: str) -> Path:
        path = tmp_path / name
        for number in range(3):
            rows = pa.table({"id": [2 * number, 2 * number + 1], "part": ["x", "y"]})
            write_deltalake(str(path), rows, partition_by=["part"], mode="append")
        return path

    return write
