"""Executors that are sent the credentials of a job, and executors that use the identity of their machines."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from airflow.sdk.exceptions import AirflowFailException
from tests.support.servers.recorded_tasks import RecordedTasks
from tests.support.servers.s3 import S3Server
from tests.support.servers.spark_connect import TOKEN, running_spark_connect
from tests.support.servers.spark_standalone import SparkCluster, running_spark_cluster
from tests.support.tables.small_tables import write_days

from airflow_delta.operators import DeltaOptimizeOperator, DeltaVacuumOperator
from delta_log import Table

pytestmark = pytest.mark.spark

MakeContext = Callable[..., dict[str, Any]]


@dataclass(frozen=True)
class Place:
    """A Spark whose executors have an identity of their own and record what they are sent."""

    tasks: RecordedTasks
    connections: dict[str, str]
    cluster: SparkCluster | None = None


@pytest.fixture(scope="module")
def bucket(s3_server: S3Server) -> str:
    return s3_server.make_bucket()


@pytest.fixture(scope="module")
def machine(s3_server: S3Server, bucket: str) -> dict[str, str]:
    """The environment of machines that may use the bucket."""
    session = s3_server.session(*s3_server.everything_in(bucket))
    return {
        "AWS_ACCESS_KEY_ID": session["key"],
        "AWS_SECRET_ACCESS_KEY": session["secret"],
        "AWS_SESSION_TOKEN": session["token"],
    }


@pytest.fixture(scope="module")
def standalone(machine: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    directory = tmp_path_factory.mktemp("standalone")
    tasks = RecordedTasks.in_directory(directory / "tasks")
    with running_spark_cluster(directory / "cluster", {**machine, **tasks.environment}) as cluster:
        client = json.dumps({"conn_type": "spark", "host": cluster.master})
        yield Place(tasks, {"client": client, "cluster": cluster.connection}, cluster)


@pytest.fixture(scope="module")
def connect(machine: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    directory = tmp_path_factory.mktemp("connect")
    tasks = RecordedTasks.in_directory(directory / "tasks")
    (directory / "server").mkdir()
    with running_spark_connect(directory / "server", environment={**machine, **tasks.environment}) as server:
        extra = {"token": TOKEN}
        connection = {
            "conn_type": "spark",
            "host": "sc://localhost",
            "port": server.port,
            "extra": extra,
        }
        yield Place(tasks, {"connect": json.dumps(connection)})


@pytest.fixture
def table(s3_server: S3Server, bucket: str, tmp_path: Path) -> str:
    write_days(tmp_path / "t", files=4, days=2)
    address = f"{bucket}/{tmp_path.name}"
    s3_server.file_system().put(str(tmp_path / "t"), address, recursive=True)
    return f"s3://{address}"


@pytest.fixture(autouse=True)
def lake(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection `lake`, with keys that may do everything."""
    extra = {"endpoint_url": s3_server.endpoint, "region_name": "us-east-1"}
    value = {"conn_type": "aws", "login": s3_server.key, "password": s3_server.secret, "extra": extra}
    monkeypatch.setenv("AIRFLOW_CONN_LAKE", json.dumps(value))


def optimize(
    place: Place, mode: str, table: str, context: dict[str, Any], monkeypatch: pytest.MonkeyPatch, **more: Any
) -> dict[str, Any]:
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_LAKE", place.connections[mode])
    operator = DeltaOptimizeOperator(
        task_id="optimize",
        table=table,
        engine="spark",
        spark_conn_id="spark_lake",
        delta_conn_id="lake",
        spark_conf=SparkCluster.conf if place.cluster is not None else None,
        **more,
    )
    return DeltaOptimizeOperator.execute.__wrapped__(operator, context)  # type: ignore[attr-defined, no-any-return]


def is_in(secret: str, recorded: bytes) -> bool:
    """Whether a secret is in what was recorded, in a form in which a program might write it."""
    forms = (secret, quote(secret, safe=""), base64.b64encode(secret.encode()).decode())
    return any(form.encode() in recorded for form in forms)


