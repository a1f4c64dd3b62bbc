"""Test doubles for users' tests and ours: a job that is not run, and state stores that are dictionaries."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

from airflow_delta.runners.job_output import JobProgress
from airflow_delta.runners.job_runner import JobError, ProgressListener
from delta_maintenance.contract import JobReport, JobSpec


class FakeJobRunner:
    """A :class:`~airflow_delta.runners.job_runner.JobRunner` that runs nothing.

    :param outcomes: one for each run in turn: the report, the error to raise, or a function that makes a report of the spec.
    :param progress: passed to the listener in every run.
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


class FakeStateStore:
    """The part of ``context["task_state_store"]`` that is used; values go through JSON, as in Airflow."""

    def __init__(self) -> None:
        self._values: dict[str, str] = {}

    def get(self, key: str, default: Any = None) -> Any:
        return json.loads(self._values[key]) if key in self._values else default

    def set(self, key: str, value: Any, **_: Any) -> None:
        self._values[key] = json.dumps(value)

    def delete(self, key: str) -> None:
        self._values.pop(key, None)


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
