"""The seam between an operator and the place where a job runs.

A runner takes a :class:`~delta_maintenance.contract.JobSpec`, passes on the job's progress, and returns its
:class:`~delta_maintenance.contract.JobReport`, which may report a failure. It raises only if there is no report:

* :class:`JobCannotStart`: nothing was started, and the same attempt would fail again: something is missing or wrong.
* :class:`JobLost`: the job ended without a report: it was killed, ran out of memory, or Spark gave up. It may have committed; the
  transaction id of the spec makes another try harmless.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Protocol

from airflow_delta.runners.job_output import JobProgress
from airflow_delta.runners.job_output import TaskLog as TaskLog  # noqa: PLC0414 - what a runner writes to
from delta_maintenance.contract import JobReport, JobSpec

ProgressListener = Callable[[JobProgress], None]


class JobRunner(Protocol):
    """Runs one job at a time.

    1. :meth:`run` blocks until the job has ended and leaves no process of it behind, whatever is raised.
    2. The run's key reaches the job as credentials do: by its environment.
    3. :meth:`stop` may be called from a signal handler while :meth:`run` blocks, more than once, and before or after it.
    """

    #: For people: where the job runs.
    place: str

    def run(self, spec: JobSpec, on_progress: ProgressListener, run_key: str | None = None) -> JobReport: ...

    def stop(self) -> None: ...


class JobError(Exception):
    """The job has left no report."""

    #: Whether another try may succeed; ``at_fault``, for people: what has to change before.
    retryable: ClassVar[bool] = True
    at_fault: ClassVar[str] = "what the message names"


class JobCannotStart(JobError):
    """Nothing was started. The same attempt fails again until a user corrects what the message names."""

    retryable = False
    at_fault = "the connection, or the worker"


class JobLost(JobError):
    """The job ended without a report.

    :param output: the last lines it wrote; ``None``: its output is not known here.
    """

    at_fault = "the machine or the cluster that ran the job"

    def __init__(self, problem: str, output: tuple[str, ...] | None = None) -> None:
        self.output = output or ()
        if output:
            problem += "\nIts last lines:\n" + "\n".join(f"    {line}" for line in output)
        elif output is not None:
            problem += " It wrote nothing."
        super().__init__(problem)