def run_id_of(report: dict[str, Any]) -> bytes:
    return str(report["run_id"]).encode()


@pytest.mark.parametrize("mode", ["client", "cluster"])
def test_a_standalone_cluster_rewrites_with_the_identity_of_its_machines(
    standalone: Place,
    s3_server: S3Server,
    table: str,
    make_context: MakeContext,
    monkeypatch: pytest.MonkeyPatch,
    mode: str,
) -> None:
    standalone.tasks.take()
    report = optimize(
        standalone, mode, table, make_context(try_number=1), monkeypatch, executor_credentials="ambient"
    )
    assert (report["status"], report["engine"]) == ("committed", "spark")
    assert Table(table, s3_server.storage_options).snapshot().num_files == 2
    recorded = standalone.tasks.take()
    assert run_id_of(report) in recorded, "the tasks were recorded"
    assert s3_server.endpoint.encode() in recorded, "settings travel"
    assert not is_in(s3_server.secret, recorded)
    assert not is_in(s3_server.key, recorded)


def test_executors_list_with_the_identity_of_their_machines(
    standalone: Place,
    s3_server: S3Server,
    table: str,
    make_context: MakeContext,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    standalone.tasks.take()
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_LAKE", standalone.connections["client"])
    operator = DeltaVacuumOperator(
        task_id="vacuum",
        table=table,
        retain_hours=200,
        engine="spark",
        spark_conn_id="spark_lake",
        delta_conn_id="lake",
        spark_conf=SparkCluster.conf,
        executor_credentials="ambient",
    )
    report = DeltaVacuumOperator.execute.__wrapped__(operator, make_context(try_number=1))  # type: ignore[attr-defined]
    assert report["engine"] == "spark"
    recorded = standalone.tasks.take()
    assert s3_server.endpoint.encode() in recorded
    assert not is_in(s3_server.secret, recorded)


def test_credentials_of_the_job_are_in_its_tasks(
    standalone: Place,
    s3_server: S3Server,
    table: str,
    make_context: MakeContext,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    standalone.tasks.take()
    report = optimize(standalone, "client", table, make_context(try_number=1), monkeypatch)
    assert report["status"] == "committed"
    assert is_in(s3_server.secret, standalone.tasks.take())


def test_a_driver_on_the_cluster_gets_no_credentials(
    standalone: Place, table: str, make_context: MakeContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(AirflowFailException, match="executor_credentials='ambient'"):
        optimize(standalone, "cluster", table, make_context(try_number=1), monkeypatch)


@pytest.mark.parametrize("credentials", ["ambient", "job"])
def test_a_connect_server_rewrites_with_its_own_identity_or_with_that_of_the_job(
    connect: Place,
    s3_server: S3Server,
    table: str,
    make_context: MakeContext,
    monkeypatch: pytest.MonkeyPatch,
    credentials: str,
) -> None:
    connect.tasks.take()
    report = optimize(
        connect, "connect", table, make_context(try_number=1), monkeypatch, executor_credentials=credentials
    )
    assert (report["status"], report["engine"]) == ("committed", "spark")
    recorded = connect.tasks.take()
    assert run_id_of(report) in recorded
    # In either case they do not stand in a task. With "job" they are in a file of the session.
    assert not is_in(s3_server.secret, recorded)


@pytest.mark.parametrize(("credentials", "status"), [("job", "warning"), ("ambient", "ok")])
def test_the_doctor_warns_of_credentials_in_the_clear_only_where_they_are_sent(
    standalone: Place, s3_server: S3Server, table: str, credentials: str, status: str
) -> None:
    assert standalone.cluster is not None
    command = [str(Path(sys.executable).with_name("delta-maintenance")), "doctor", "--json", "--spark"]
    options = ["--storage-options", json.dumps(s3_server.storage_options)]
    done = subprocess.run(
        [
            *command,
            *("--table", table, "--master", standalone.cluster.master),
            *("--executor-credentials", credentials, *options),
        ],
        env={**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    checks = {check["name"]: check["status"] for check in json.loads(done.stdout)["checks"]}
    assert checks["spark.encryption"] == status
