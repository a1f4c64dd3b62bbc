"""Test doubles for users' tests and ours: jobs that are not run, and state stores that are dictionaries; and the contract of launchers."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any, ClassVar

from msgspec import Struct

from airflow_delta.driver_launcher_contract import (
    DriverLauncherContract as DriverLauncherContract,  # noqa: PLC0414 - users import it from here
)
from airflow_delta.runners.detached import DetachedRunner, JobHandle, JobState
from airflow_delta.runners.job_output import JobProgress
from airflow_delta.runners.job_runner import JobError, JobLost, ProgressListener
from delta_maintenance.contract import JobReport, JobSpec


class FakeJobRunner:
    """A :class:`~airflow_delta.runners.job_runner.JobRunner` that runs nothing.

    :param outcomes: outcome of each run in turn: the report, the error to raise, or a function that makes a report of the spec.
    :param progress: steps that the listener gets in every run.
    """

    place = "a fake"

    def __init__(
        self,
        *outcomes: JobReport | JobError | Callable[[JobSpec], JobReport],
        progress: Iterable[JobProgress] = (),
    ) -> None:
        self._outcomes = list(outcomes)
        self._progress = tuple(progress)
        self.specs: list[JobSpec] = []
        self.run_keys: list[str | None] = []
        self.stops = 0

    def run(self, spec: JobSpec, on_progress: ProgressListener, run_key: str | None = None) -> JobReport:
        self.specs.append(spec)
        self.run_keys.append(run_key)
        for step in self._progress:
            on_progress(step)
        outcome = self._outcomes.pop(0)
        if isinstance(outcome, JobError):
            raise outcome
        return outcome if isinstance(outcome, JobReport) else outcome(spec)

    def stop(self) -> None:
        self.stops += 1


class FakeDetachedRunner(DetachedRunner):
    """A :class:`~airflow_delta.runners.detached.DetachedRunner` without jobs. A trigger gets an equal one by its :attr:`name`.

    :param outcomes: outcome of each submission in turn: the report, the error that :meth:`submit` raises, a function that makes a
        report of the spec, or ``None``: the job ends without a report.
    :param looks: number of looks that find a job at work before it is over.
    """

    _made: ClassVar[dict[str, FakeDetachedRunner]] = {}
    place = "a fake cluster"
    poll_seconds = 0.0

    def __init__(
        self,
        *outcomes: JobReport | JobError | Callable[[JobSpec], JobReport] | None,
        looks: int = 1,
        progress: JobProgress | None = None,
    ) -> None:
        self.name = f"fake-{len(self._made)}"
        self._made[self.name] = self
        self._outcomes = list(outcomes)
        self._looks, self._progress = looks, progress
        self._jobs: dict[str, _FakeJob] = {}
        #: Submission ids in turn, and those that were cancelled.
        self.submissions: list[str] = []
        self.cancelled: list[str] = []
        #: Raised by every :meth:`poll`, while it is set.
        self.fault: Exception | None = None

    @classmethod
    def named(cls, name: str) -> FakeDetachedRunner:
        """The runner that :meth:`serialize` describes."""
        return cls._made[name]

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return "airflow_delta.testing.fake_detached_runner", {"name": self.name}

    def submit(self, spec: JobSpec, run_key: str, submission_id: str) -> JobHandle | JobReport:
        self.submissions.append(submission_id)
        outcome = self._outcomes.pop(0)
        if isinstance(outcome, JobError):
            raise outcome
        self._jobs[submission_id] = _FakeJob(outcome, self._looks)
        return {"id": submission_id}

    def find(self, spec: JobSpec, submission_id: str) -> JobHandle | None:
        return {"id": submission_id} if submission_id in self._jobs else None

    def poll(self, handle: JobHandle) -> JobState:
        if self.fault is not None:
            raise self.fault
        job = self._jobs.get(handle["id"])
        if job is None:
            return JobState(True, "no cluster knows of it")
        job.looks -= 1
        is_over = job.looks < 0
        return JobState(is_over, "FINISHED" if is_over else "RUNNING", None if is_over else self._progress)

    def collect(self, handle: JobHandle, spec: JobSpec, run_key: str) -> JobReport | JobHandle:
        job = self._jobs.get(handle["id"])
        if job is None or job.outcome is None:
            raise JobLost("The job ended without a report.")
        return job.outcome if isinstance(job.outcome, JobReport) else job.outcome(spec)

    def cancel(self, handle: JobHandle) -> None:
        self.cancelled.append(handle["id"])
        if handle["id"] in self._jobs:
            self._jobs[handle["id"]] = _FakeJob(None, 0)


class _FakeJob(Struct):
    outcome: JobReport | Callable[[JobSpec], JobReport] | None
    looks: int


def fake_detached_runner(name: str) -> FakeDetachedRunner:
    """The runner of that name, as a trigger makes it."""
    return FakeDetachedRunner.named(name)


class FakeStateStore:
    """The part of ``context["task_state_store"]`` that is used; values go through JSON, as in Airflow."""

    def __init__(self) -> None:
        #: JSON texts by key.
        self.values: dict[str, str] = {}
        self.retentions: dict[str, timedelta | None] = {}

    def get(self, key: str, default: Any = None) -> Any:
        return json.loads(self.values[key]) if key in self.values else default

    def set(self, key: str, value: Any, *, retention: timedelta | None = None) -> None:
        self.values[key] = json.dumps(value)
        self.retentions[key] = retention

    def delete(self, key: str) -> None:
        self.values.pop(key, None)


class FakeAssetStateStore:
    """The part of a watcher's ``asset_state_store`` that is used, for one asset; it outlives its watchers."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        #: Raised by every call, while it is set.
        self.fault: Exception | None = None

    async def aget(self, key: str, default: Any = None) -> Any:
        if self.fault is not None:
            raise self.fault
        return json.loads(self.values[key]) if key in self.values else default

    async def aset(self, key: str, value: Any) -> None:
        if self.fault is not None:
            raise self.fault
        self.values[key] = json.dumps(value)


def committed(spec: JobSpec, version: int = 1, **metrics: int) -> JobReport:
    """The report of a job that did what `spec` asked for."""
    return JobReport(
        operation=spec.operation,
        table=spec.table,
        status="committed",
        run_id=spec.run_id,
        version=version,
        engine=spec.engine,
        transaction=spec.transaction,
        metrics=metrics,
    )
