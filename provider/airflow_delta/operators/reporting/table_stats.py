"""Gauges of a table for Airflow's metrics (StatsD or OpenTelemetry): the figures that the page *Delta tables* shows.

The name of each is ``delta.table.<figure>``, and the table is the tags ``table`` and ``table_id``. Plain StatsD has no tags, so there
both are part of the name: ``delta.table.<figure>.<table>.<table_id>``. Neither DAG nor task is named, so that a table which two DAGs
look after has one value of each.

How many tables have gauges is bounded by ``[delta] table_metrics_limit``: of a mapped task, the first so many tables.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from airflow.sdk.configuration import conf

from airflow_delta.monitoring.record import HEALTH, STATUS_NUMBERS, table_id
from delta_log.storage.table_uri import one_spelling
from delta_maintenance.contract import JobReport
from delta_maintenance.contract_json import storable

if TYPE_CHECKING:
    from airflow.sdk import Context

log = logging.getLogger(__name__)

PREFIX = "delta.table"
#: By the name of the figure, its place in the facts of a reading of health.
FACTS: Mapping[str, tuple[str, ...]] = {
    "size_bytes": ("sizeInBytes",),
    "num_files": ("numFiles",),
    "small_files": ("optimize", "numFilesToMerge"),
    "deleted_rows_ratio": ("deletedRowsRatio",),
    "commits_since_checkpoint": ("log", "numCommitsSinceCheckpoint"),
    "reclaimable_bytes": ("removedFiles", "reclaimable", "sizeInBytes"),
}
STATUS, FINDINGS = "status", "findings"
#: By operation: whether its newest try failed (1) or not (0), and when it ended well.
FAILED, TIMESTAMP = "{}_failed", "{}_timestamp_seconds"
#: Longest ``table``. Airflow drops a metric if its name and tags have more than 250 characters.
MAX_LABEL = 100
DEFAULT_LIMIT = 1_000
#: Statuses of reports that say nothing about the table.
_SILENT = ("planned", "needs_spark", "begun")


def gauge_health(context: Context, document: Mapping[str, Any]) -> None:
    """Send the figures of a reading of health."""
    _send(context, str(document["table"]), lambda: health_gauges(document, time.time()))


def gauge_report(context: Context, report: JobReport) -> None:
    """Send what a run says about its table."""
    _send(context, report.table, lambda: report_gauges(report, time.time()))


def gauge_failure(context: Context, operation: str, table: str) -> None:
    """Send that a run failed and left no report."""
    _send(context, table, lambda: {FAILED.format(operation): 1})


def health_gauges(document: Mapping[str, Any], now: float) -> dict[str, float]:
    """The gauges of a reading. A figure that it lacks is left out, and so is a status that this release does not know."""
    found = {name: _number(document.get("facts"), *path) for name, path in FACTS.items()}
    found[STATUS] = STATUS_NUMBERS.get(str(document.get("status")))
    findings = document.get("findings")
    found[FINDINGS] = len(findings) if isinstance(findings, list) else None
    return {
        **{name: value for name, value in found.items() if value is not None},
        **_went_well(HEALTH, now),
    }


def report_gauges(report: JobReport, now: float) -> dict[str, float]:
    """The gauges of a run; none of a dry run."""
    if report.status in _SILENT:
        return {}
    if report.status == "failed":
        return {FAILED.format(report.operation): 1}
    size = {
        "num_files": _number(report.table_size, "files_after"),
        "size_bytes": _number(report.table_size, "bytes_after"),
    }
    return {
        **{name: value for name, value in size.items() if value is not None},
        **_went_well(report.operation, now),
    }


def table_label(table: str) -> str:
    """A table's address in the characters that all of Airflow's backends take: ``s3/lake/sales/events``.

    It is not unique; ``table_id`` is.
    """
    address = one_spelling(str(storable(table)))
    plain = re.sub(r"[^A-Za-z0-9_./-]", "_", address.replace("://", "/", 1))
    return plain if len(plain) <= MAX_LABEL else f"...{plain[3 - MAX_LABEL :]}"


def _went_well(operation: str, now: float) -> dict[str, float]:
    return {FAILED.format(operation): 0, TIMESTAMP.format(operation): int(now)}


def _send(context: Context, table: str, gauges: Callable[[], Mapping[str, float]]) -> None:
    """A failure is logged and never fails the task."""
    try:
        # Imported here, since a DAG file needs no metrics.
        from airflow.sdk.observability import stats

        instance = context["ti"]
        if (getattr(instance, "map_index", -1) or 0) >= _limit():
            return
        label, identity = table_label(table), table_id(table)
        ending, tags = "", {"table": label, "table_id": identity}
        if is_without_tags():
            ending, tags = f".{re.sub('[./]', '_', label)}.{identity}", {}
        elif team := (getattr(instance, "stats_tags", None) or {}).get("team_name"):
            tags["team_name"] = team
        for name, value in gauges().items():
            stats.gauge(f"{PREFIX}.{name}{ending}", value, tags=tags)
    except Exception:
        log.warning("The figures of the table could not be sent to Airflow's metrics.", exc_info=True)


def _limit() -> int:
    return int(conf.getint("delta", "table_metrics_limit", fallback=DEFAULT_LIMIT))


def is_without_tags() -> bool:
    """Whether Airflow sends to plain StatsD, as :func:`airflow.sdk.observability.metrics.stats_utils.get_stats_factory` decides."""

    def has(name: str) -> bool:
        return bool(conf.getboolean("metrics", name, fallback=False))

    return has("statsd_on") and not has("statsd_datadog_enabled") and not has("statsd_influxdb_enabled")


def _number(value: Any, *path: str) -> float | None:
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return value if is_number else None
