"""A job as a driver on a cluster: what it is given, how it is followed, what becomes of its report."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.support.tables.small_tables import write_days

from airflow_delta.runners.drivers.cluster import ClusterJobRunner, runner_of
from airflow_delta.runners.drivers.driver import DriverLauncher, DriverPhase, DriverRequest, DriverState
from airflow_delta.runners.drivers.standalone_master import StandaloneMaster
from airflow_delta.runners.job_runner import JobCannotStart, JobLost
from delta_log.storage.local.local_storage import LocalStorage
from delta_maintenance.contract import JobReport, JobSpec
from delta_maintenance.rewrite.manifest.manifest_file import RunKey
from delta_maintenance.status_file import StatusFile

KEY, ID = "ab" * 32, "cd" * 16


class Launcher(DriverLauncher):
    """Starts nothing; the states of its drivers are told by the test."""

    place = "a cluster of a test"

    def __init__(self) -> None:
        self.requests: list[DriverRequest] = []
        self.ended: list[Mapping[str, Any]] = []
        self.phase = DriverPhase.RUNNING

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return f"{__name__}.Launcher", {}

    def start(self, request: DriverRequest) -> dict[str, Any]:
        self.requests.append(request)
        return {"id": "driver-1"}

    def state(self, handle: Mapping[str, Any]) -> DriverState:
        return DriverState(self.phase, "said the cluster")

    def end(self, handle: Mapping[str, Any]) -> None:
        self.ended.append(handle)


@pytest.fixture
def spec(tmp_path: Path) -> JobSpec:
    write_days(tmp_path / "t", days=1)
    return JobSpec("optimize", str(tmp_path / "t"), "run", engine="spark")


def status_of(spec: JobSpec) -> StatusFile:
    return StatusFile(LocalStorage(spec.table), spec.run_id, ID)


def test_the_program_gets_its_spec_as_an_argument_and_the_runs_key_apart(spec: JobSpec) -> None:
    launcher = Launcher()
    runner = ClusterJobRunner(launcher, spark_conf={"spark.executor.memory": "2g"})
    handle = runner.submit(spec, KEY, ID)
    (request,) = launcher.requests
    assert JobSpec.from_argument(request.arguments[1]) == spec
    assert request.arguments[2:] == ["--status-id", ID]
    assert request.environment == {"DELTA_MAINTENANCE_RUN_KEY": KEY}
    assert request.spark_conf["spark.executor.memory"] == "2g"
    assert KEY not in json.dumps(handle) + repr(request)


def test_settings_of_a_connection_travel_where_the_driver_has_an_identity_of_its_own(
    spec: JobSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    extra = {"key": "K", "secret": "not to travel", "client_kwargs": {"region_name": "eu-central-1"}}
    monkeypatch.setenv("AIRFLOW_CONN_LAKE", json.dumps({"conn_type": "delta", "extra": extra}))
    launcher = Launcher()
    runner = ClusterJobRunner(launcher, delta_conn_id="lake")
    with pytest.raises(JobCannotStart, match="executor_credentials='ambient'"):
        runner.submit(spec, KEY, ID)
    # The table is on a disk, which needs no settings.
    ambient = replace(spec, executor_credentials="ambient")
    assert isinstance(runner.submit(ambient, KEY, ID), dict)
    (request,) = launcher.requests
    assert request.environment == {"DELTA_MAINTENANCE_RUN_KEY": KEY}


def test_progress_and_report_come_from_the_status_file(spec: JobSpec) -> None:
    launcher = Launcher()
    runner = ClusterJobRunner(launcher)
    handle = runner.submit(spec, KEY, ID)
    assert isinstance(handle, dict)
    assert runner.poll(handle).progress is None
    status_of(spec).write(RunKey(KEY), progress={"done_bins": 1, "total_bins": 2, "message": "rewriting"})
    state = runner.poll(handle)
    assert not state.is_over
    assert state.progress is not None
    assert state.progress.done_bins == 1
    report = JobReport("optimize", spec.table, "committed", "run", version=4)
    status_of(spec).write(RunKey(KEY), report=report.to_dict())
    launcher.phase = DriverPhase.SUCCEEDED
    assert runner.poll(handle).is_over
    assert runner.collect(handle, spec, KEY) == report


def test_a_report_that_somebody_else_has_written_does_not_count(spec: JobSpec) -> None:
    launcher = Launcher()
    runner = ClusterJobRunner(launcher)
    handle = runner.submit(spec, KEY, ID)
    assert isinstance(handle, dict)
    forged = JobReport("optimize", spec.table, "committed", "run", version=4)
    status_of(spec).write(RunKey("ef" * 32), report=forged.to_dict())
    assert runner.collect(handle, spec, KEY) == handle, "it is at work, so there is more to wait for"
    launcher.phase = DriverPhase.FAILED
    with pytest.raises(JobLost, match="said the cluster"):
        runner.collect(handle, spec, KEY)


def test_a_driver_that_nobody_knows_of_is_given_up_after_some_looks_and_an_outage_never_is(
    spec: JobSpec,
) -> None:
    launcher = Launcher()
    runner = ClusterJobRunner(launcher)
    handle = runner.submit(spec, KEY, ID)
    assert isinstance(handle, dict)
    launcher.phase = DriverPhase.GONE
    assert [runner.poll(handle).is_over for _ in range(3)] == [False, False, True]
    launcher.phase = DriverPhase.UNKNOWN
    assert not any(runner.poll(handle).is_over for _ in range(9))


def test_a_table_that_cannot_be_read_from_here_is_refused_before_a_driver_is_started(tmp_path: Path) -> None:
    launcher = Launcher()
    spec = JobSpec("optimize", str(tmp_path / "none"), "run")
    report = ClusterJobRunner(launcher).submit(spec, KEY, ID)
    assert isinstance(report, JobReport)
    assert report.error is not None
    assert (report.error.type, report.error.retryable) == ("NotATable", False)
    assert launcher.requests == []
    assert not (tmp_path / "none").exists()


def test_another_process_makes_an_equal_runner() -> None:
    name, kwargs = ClusterJobRunner(StandaloneMaster("spark://host:7077", rest_port=1)).serialize()
    assert name == "airflow_delta.runners.drivers.cluster.runner_of"
    made = runner_of(**json.loads(json.dumps(kwargs)))
    assert made.serialize() == (name, kwargs)
    assert made.place == "the Spark cluster spark://host:7077"
