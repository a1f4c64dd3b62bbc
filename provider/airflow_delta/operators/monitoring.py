"""Tells the page *Delta tables* what a task has done or read (:mod:`airflow_delta.monitoring`).

A run that ends well is an event of one asset that all tables share. It is not the maintenance asset: a reading of health, or a run
with nothing to do, must not start the DAGs that follow maintenance. A run that fails leaves an XCom, since Airflow registers no
event of a task that fails.

The setting ``[delta] monitoring`` turns both off. What cannot be told is logged, and does not fail the task. So a task asks first
whether the asset is there: Airflow 3.3 marks tasks failed that end in the moment when an event of another one makes it
(:mod:`airflow_delta.monitoring.asset_rows`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, cast

from airflow.sdk import Asset
from airflow.sdk.configuration import conf
from airflow.sdk.exceptions import AirflowRuntimeError, ErrorType

from airflow_delta.assets import MONITORING_ALIAS, MONITORING_ASSET
from airflow_delta.monitoring.record import FAILURE_KEY, record_of_health, record_of_report, record_of_sight
from airflow_delta.runners.task_log import report_lines
from delta_log.redaction import redact
from delta_maintenance.contract import ErrorReport, JobReport

if TYPE_CHECKING:
    from airflow.sdk import Context


class MonitoredTask(Protocol):
    """What this module needs of an operator."""

    outlets: list[Any]

    @property
    def log(self) -> Any: ...


def add_monitoring_outlet(operator: MonitoredTask) -> None:
    """Let an operator emit to the page's asset; Airflow drops events through an alias that is no outlet."""
    if MONITORING_ALIAS not in operator.outlets:
        operator.outlets.append(MONITORING_ALIAS)


def tell_run(context: Context, report: JobReport, operator: MonitoredTask) -> None:
    """Tell of a run that ended well."""
    _emit(context, operator, lambda: record_of_report(report, list(report_lines(report))))


def tell_health(context: Context, document: Mapping[str, Any], operator: MonitoredTask) -> None:
    """Tell of a reading of health."""
    _emit(context, operator, lambda: record_of_health(document))


def tell_sight(context: Context, table: str, version: int | None, operator: MonitoredTask) -> None:
    """Tell that a sensor has seen what it waited for in a table."""
    _emit(context, operator, lambda: record_of_sight(table, version))


def tell_failure(
    context: Context, operation: str, table: str, error: ErrorReport | Exception, operator: MonitoredTask
) -> None:
    """Tell that a run failed.

    :param error: an exception where the job has left no report.
    """
    if isinstance(error, Exception):
        error = ErrorReport(type(error).__name__, redact(str(error)))
    report = JobReport(operation, table, "failed", error=error)

    def push() -> None:
        context["ti"].xcom_push(key=FAILURE_KEY, value=record_of_report(report, []))

    _unless_off(operator, push)


def _emit(context: Context, operator: MonitoredTask, record: Callable[[], dict[str, Any]]) -> None:
    def add() -> None:
        add_monitoring_outlet(operator)
        accessor = context["outlet_events"][MONITORING_ALIAS]
        try:
            # By reference, so that Airflow looks for the asset and does not make it.
            accessor.add(cast("Any", Asset.ref(name=MONITORING_ASSET.name)), extra=record())
        except AirflowRuntimeError as error:
            if error.error.error != ErrorType.ASSET_NOT_FOUND:
                raise
            operator.log.warning(
                "The page Delta tables is not told of this run: Airflow has no asset %s. The scheduler makes it when it starts; install "
                "this provider there, too, and restart it. Or set [delta] monitoring = False.",
                MONITORING_ASSET.name,
            )

    _unless_off(operator, add)


def _unless_off(operator: MonitoredTask, tell: Callable[[], None]) -> None:
    try:
        if conf.getboolean("delta", "monitoring", fallback=True):
            tell()
    except Exception:
        operator.log.warning("The page Delta tables could not be told of this run.", exc_info=True)
