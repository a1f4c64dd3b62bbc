"""Jobs on a real Spark Connect server: in one job, and begun by one job and finished by another."""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.support.environment.patience import PATIENCE_SECONDS
from tests.support.servers.gate import Gate
from tests.support.servers.spark_connect import TOKEN, SparkConnect, running_spark_connect
from tests.support.tables.small_tables import write_parts

from airflow_delta.runners.detached import JobHandle
from airflow_delta.runners.job_output import JobProgress
from airflow_delta.runners.job_runner import JobCannotStart
from airflow_delta.runners.spark_connect import ConnectJobRunner, SparkConnectRunner, remote_of
from delta_log import Table
from delta_log.errors import InvalidRequest
from delta_maintenance.contract import JobReport, JobSpec, TransactionId
from delta_maintenance.engine.connect.detached_rewrite import DetachedRewrite
from delta_maintenance.engine.connect.server import ConnectServer
from delta_maintenance.errors import SparkUnreachable

pytestmark = pytest.mark.spark

KEY = "5e" * 32
#: What two runs of the same work need not have in common.
OWN = ("table", "run_id", "started_ms", "finished_ms")
#: Far longer than it takes, and much shorter than a server keeps a detached operation.


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, no_other_spark: None) -> Iterator[SparkConnect]:
    with running_spark_connect(tmp_path_factory.mktemp("connect")) as server:
        yield server


