"""Drivers on an emulated YARN, started by a program that stands for spark-submit."""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import pytest
from tests.support.checks.command_lines import command_lines_with
from tests.support.servers.process import free_port
from tests.support.servers.yarn import Yarn, running_yarn

from airflow_delta.runners import spark_settings
from airflow_delta.runners.detached import JobHandle
from airflow_delta.runners.drivers.cluster import ClusterJobRunner
from airflow_delta.runners.drivers.driver import DriverPhase, DriverRequest
from airflow_delta.runners.drivers.yarn import YarnResourceManager, driver_state
from airflow_delta.runners.job_runner import JobCannotStart, JobLost
from airflow_delta.runners.spark_runner import SparkChoice
from airflow_delta.testing import DriverLauncherContract
from airflow_delta.triggers.job import DeltaJobTrigger
from delta_maintenance.contract import RUN_KEY_VARIABLE

pytestmark = pytest.mark.usefixtures("settled_deferrals")

Connect = Callable[..., None]


@pytest.fixture
def yarn(tmp_path: Path) -> Iterator[Yarn]:
    (tmp_path / "yarn").mkdir()
    with running_yarn(tmp_path / "yarn") as yarn:
        yield yarn


@pytest.fixture
def connect(monkeypatch: pytest.MonkeyPatch) -> Connect:
    monkeypatch.setenv("HADOOP_CONF_DIR", "/etc/hadoop/conf")
    monkeypatch.setattr(spark_settings, "require_java", lambda _: None)

    def connect(address: str | None, **fields: Any) -> None:
        extra = {"deploy-mode": "cluster", "yarn_resourcemanager_webapp_address": address}
        value = {"conn_type": "spark", "host": "yarn", "extra": extra, **fields}
        monkeypatch.setenv("AIRFLOW_CONN_LAKE_YARN", json.dumps(value))

    return connect


@pytest.fixture
def launcher(yarn: Yarn, connect: Connect) -> YarnResourceManager:
    connect(yarn.address)
    return YarnResourceManager("lake_yarn", yarn.spark_submit)


@pytest.fixture
def request_(tmp_path: Path) -> DriverRequest:
    program = tmp_path / "sleeps.py"
    program.write_text("import time; time.sleep(600)")
    return DriverRequest(
        "OPTIMIZE s3://lake/events",
        secrets.token_hex(16),
        str(program),
        ["--spec", "base64:e30="],
        {RUN_KEY_VARIABLE: secrets.token_hex(32)},
        {
            "spark.executor.memory": "4g",
            "spark.yarn.tags": "nightly",
            "spark.hadoop.fs.s3a.secret.key": "a\\b: c",
        },
    )


class TestYarnResourceManager(DriverLauncherContract):
    @pytest.fixture
    def program_directory(self, tmp_path: Path) -> Path:
        return tmp_path

    @pytest.fixture
    def unknown_handle(self) -> JobHandle:
        return {"submission_id": "0" * 32, "application_id": "application_1700000000000_0099"}


def test_a_connection_in_deploy_mode_cluster_gets_it(connect: Connect) -> None:
    connect("rm:8088")
    runner: Any = SparkChoice("optimize", "lake_yarn").runner({}, None)  # type: ignore[arg-type]
    assert runner.place == YarnResourceManager("lake_yarn").place


def test_secrets_are_in_no_command_line_and_properties_arrive_unchanged(
    yarn: Yarn, launcher: YarnResourceManager, request_: DriverRequest
) -> None:
    secret = request_.environment[RUN_KEY_VARIABLE]
    seen: list[str] = []
    is_over = threading.Event()

    def watch() -> None:
        while not is_over.wait(0.001):
            seen.extend(command_lines_with(secret))

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        launcher.start(request_)
    finally:
        is_over.set()
        watcher.join()
    assert seen == []
    (submission,) = yarn.submissions
    assert secret not in json.dumps(submission["argv"])
    properties = submission["properties"]
    assert properties[f"spark.yarn.appMasterEnv.{RUN_KEY_VARIABLE}"] == secret
    assert properties["spark.yarn.tags"] == f"nightly,{request_.submission_id}"
    assert properties["spark.executor.memory"] == "4g"
    assert properties["spark.hadoop.fs.s3a.secret.key"] == "a\\\\b: c"  # as Java writes it
    assert "--load-spark-defaults" in submission["argv"]


