"""Figures of a job for Airflow's metrics (StatsD or OpenTelemetry), as the installation has configured them.

The name of each metric is ``delta.<operation>.<figure>``. Its tags are the tags of Airflow's own task metrics: ``dag_id``,
``task_id`` and, with teams, ``team_name``. The operation is part of the name and not a tag, since plain StatsD has no tags.

The figures tell of work that this try did. A try that finds its work done (``already_done``) has none: the try that did it has
told them, unless it was killed in between.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

from delta_maintenance.contract import JobReport

if TYPE_CHECKING:
    from airflow.sdk import Context

log = logging.getLogger(__name__)

#: By the name of the figure, the metrics of a report that it adds up.
FIGURES: Mapping[str, tuple[str, ...]] = {
    "files_rewritten": ("numRemovedFiles",),
    "bytes_rewritten": ("numRemovedBytes",),
    "files_written": ("numAddedFiles",),
    "bytes_written": ("numAddedBytes",),
    "rows_written": ("numOutputRows",),
    "files_deleted": ("numDeletedFiles", "numPurgedFiles"),
    "bytes_deleted": ("sizeOfDeletedData", "sizeOfPurgedData"),
}
CONFLICTS_LOST, DURATION = "conflicts_lost", "duration"
#: Statuses of reports whose metrics are not work that was done. One that failed may have committed batches.
_WITHOUT_WORK = ("already_done", "nothing_to_do", "planned", "needs_spark")


def counts_of(report: JobReport) -> dict[str, int]:
    """The counters of a report, by the names of the figures; no zeros but for its status, which is always counted once."""
    counts = {report.status: 1}
    if report.status not in _WITHOUT_WORK:
        for figure, names in FIGURES.items():
            value = sum(report.metrics.get(name, 0) for name in names)
            if value:
                counts[figure] = value
    lost = report.dropped_bins + (report.error is not None and report.error.kind == "conflict")
    return {**counts, CONFLICTS_LOST: lost} if lost else counts


def duration_ms(report: JobReport) -> int | None:
    """The duration of a job, by the clock of its machine."""
    if report.started_ms is None or report.finished_ms is None:
        return None
    return max(0, report.finished_ms - report.started_ms)


def count(context: Context, report: JobReport) -> None:
    """Send the figures of a report to Airflow's metrics. A failure is logged and never fails the task."""
    try:
        # Imported here, since a DAG file needs no metrics.
        from airflow.sdk.observability import stats

        instance = context["ti"]
        tags = getattr(instance, "stats_tags", None) or {
            "dag_id": instance.dag_id,
            "task_id": instance.task_id,
        }
        prefix = f"delta.{report.operation}"
        for figure, value in counts_of(report).items():
            stats.incr(f"{prefix}.{figure}", value, tags=tags)
        milliseconds = duration_ms(report)
        if milliseconds is not None:
            stats.timing(f"{prefix}.{DURATION}", milliseconds, tags=tags)
    except Exception:
        log.warning("The figures of the job could not be sent to Airflow's metrics.", exc_info=True)
