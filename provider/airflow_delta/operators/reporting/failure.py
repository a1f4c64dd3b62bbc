"""Turns the errors of a job into Airflow's exceptions.

An error that a repetition cannot cure fails the task for good (``AirflowFailException``): the table or the request was refused, a
connection or a program is missing, or the report says that the error is not retryable. Every other error is a plain failure, and
the user's `retries` decide.

A job knows its storage options and its Spark, and not from which connections of Airflow they come. Its messages get their names here.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NoReturn

from airflow.sdk.exceptions import AirflowException, AirflowFailException

from airflow_delta.runners.job_runner import JobError
from delta_log.errors import CREDENTIALS
from delta_log.printable import printable
from delta_maintenance.contract import ErrorReport, JobReport
from delta_maintenance.errors import (
    OperationLost,
    SparkFailed,
    SparkMisconfigured,
    SparkUnavailable,
    SparkUnreachable,
)

_OF_SPARK = {
    kind.__name__
    for kind in (SparkMisconfigured, SparkUnavailable, SparkFailed, SparkUnreachable, OperationLost)
}


def with_connection(message: str, delta_conn_id: str | None) -> str:
    """Name the connection, where a message speaks of the storage options of a table."""
    named = "a connection that delta_conn_id names (this task has none)"
    return message.replace(CREDENTIALS, named if delta_conn_id is None else f"connection {delta_conn_id!r}")


def is_of_spark(error: ErrorReport) -> bool:
    """Whether the remedy of an error is in Spark, or in the connection to it."""
    return error.type in _OF_SPARK


def with_spark_connection(error: ErrorReport, spark_conn_id: str, master: str | None) -> ErrorReport:
    """Add to the message of an error of Spark which Spark it was.

    :param master: master that the connection names; ``None``: not known.
    """
    where = (
        f"connection {spark_conn_id!r}"
        if master is None
        else f"connection {spark_conn_id!r}, master {master}"
    )
    return replace(error, message=f"{error.message} This is the Spark of {where}.")


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