@pytest.fixture(autouse=True)
def connection(server: SparkConnect, monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection `connect`."""
    use(server, monkeypatch)


def use(server: SparkConnect, monkeypatch: pytest.MonkeyPatch) -> None:
    connection = {
        "conn_type": "spark",
        "host": "sc://localhost",
        "port": server.port,
        "extra": {"token": TOKEN},
    }
    monkeypatch.setenv("AIRFLOW_CONN_CONNECT", json.dumps(connection))


class Log:
    def __init__(self) -> None:
        self.text = ""

    def info(self, message: str, /, *arguments: Any) -> None:
        self.text += message % arguments + "\n"

    debug = warning = error = info


def spec_of(table: Path, **options: Any) -> JobSpec:
    return JobSpec(
        "optimize", str(table), "run", options, engine="spark", transaction=TransactionId("app", 1)
    )


def begin(spec: JobSpec, submission: str | None = None) -> JobHandle:
    handle = SparkConnectRunner("connect").submit(spec, KEY, submission or secrets.token_hex(16))
    assert not isinstance(handle, JobReport), handle
    return handle


def wait_until(holds: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def facts(report: JobReport) -> dict[str, Any]:
    assert report.error is None, report.error
    return {name: value for name, value in report.to_dict().items() if name not in OWN}


def ids(table: Path) -> list[int]:
    return sorted(Table(str(table)).snapshot().to_arrow().column("id").to_pylist())


def break_part(table: Path, part: str) -> None:
    next(table.glob(f"part={part}/*.parquet")).write_bytes(b"no parquet")


def test_a_rewrite_in_two_jobs_has_the_report_of_one_job(
    server: SparkConnect, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    tables = [write_parts(tmp_path / name, "abc") for name in ("one", "two")]
    for table in tables:
        break_part(table, "c")
    one, two = (spec_of(table, on_broken_source="skip") for table in tables)
    log = Log()
    whole = ConnectJobRunner("connect", {"unused": "hunter2"}, log).run(one, lambda _: None, KEY)
    gate = Gate(tables[1])
    gate.hold("part=b")
    runner, seen = SparkConnectRunner("connect"), list[JobProgress]()
    submission = secrets.token_hex(16)
    handle = begin(two, submission)
    wait_until(gate.held)
    assert not runner.poll(handle).is_over
    assert begin(two, submission)["operation_id"] == handle["operation_id"], "the server runs it already"
    found = runner.find(two, submission)
    assert found is not None
    assert (found["session_id"], found["operation_id"]) == (handle["session_id"], handle["operation_id"])
    gate.release()
    report = runner.follow(handle, two, KEY, seen.append)
    expected = facts(whole)
    assert expected["broken_bins"] == 1
    # The paths in the table, the sizes of new files by a few bytes, and times are each run's own.
    own = ("broken", "metrics", "reading", "table_size", "partitions", "phases")
    assert {**facts(report), **{name: expected[name] for name in own}} == expected
    assert report.phases is not None
    assert report.phases["plan_ms"] == 0, "the server was rewriting meanwhile"
    assert report.metrics["numRemovedFiles"] == expected["metrics"]["numRemovedFiles"] == 4
    assert (seen[-1].done_bins, seen[-1].total_bins) == (3, 3)
    assert Table(str(tables[1])).snapshot().num_files == Table(str(tables[0])).snapshot().num_files
    written = "".join(capfd.readouterr()) + log.text + server.log.read_text()
    assert not [secret for secret in (KEY, "hunter2", TOKEN) if secret in written]


@pytest.mark.slow
def test_a_cancelled_rewrite_stops_and_its_next_try_takes_over_what_is_finished(
    server: SparkConnect, tmp_path: Path
) -> None:
    table = write_parts(tmp_path / "t", "abc")
    gate = Gate(table)
    gate.hold("part=b")
    spec, runner = spec_of(table), SparkConnectRunner("connect")
    handle = begin(spec)
    wait_until(lambda: gate.held() and len(list(table.glob("_maintenance/run/*.json"))) == 2)
    runner.cancel(handle)
    wait_until(lambda: not server.active_tasks())
    assert runner.poll(handle).is_over
    gate.release()
    assert Table(str(table)).snapshot().version == 1
    next_handle = runner.collect(handle, spec, KEY)
    assert not isinstance(next_handle, JobReport), "a bin is left for another rewrite"
    assert next_handle["operation_id"] != handle["operation_id"]
    assert next_handle["bins"] == 1
    report = runner.follow(next_handle, spec, KEY, lambda _: None)
    assert (report.status, report.version, report.metrics["numRemovedFiles"]) == ("committed", 2, 6)
    assert ids(table) == [0, 1, 2, 10, 11, 12]
    assert not (table / "_maintenance").exists()


@pytest.mark.slow
def test_a_lost_rewrite_that_has_finished_nothing_fails_and_may_be_tried_again(
    server: SparkConnect, tmp_path: Path
) -> None:
    table = write_parts(tmp_path / "t", "a")
    gate = Gate(table)
    gate.hold("part=")
    spec, runner = spec_of(table), SparkConnectRunner("connect")
    submission = secrets.token_hex(16)
    handle = begin(spec, submission)
    wait_until(gate.held)
    runner.cancel(handle)
    wait_until(lambda: not server.active_tasks())
    gate.release()
    report = runner.collect(handle, spec, KEY)
    assert isinstance(report, JobReport)
    assert report.error is not None
    assert (report.error.type, report.error.retryable) == ("OperationLost", True)
    assert runner.find(spec, submission) is None
    # The same name once more: the server has closed it, and the job takes the next one.
    again = begin(spec, submission)
    assert again["operation_id"] != handle["operation_id"]
    report = runner.follow(again, spec, KEY, lambda _: None)
    assert report.status == "committed"


def test_the_reason_of_a_failed_rewrite_comes_back(server: SparkConnect, tmp_path: Path) -> None:
    table = write_parts(tmp_path / "t", "a")
    # A directory in the way: the store fails, and for all that is known it will recover.
    (table / "_maintenance").write_text("in the way")
    report = SparkConnectRunner("connect").follow(begin(spec_of(table)), spec_of(table), KEY, lambda _: None)
    assert report.error is not None
    assert "_maintenance" in report.error.message
    assert report.error.facts["bin_id"]


#: A worker that dies by SIGKILL; its job is not its last process.
WORKER = """
import sys
from airflow_delta.runners.spark_connect import ConnectJobRunner
from delta_maintenance.contract import JobSpec
import logging
ConnectJobRunner("connect", {}, logging.getLogger()).run(JobSpec.from_json(sys.argv[1]), print, sys.argv[2])
"""


@pytest.mark.slow
@pytest.mark.parametrize("killed_by", [signal.SIGTERM, signal.SIGKILL])
def test_no_task_runs_on_after_a_worker_was_killed(
    server: SparkConnect, tmp_path: Path, killed_by: signal.Signals
) -> None:
    table = write_parts(tmp_path / "t", "ab")
    gate = Gate(table)
    gate.hold("part=")
    worker = subprocess.Popen(
        [sys.executable, "-c", WORKER, spec_of(table).to_json(), KEY], stdout=subprocess.DEVNULL
    )
    wait_until(gate.held)
    worker.send_signal(killed_by)
    worker.wait()
    wait_until(lambda: not server.active_tasks())
    gate.release()
    assert Table(str(table)).snapshot().version == 1
    assert list(table.glob("_maintenance/run/*.json")) == []


def test_other_operations_run_on_the_server_too(server: SparkConnect, tmp_path: Path) -> None:
    table = write_parts(tmp_path / "t", "ab")
    spec = replace(spec_of(table, retain_hours=200), operation="vacuum", transaction=None)
    report = ConnectJobRunner("connect", {}, Log()).run(spec, lambda _: None, KEY)
    assert (report.error, report.engine) == (None, "spark")


@pytest.mark.slow
def test_the_doctor_tells_that_secrets_would_travel_in_the_clear(
    server: SparkConnect, tmp_path: Path
) -> None:
    table = write_parts(tmp_path / "t", "ab")
    options = ["--table", str(table), "--storage-options", '{"auto_mkdir": true}']
    done = subprocess.run(
        [str(Path(sys.executable).with_name("delta-maintenance")), "doctor", "--spark", "--json", *options],
        env=os.environ | {"SPARK_REMOTE": server.remote},
        capture_output=True,
        text=True,
        check=False,
    )
    checks = {check["name"]: check for check in json.loads(done.stdout)["checks"]}
    assert done.returncode == 0, done.stderr
    assert checks["spark.answer"]["status"] == "ok"
    assert checks["spark.encryption"]["status"] == "warning"
    assert TOKEN not in done.stdout + done.stderr


@pytest.mark.slow
def test_a_server_that_is_not_there_is_an_outage_and_a_wrong_token_is_final(server: SparkConnect) -> None:
    rewrite = DetachedRewrite.named("x", "me")
    with (
        ConnectServer("sc://localhost:1", rewrite) as nowhere,
        pytest.raises(SparkUnreachable, match="localhost:1 does not answer"),
    ):
        nowhere.require_answer()
    with (
        ConnectServer(server.remote.replace(TOKEN, "wrong-token"), rewrite) as closed,
        pytest.raises(InvalidRequest, match="refuses this client") as refused,
    ):
        closed.require_answer()
    assert "wrong-token" not in str(refused.value)


@pytest.mark.slow
def test_a_refusal_ends_the_run_at_once(tmp_path: Path) -> None:
    report = SparkConnectRunner("connect").submit(spec_of(tmp_path / "none"), KEY, "5" * 32)
    assert isinstance(report, JobReport)
    assert report.error is not None
    assert (report.error.type, report.error.kind) == ("NotATable", "refused")


@pytest.mark.slow
def test_a_restarted_server_costs_the_bins_that_were_not_finished(
    server: SparkConnect, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = write_parts(tmp_path / "t", "ab")
    spec, runner = spec_of(table), SparkConnectRunner("connect")
    first = tmp_path / "first"
    first.mkdir()
    with running_spark_connect(first) as restarted:
        use(restarted, monkeypatch)
        Gate(table).hold("part=b")
        handle = begin(spec)
        wait_until(lambda: len(list(table.glob("_maintenance/run/*.json"))) == 1)
    Gate(table).release()
    assert not runner.poll(handle).is_over, "an outage is no reason to give up"
    use(server, monkeypatch)
    report = SparkConnectRunner("connect").follow(handle, spec, KEY, lambda _: None)
    assert (report.status, report.metrics["numRemovedFiles"]) == ("committed", 4)
    assert ids(table) == [0, 1, 10, 11]


def test_a_connection_without_a_host_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_CONNECT", '{"conn_type": "spark_connect"}')
    with pytest.raises(JobCannotStart, match="names no host"):
        remote_of("connect")
    assert "AIRFLOW_CONN_CONNECT" in os.environ
