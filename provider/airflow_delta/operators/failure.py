"""Turns the errors of a job into Airflow's exceptions.

An error that a repetition cannot cure fails the task for good (``AirflowFailException``): the table or the request was refused, a
connection or a program is missing, or the report says that the error is not retryable. Every other error is a plain failure, and
the user's `retries` decide.
"""

from __future__ import annotations

from typing import NoReturn

from airflow.sdk.exceptions import AirflowException, AirflowFailException

from airflow_delta.runners.job_runner import JobError
from delta_log.printable import printable
from delta_maintenance.contract import ErrorReport, JobReport


def airflow_exception(error: Exception) -> Exception:
    """The exception of a job that has left no report."""
    if isinstance(error, JobError) and not error.retryable:
        return AirflowFailException(str(error))
    return AirflowException(str(error))


def raise_for(report: JobReport, operation: str, table: str) -> None:
    """
    :raises AirflowFailException: the job failed, and another try would fail, too.
    :raises AirflowException: the job failed.
    """
    error = report.error
    if error is None and report.status != "failed":
        return
    raise_for_error(error or ErrorReport(), operation, table)


def raise_for_error(error: ErrorReport, operation: str, table: str) -> NoReturn:
    """
    :raises AirflowFailException: another try would fail, too.
    :raises AirflowException: another try may succeed.
    """
    problem = f"{operation.upper()} of {table}: {error.message or 'failed without saying why.'}"
    if error.type:
        problem = f"{problem} [{error.type}]"
    problem = printable(problem)
    if error.kind == "refused" or not error.retryable:
        raise AirflowFailException(problem)
    raise AirflowException(problem)
