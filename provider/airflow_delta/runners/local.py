"""Runs a job in a Python process beside the task, without Spark.

The process is not a fork of the task: fsspec's event loops and Arrow's threads do not survive a fork. If memory runs out, the
task loses its job, not itself.
"""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from airflow_delta.runners.job_environment import job_environment
from airflow_delta.runners.job_output import JobOutput, JobProgress, bounded_lines
from airflow_delta.runners.job_runner import JobCannotStart, JobLost, ProgressListener, TaskLog
from delta_maintenance.contract import JobReport, JobSpec

JOB_COMMAND = (sys.executable, "-P", "-m", "delta_maintenance.entrypoint.run_job")
#: Between SIGTERM and SIGKILL. Airflow gives a task that it kills five seconds, and then kills the process that would send the second.
_SECONDS_TO_END = 3


class LocalJobRunner:
    """A :class:`~airflow_delta.runners.job_runner.JobRunner` on this machine.

    :param storage_options: credentials for the table; they go into the job's environment.
    :param log: log that receives what the job writes, live.
    :param command: the program to start; the spec is appended.
    :param spark_master: the master that can take work that is too large for this machine.
    :param environment: further variables of the job, which may hold secrets.
    """

    place = "a local process"

    def __init__(
        self,
        storage_options: Mapping[str, Any],
        log: TaskLog,
        command: Sequence[str] = JOB_COMMAND,
        spark_master: str | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._storage_options = storage_options
        self._log = log
        self._command = tuple(command)
        self._spark_master = spark_master
        self._environment = dict(environment or {})
        self._process: subprocess.Popen[str] | None = None
        self._is_stopped = False

    def run(self, spec: JobSpec, on_progress: ProgressListener, run_key: str | None = None) -> JobReport:
        nonce = secrets.token_hex(16)
        output = JobOutput(nonce)
        self._is_stopped = False
        process = self._process = self._start(spec, run_key, nonce)
        try:
            if self._is_stopped:  # while the process was started and was not known yet
                self.stop()
            assert process.stdout is not None
            for item in output.sort(bounded_lines(process.stdout)):
                if isinstance(item, JobProgress):
                    on_progress(item)
                else:
                    item.tell(self._log)
            exit_code = process.wait()
        finally:
            self.stop()
            if process.stdout is not None:
                process.stdout.close()
        if output.report is None:
            raise JobLost(what_ended("The job", exit_code), output.last_lines)
        return output.report

    def stop(self) -> None:
        self._is_stopped = True
        process, self._process = self._process, None
        if process is not None:
            end_process_group(process)

    def _start(self, spec: JobSpec, run_key: str | None, nonce: str) -> subprocess.Popen[str]:
        environment = job_environment(
            self._storage_options,
            self._spark_master,
            run_key=run_key,
            output_nonce=nonce,
            **self._environment,
        )
        try:
            return subprocess.Popen(
                [*self._command, "--spec", spec.to_json()],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                start_new_session=True,
            )
        except OSError as error:
            raise JobCannotStart(
                f"The job cannot be started ({error}). Check this worker's Python."
            ) from error


def end_process_group(process: subprocess.Popen[str], seconds: float = _SECONDS_TO_END) -> None:
    """End a process, which leads its group, and all that it has started: first by SIGTERM, then by SIGKILL."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            process.wait(seconds)
        os.killpg(process.pid, signal.SIGKILL)


def what_ended(what: str, exit_code: int | None) -> str:
    """Say how a process ended that left no report.

    :param what: the process, for people.
    """
    number = -exit_code if exit_code is not None and exit_code < 0 else 0
    if number:
        name = signal.Signals(number).name if number in set(signal.Signals) else str(number)
        hint = " Often this is the machine running out of memory." if name == "SIGKILL" else ""
        return f"{what} was ended by {name} before it could report.{hint}"
    return f"{what} ended with exit code {exit_code} and without a report."
