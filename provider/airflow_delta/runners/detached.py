"""Jobs that outlive the process that started them: on a cluster, or on a server.

A :class:`DetachedRunner` starts a job and gives a handle of it, JSON values without secrets. With the handle any other process follows the
job, collects its report, or cancels it: a trigger without a worker slot, or the next try of the task.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from airflow_delta.runners.job_output import JobProgress
from airflow_delta.runners.job_runner import ProgressListener
from delta_maintenance.contract import JobReport, JobSpec

#: JSON values. They are kept in Airflow's database, and hold no secrets.
JobHandle = dict[str, Any]


class JobState(Struct, frozen=True):
    """What a look at a job has found.

    :param is_over: whether the job has ended; :meth:`DetachedRunner.collect` tells how.
    :param text: description for people, such as ``RUNNING`` or the reason for its end.
    :param progress: the newest known progress.
    """

    is_over: bool
    text: str = ""
    progress: JobProgress | None = None


class DetachedRunner(ABC):
    """A :class:`~airflow_delta.runners.job_runner.JobRunner` whose jobs can be followed from another process.

    Every method may block, and may be called from any thread, one at a time. An outage is no reason to give up a job: :meth:`poll` goes on
    saying that the job runs until it knows better.
    """

    #: For people: where the job runs.
    place: str
    #: Between two looks at a job.
    poll_seconds: float = 5.0

    @abstractmethod
    def serialize(self) -> tuple[str, dict[str, Any]]:
        """The class by its full name, and keyword arguments that make an equal runner. They hold no secrets."""

    @abstractmethod
    def submit(self, spec: JobSpec, run_key: str, submission_id: str) -> JobHandle | JobReport:
        """Start a job, and return at once: its handle; or its report if it is done already.

        :param submission_id: 32 hexadecimal digits, which name this start of the job. The caller has stored them.
        :raises JobCannotStart, JobLost: there is no job.
        """

    def find(self, spec: JobSpec, submission_id: str) -> JobHandle | None:
        """Look for a job whose caller died between :meth:`submit` and storing the handle; ``None``: it is not known."""
        return None

    def prepare(self) -> None:
        """Import, and look up, what :meth:`poll` and :meth:`cancel` need.

        Airflow kills a task by a signal, whose handler calls :meth:`cancel` between any two steps of the task. A client that is imported
        by half cannot be used there. Therefore a task that is going to poll calls this before it has a handle.

        :raises JobCannotStart: something is missing, or the configuration is wrong.
        """

    @abstractmethod
    def poll(self, handle: JobHandle) -> JobState:
        """Look at a job. It needs neither the spec nor the run's key."""

    @abstractmethod
    def collect(self, handle: JobHandle, spec: JobSpec, run_key: str) -> JobReport | JobHandle:
        """The report of a job that is over; or a new handle, if there is more to wait for.

        :raises JobLost: it ended without a report.
        """

    @abstractmethod
    def cancel(self, handle: JobHandle) -> None:
        """End a job and all that it has started; it may be over already, or unknown."""

    def close(self) -> None:
        """Release what this object holds open; the job goes on."""

    def wait(self, handle: JobHandle) -> Iterator[JobState]:
        """Look at a job until it is over; yields each state, the last one included."""
        while True:
            state = self.poll(handle)
            yield state
            if state.is_over:
                return
            time.sleep(self.poll_seconds)

    def follow(
        self, step: JobHandle | JobReport, spec: JobSpec, run_key: str, on_progress: ProgressListener
    ) -> JobReport:
        """Wait for a job in this process, and return its report.

        :raises JobLost: it ended without a report.
        """
        while not isinstance(step, JobReport):
            for state in self.wait(step):
                if state.progress is not None:
                    on_progress(state.progress)
            step = self.collect(step, spec, run_key)
        return step
