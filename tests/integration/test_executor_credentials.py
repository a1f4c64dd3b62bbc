"""Executors that are sent the credentials of a job, and executors that use the identity of their machines."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException
from tests.support.checks.secret_search import holds
from tests.support.servers.process import free_port
from tests.support.servers.recorded_tasks import RecordedTasks
from tests.support.servers.s3 import S3Server
from tests.support.servers.spark_connect import TOKEN, running_spark_connect
from tests.support.servers.spark_standalone import SparkCluster, running_spark_cluster
from tests.support.tables.small_tables import write_days

from airflow_delta.operators import DeltaOptimizeOperator, DeltaVacuumOperator
from delta_log import Table

pytestmark = [pytest.mark.slow, pytest.mark.spark]

MakeContext = Callable[..., dict[str, Any]]


@dataclass(frozen=True)
class Place:
    """A Spark whose executors have an identity of their own and record what they are sent."""

    tasks: RecordedTasks
    connections: dict[str, str]
    directory: Path
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
        yield Place(tasks, {"client": client, "cluster": cluster.connection}, directory, cluster)


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
        yield Place(tasks, {"connect": json.dumps(connection)}, directory)


@pytest.fixture
def table(s3_server: S3Server, bucket: str, tmp_path: Path) -> str:
    write_days(tmp_path / "t", files=4, days=2)
    address = f"{bucket}/{tmp_path.name}"
    s3_server.put_tree(tmp_path / "t", address)
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
        **{"spark_conf": SparkCluster.conf if place.cluster is not None else None, **more},
    )
    return DeltaOptimizeOperator.execute.__wrapped__(operator, context)  # type: ignore[attr-defined, no-any-return]


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
    assert not holds(recorded, s3_server.secret)
    assert not holds(recorded, s3_server.key)


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
    assert not holds(recorded, s3_server.secret)


@dataclass(frozen=True)
class Watched:
    """What was seen of a job while it ran, again and again.

    :param arguments: command lines of all processes of this machine that held a secret.
    :param environments: command lines of the processes whose environment held one.
    :param executors: of the processes of executors that were looked at.
    :param ui: what the driver's UI said of its environment.
    """

    arguments: set[str]
    environments: set[str]
    executors: set[str]
    ui: list[bytes]


def look_at_processes(secrets: Sequence[str], watched: Watched, known: set[tuple[bytes, bytes]]) -> None:
    """
    :param known: what was looked at before; this adds to it.
    """
    for process in Path("/proc").glob("[0-9]*"):
        try:
            found = (process / "cmdline").read_bytes(), (process / "environ").read_bytes()
        except OSError:  # it has just ended
            continue
        if found in known:
            continue
        known.add(found)
        command, environment = found
        line = command.replace(b"\0", b" ").decode(errors="replace")
        if "CoarseGrainedExecutorBackend" in line or "pyspark.daemon" in line:
            watched.executors.add(line)
        if any(holds(command, secret) for secret in secrets):
            watched.arguments.add(line)
        if any(holds(environment, secret) for secret in secrets):
            watched.environments.add(line)


def look_at_ui(port: int, watched: Watched) -> None:
    api = f"http://127.0.0.1:{port}/api/v1/applications"
    with suppress(OSError, ValueError):
        (application,) = json.loads(urllib.request.urlopen(api, timeout=5).read())
        found = urllib.request.urlopen(f"{api}/{application['id']}/environment", timeout=5)
        watched.ui.append(found.read())


@contextmanager
def watching(secrets: Sequence[str], ui_port: int) -> Iterator[Watched]:
    """Looks at all processes and at the driver's UI until the block ends."""
    watched, over = Watched(set(), set(), set(), []), threading.Event()

    def look() -> None:
        known: set[tuple[bytes, bytes]] = set()
        while not over.wait(0.2):
            look_at_processes(secrets, watched, known)
            look_at_ui(ui_port, watched)

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield watched
    finally:
        over.set()
        thread.join()


def test_credentials_of_the_job_are_in_its_tasks_and_in_the_environment_of_its_driver_and_nowhere_else(
    standalone: Place,
    s3_server: S3Server,
    bucket: str,
    table: str,
    make_context: MakeContext,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    # A secret that no other process of this machine knows.
    session = s3_server.session(*s3_server.everything_in(bucket))
    secrets = (session["secret"], session["token"])
    lake = json.loads(os.environ["AIRFLOW_CONN_LAKE"])
    lake |= {"login": session["key"], "password": session["secret"]}
    lake["extra"]["aws_session_token"] = session["token"]
    monkeypatch.setenv("AIRFLOW_CONN_LAKE", json.dumps(lake))
    events, ui_port = tmp_path / "events", free_port()
    events.mkdir()
    conf = {
        **SparkCluster.conf,
        "spark.ui.enabled": "true",
        "spark.ui.port": str(ui_port),
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": events.as_uri(),
        "spark.eventLog.compress": "false",
    }
    standalone.tasks.take()
    context, pushed = make_context(try_number=1), []
    context["ti"].xcom_push = lambda key, value: pushed.append((key, value))
    with watching(secrets, ui_port) as watched:
        report = optimize(standalone, "client", table, context, monkeypatch, spark_conf=conf)
    assert report["status"] == "committed"

    def is_found(*contents: bytes) -> bool:
        return any(holds(content, secret) for content in contents for secret in secrets)

    assert is_found(standalone.tasks.take()), "with Spark's tasks they travel"
    assert watched.arguments == set()
    assert watched.executors
    assert not watched.environments & watched.executors
    assert any("run_job.py" in line for line in watched.environments), "the driver gets them there"
    assert watched.ui
    assert not is_found(*watched.ui)
    logged = [file.read_bytes() for file in events.rglob("*") if file.is_file()]
    assert b"SparkListenerEnvironmentUpdate" in b"".join(logged)
    assert not is_found(*logged)
    of_workers = [file.read_bytes() for file in standalone.directory.rglob("std*") if file.is_file()]
    assert of_workers
    assert not is_found(*of_workers)
    said = capfd.readouterr()
    assert "Submitting optimize" in said.out + said.err
    assert not is_found(json.dumps([report, pushed], default=str).encode(), (said.out + said.err).encode())


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
    assert not holds(recorded, s3_server.secret)


def test_the_doctor_warns_of_credentials_that_are_sent_in_the_clear(
    standalone: Place, s3_server: S3Server, table: str
) -> None:
    assert standalone.cluster is not None
    command = [str(Path(sys.executable).with_name("delta-maintenance")), "doctor", "--json", "--spark"]
    options = ["--storage-options", json.dumps(s3_server.storage_options)]
    done = subprocess.run(
        [
            *command,
            *("--table", table, "--master", standalone.cluster.master),
            *("--executor-credentials", "job", *options),
        ],
        env={**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    checks = {check["name"]: check["status"] for check in json.loads(done.stdout)["checks"]}
    assert checks["spark.encryption"] == "warning"
