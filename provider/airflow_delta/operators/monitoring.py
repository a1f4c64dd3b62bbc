"""Reports to the page *Delta tables* what a task has done or read (:mod:`airflow_delta.monitoring`).

A record goes into the state store of the task instance when the task knows the result, whether the run ended well or failed. Airflow
keeps it as long as the page shows it, unless the run of the DAG is deleted before.

The setting ``[delta] monitoring`` turns it off. A record that cannot be stored is logged, and does not fail the task.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Protocol

from airflow.sdk.configuration import conf

from airflow_delta.monitoring.record import (
    DEFAULT_DAYS,
    Source,
    key_of,
    read_record,
    record_of_health,
    record_of_report,
    record_of_sight,
)
from airflow_delta.runners.task_log import report_lines
from delta_log.redaction import redact
from delta_maintenance.contract import ErrorReport, JobReport

if TYPE_CHECKING:
    from airflow.sdk import Context


class MonitoredTask(Protocol):
    """What this module needs of an operator."""

    @property
    def log(self) -> Any: ...


def report_run(context: Context, report: JobReport, operator: MonitoredTask) -> None:
    """Report a run that ended well."""
    _store(context, operator, lambda: record_of_report(report, list(report_lines(report))))


def report_health(context: Context, document: Mapping[str, Any], operator: MonitoredTask) -> None:
    """Report a reading of health."""
    _store(context, operator, lambda: record_of_health(document))


def report_sight(context: Context, table: str, version: int | None, operator: MonitoredTask) -> None:
    """Report that a sensor has seen what it waited for in a table."""
    _store(context, operator, lambda: record_of_sight(table, version))


def report_failure(
    context: Context, operation: str, table: str, error: ErrorReport | Exception, operator: MonitoredTask
) -> None:
    """Report a run that failed.

    :param error: an exception where the job has left no report.
    """
    if isinstance(error, Exception):
        error = ErrorReport(type(error).__name__, redact(str(error)))
    report = JobReport(operation, table, "failed", error=error)
    _store(context, operator, lambda: record_of_report(report, []))


def _store(context: Context, operator: MonitoredTask, record: Callable[[], dict[str, Any]]) -> None:
    try:
        if not conf.getboolean("delta", "monitoring", fallback=True):
            return
        days = max(1, conf.getint("delta", "monitoring_days", fallback=DEFAULT_DAYS))
        instance, value = context["ti"], record()
        source = Source(instance.dag_id, instance.run_id, instance.task_id, _map_index(instance))
        key = key_of(read_record(value, source, 0), instance.try_number)
        context["task_state_store"].set(key, value, retention=timedelta(days=days))
    except Exception:
        operator.log.warning("The page Delta tables does not learn of this run.", exc_info=True)


def _map_index(instance: Any) -> int:
    return -1 if instance.map_index is None else int(instance.map_index)
