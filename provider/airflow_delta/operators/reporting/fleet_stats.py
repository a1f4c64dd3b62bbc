"""Gauges of a fleet for Airflow's metrics (StatsD or OpenTelemetry), once for each run.

The name of each is ``delta.fleet.<figure>``, and the fleet is the tag ``fleet``, the name of its asset. Plain StatsD has no tags, so there it is
part of the name: ``delta.fleet.<figure>.<fleet>``.
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

from airflow_delta.operators.reporting.table_stats import MAX_LABEL, is_without_tags

if TYPE_CHECKING:
    from delta_maintenance.fleet.account.view import FleetView

log = logging.getLogger(__name__)

PREFIX = "delta.fleet"


def gauge_fleet(view: FleetView, fleet: str) -> None:
    """Send the figures of a night. A failure is logged and never fails the task.

    :param fleet: name of the fleet's asset.
    """
    try:
        # Imported here, since a DAG file needs no metrics.
        from airflow.sdk.observability import stats

        label = re.sub(r"[^A-Za-z0-9_-]", "_", fleet)[:MAX_LABEL]
        ending, tags = (f".{label}", {}) if is_without_tags() else ("", {"fleet": label})
        for name, value in fleet_gauges(view).items():
            stats.gauge(f"{PREFIX}.{name}{ending}", value, tags=tags)
    except Exception:
        log.warning("The figures of the fleet could not be sent to Airflow's metrics.", exc_info=True)


def fleet_gauges(view: FleetView) -> Mapping[str, float]:
    """The gauges of a night, by name."""
    from delta_maintenance.fleet.decision.document import NEEDS_A_PERSON

    figures = view.figures
    left = Counter(reason for one in view.tables for reason in {left.reason for left in one.left})
    alerts = {one.kind: one.num_tables for one in view.alerts}
    return {
        "tables": figures.num_tables,
        "tables_unhealthy": figures.num_unhealthy,
        "tables_unread": figures.num_unread,
        "tables_late": alerts.get("late", 0),
        "tables_paused": left["paused"],
        "tables_waiting": sum(left[reason] for reason in NEEDS_A_PERSON),
        "num_files": figures.num_files,
        "small_files": sum(one.small_files or 0 for one in view.tables),
        "size_bytes": figures.size_bytes,
        "reclaimable_bytes": figures.reclaimable_bytes,
        "operations_done": figures.num_done,
        "operations_failed": figures.num_failed,
        "new_failures": alerts.get("failed", 0),
        "over_budget": int("over_budget" in alerts),
        "run_timestamp_seconds": view.finished_ms // 1000,
        **{
            f"{one.resource}_budget_ratio": one.used / one.limit
            for one in view.budget
            if one.limit is not None
        },
    }
