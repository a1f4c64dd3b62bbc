"""One real Airflow for all tests of this directory, and tables written by delta-rs."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from tests.support import ROOT
from tests.support.runs.fleet_example import fleet_example
from tests.support.runs.tail_runs import TailedTable, tailed_environment
from tests.support.servers.smtp import MailServer, running_mail_server
from tests.support.servers.spark_standalone import SparkCluster

if str(ROOT / ".dev") not in sys.path:
    sys.path.insert(0, str(ROOT / ".dev"))

from live_airflow import LiveAirflow

WriteTable = Callable[[str], Path]
#: The table of the examples, which watch it from the moment that they are unpaused.
_EXAMPLES_TABLE = "s3://lake/events"


@pytest.fixture(scope="session")
def followed_table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The table whose maintenance the DAG `after_maintenance` waits for; not written yet."""
    return tmp_path_factory.mktemp("followed") / "events"


@pytest.fixture(scope="session")
def told_table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The table whose data asset the DAGs `emits_data` and `after_data` share; not written yet."""
    return tmp_path_factory.mktemp("told") / "events"


@pytest.fixture(scope="session")
def watched_tables(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """By example DAG, the table that it watches; not written yet."""
    home = tmp_path_factory.mktemp("watched")
    return {name: home / name for name in ("consume_new_versions", "purge_deleted_rows")}


@pytest.fixture(scope="session")
def tailed_tables(tmp_path_factory: pytest.TempPathFactory) -> dict[str, TailedTable]:
    """Those that have a DAG each in `tail_cases.py`, `tail_<name>`; empty."""
    home = tmp_path_factory.mktemp("tailed")
    tables = {name: TailedTable(name, str(home / name)) for name in ("one", "two")}
    for table in tables.values():
        table.create()
    return tables


@pytest.fixture(scope="session")
def fleet_lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory whose tables the DAG `keep_fleet_healthy` maintains; empty."""
    return tmp_path_factory.mktemp("fleet") / "lake"


@pytest.fixture(scope="session")
def allowed_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the connection `sales` allows; empty."""
    return tmp_path_factory.mktemp("sales")


@pytest.fixture(scope="session")
def broken_spark_submit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program that starts, complains, and ends without a report."""
    program = tmp_path_factory.mktemp("programs") / "spark-submit"
    program.write_text("#!/bin/sh\necho 'the cluster is on fire' >&2\nexit 1\n")
    program.chmod(0o755)
    return program


@pytest.fixture(scope="session")
def mail_server() -> Iterator[MailServer]:
    """That of the connection `smtp_default`."""
    with running_mail_server() as server:
        yield server


@pytest.fixture(scope="session")
def airflow(  # noqa: PLR0913, PLR0917 - each is a fixture of its own
    tmp_path_factory: pytest.TempPathFactory,
    followed_table: Path,
    told_table: Path,
    allowed_root: Path,
    fleet_lake: Path,
    broken_spark_submit: Path,
    watched_tables: dict[str, Path],
    tailed_tables: dict[str, TailedTable],
    new_database: Callable[[], str],
    spark_cluster: SparkCluster,
    mail_server: MailServer,
) -> Iterator[LiveAirflow]:
    home = tmp_path_factory.mktemp("airflow")
    dags = tmp_path_factory.mktemp("dags")
    for folder in (ROOT / "dags_examples", Path(__file__).parent / "dags"):
        for file in folder.glob("*.py"):
            shutil.copy(file, dags)
    for file in (ROOT / "dags_examples").glob("*.py"):
        # Unpaused soon after the hour, Airflow would start that hour's run at once, and it would be in the test's way.
        _replace(dags / file.name, r'schedule="@\w+"', "schedule=None")
    for name, table in watched_tables.items():
        _replace(dags / f"{name}.py", re.escape(_EXAMPLES_TABLE), str(table))
        _replace(dags / f"{name}.py", r"poll_interval=\d+", "poll_interval=1")
    _replace(dags / "optimize_in_cluster_mode.py", r"spark_conf=\{.*\}", f"spark_conf={SparkCluster.conf!r}")
    (dags / "keep_fleet_healthy.py").write_text(fleet_example(fleet_lake, fleet_lake.parent / "state"))
    _replace(dags / "adhoc_maintenance.py", "s3://lake/sales", str(allowed_root))
    settings = {
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": new_database(),
        "AIRFLOW_CONN_SMTP_DEFAULT": mail_server.connection,
        "AIRFLOW_CONN_LAKE": '{"conn_type": "delta"}',
        "AIRFLOW_CONN_AMBIENT": '{"conn_type": "delta"}',
        "AIRFLOW_CONN_SALES": json.dumps(
            {"conn_type": "delta", "extra": {"allowed_roots": str(allowed_root)}}
        ),
        "BROKEN_SPARK_SUBMIT": str(broken_spark_submit),
        "AIRFLOW_CONN_SPARK_DEFAULT": '{"conn_type": "spark", "host": "local[2]"}',
        "AIRFLOW_CONN_NO_MASTER": '{"conn_type": "http", "host": "example.org"}',
        "AIRFLOW_CONN_SPARK_CLUSTER": spark_cluster.connection,
        "AIRFLOW_CONN_NO_STORAGE": '{"conn_type": "postgres"}',
        "AIRFLOW_CONN_AWS_LAKE": '{"conn_type": "aws"}',
        "AIRFLOW__DELTA__TABLE_URL": "https://catalog.example.org/?uri={table}",
        # No file changes. What pauses a DAG with a watcher has its file read again: `LiveAirflow.set_paused`.
        "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "3600",
        "AIRFLOW__DAG_PROCESSOR__REFRESH_INTERVAL": "3600",
        # So soon does a triggerer notice that another is dead.
        "AIRFLOW__TRIGGERER__TRIGGERER_HEALTH_CHECK_THRESHOLD": "10",
        "AIRFLOW__TRIGGERER__JOB_HEARTBEAT_SEC": "2",
        **tailed_environment(tailed_tables.values()),
    }
    tables = {"FOLLOWED_TABLE": str(followed_table), "TOLD_TABLE": str(told_table)}
    live = LiveAirflow(home, dags, settings | tables)
    try:
        live.start()
        for dag_id in ("optimize", "nightly_optimize", "checkpoint_after_load", "after_maintenance"):
            live.wait_for_dag(dag_id)
        yield live
    finally:
        live.stop()


def _replace(file: Path, pattern: str, text: str) -> None:
    file.write_text(re.sub(pattern, text, file.read_text()))


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