def test_an_accepted_application_whose_answer_was_lost_is_found(
    yarn: Yarn, launcher: YarnResourceManager, request_: DriverRequest
) -> None:
    yarn.answer_of_submit, yarn.loses_answers = "java.net.ConnectException: Connection refused", True
    handle = launcher.start(request_)
    assert handle == launcher.find(request_.submission_id)
    assert launcher.state(handle).phase is DriverPhase.RUNNING
    # Starting it again gives the same.
    assert launcher.start(request_) == handle
    assert len(yarn.submissions) == 1


def test_a_trigger_follows_a_driver_to_its_end_and_says_so_in_the_log_of_its_task(
    yarn: Yarn,
    launcher: YarnResourceManager,
    request_: DriverRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    task, told = ContextVar("task", default="none"), []

    class Lines(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            told.append(f"{task.get()}: {record.getMessage()}")

    async def event() -> Any:
        task.set("optimize")
        async for event in DeltaJobTrigger(*ClusterJobRunner(launcher).serialize(), handle).run():
            return event.payload
        raise AssertionError("no event")

    ids = {"table": str(tmp_path), "run_id": "run", "submission_id": request_.submission_id}
    driver = launcher.start(request_)
    handle = {**ids, "driver": driver}
    launcher.end(driver)
    monkeypatch.setattr(logging.getLogger("airflow_delta.runners.drivers.cluster"), "handlers", [Lines()])
    monkeypatch.setattr(logging.getLogger("airflow_delta.runners.drivers.cluster"), "level", logging.INFO)
    said = "failed: KILLED: Application was killed by user airflow"
    assert asyncio.run(event()) == {"text": said}
    assert told == [f"optimize: The driver on YARN (connection lake_yarn): {said}"]


def test_a_submission_that_is_interrupted_leaves_no_spark_submit(
    monkeypatch: pytest.MonkeyPatch, yarn: Yarn, launcher: YarnResourceManager, request_: DriverRequest
) -> None:
    class Interrupted(BaseException):
        pass

    def interrupt(*_: object) -> None:
        raise Interrupted

    def interrupt_when_it_waits() -> None:
        while not yarn.submissions:
            time.sleep(0.01)
        time.sleep(0.5)  # the task is behind all preparations, and waits for what spark-submit writes
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGALRM)

    yarn.seconds_to_accept = 30.0
    before = signal.signal(signal.SIGALRM, interrupt)
    threading.Thread(target=interrupt_when_it_waits, daemon=True).start()
    try:
        with pytest.raises(Interrupted):
            launcher.start(request_)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert command_lines_with(request_.application) == []


@pytest.mark.parametrize(
    ("said", "error"),
    [
        ("java.net.ConnectException: Call to rm:8032 failed: Connection refused", JobLost),
        ("org.apache.hadoop.security.AccessControlException: User airflow cannot submit", JobCannotStart),
        ("YarnException: Application submitted by user airflow to unknown queue: night", JobCannotStart),
        ("java.lang.IllegalArgumentException: java.net.UnknownHostException: namenode", JobLost),
    ],
)
def test_a_refusal_is_final_and_an_outage_is_not(
    yarn: Yarn, launcher: YarnResourceManager, request_: DriverRequest, said: str, error: type[Exception]
) -> None:
    frames = "\n".join(f"\tat org.apache.hadoop.ipc.Client.call(Client.java:{line})" for line in range(60))
    yarn.answer_of_submit = (
        f'Exception in thread "main" SparkException: it failed\n{frames}\nCaused by: {said}\n{frames}'
    )
    with pytest.raises(error) as caught:
        launcher.start(request_)
    assert said in str(caught.value)
    assert "Client.java" not in str(caught.value)
    assert yarn.applications == []


@pytest.mark.parametrize("status", [401, 403])
def test_a_resource_manager_that_refuses_to_answer_is_found_before_submission(
    yarn: Yarn, launcher: YarnResourceManager, request_: DriverRequest, status: int
) -> None:
    yarn.status = status
    with pytest.raises(JobCannotStart, match=rf"HTTP {status}: .*not you.*Nothing was submitted"):
        launcher.start(request_)
    assert yarn.submissions == []
    handle = {"submission_id": request_.submission_id}
    assert launcher.state(handle).phase is DriverPhase.UNKNOWN
    with pytest.raises(JobLost):
        launcher.end(handle)


def test_the_other_address_is_asked_if_one_does_not_answer_and_without_any_the_state_is_unknown(
    yarn: Yarn, connect: Connect, request_: DriverRequest
) -> None:
    dead = f"127.0.0.1:{free_port()}"
    connect(f"{dead}, {yarn.address}/", login="airflow")
    handle = YarnResourceManager("lake_yarn", yarn.spark_submit).start(request_)
    connect(dead)
    launcher = YarnResourceManager("lake_yarn", yarn.spark_submit)
    assert launcher.state(handle).phase is DriverPhase.UNKNOWN
    assert launcher.find(request_.submission_id) is None
    with pytest.raises(JobLost, match="No ResourceManager of YARN"):
        launcher.end(handle)
    with pytest.raises(JobLost, match="Another try may succeed"):
        launcher.start(request_)
    assert len(yarn.submissions) == 1


def test_a_connection_without_the_resource_manager_s_address_is_told_before_submission(
    yarn: Yarn, connect: Connect, request_: DriverRequest
) -> None:
    connect(None)
    with pytest.raises(JobCannotStart, match="yarn_resourcemanager_webapp_address in its extra"):
        YarnResourceManager("lake_yarn").start(request_)
    assert yarn.submissions == []


@pytest.mark.parametrize(
    ("application", "phase", "text"),
    [
        (
            {
                "state": "ACCEPTED",
                "finalStatus": "UNDEFINED",
                "diagnostics": "[Mon Nov 23 06:00:00 +0000 2026] Queue's AM resource limit exceeded.",
            },
            DriverPhase.WAITING,
            "ACCEPTED: Queue's AM resource limit exceeded.",
        ),
        ({"state": "RUNNING", "finalStatus": "UNDEFINED"}, DriverPhase.RUNNING, "RUNNING"),
        ({"state": "FINISHED", "finalStatus": "SUCCEEDED"}, DriverPhase.SUCCEEDED, "FINISHED"),
        (
            {
                "state": "FINISHED",
                "finalStatus": "FAILED",
                "diagnostics": "User application exited with status 2",
            },
            DriverPhase.FAILED,
            "FINISHED, final status FAILED: User application exited with status 2",
        ),
        ({"state": "KILLED", "finalStatus": "KILLED"}, DriverPhase.FAILED, "KILLED"),
        ({"state": "NOVEL", "finalStatus": "UNDEFINED"}, DriverPhase.UNKNOWN, "NOVEL"),
    ],
)
def test_states_are_told_as_yarn_says_them(
    application: dict[str, str], phase: DriverPhase, text: str
) -> None:
    state = driver_state(application)
    assert (state.phase, state.text) == (phase, text)


def test_a_launcher_that_is_prepared_ends_a_driver_without_a_look_at_its_connection(
    launcher: YarnResourceManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A signal may come while the task is looking something up."""
    launcher.prepare()
    monkeypatch.delenv("AIRFLOW_CONN_LAKE_YARN")
    launcher.end({"submission_id": "0" * 32, "application_id": None})  # there is no such application
    with pytest.raises(JobCannotStart):
        YarnResourceManager("lake_yarn").prepare()
