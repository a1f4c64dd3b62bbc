"""Makes the answers about fleets from what is kept of them. Texts of tables are shown without characters that do not show."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from airflow_delta.monitoring.fleet import shown, source_of
from airflow_delta.monitoring.fleets.queries import KeptFleet
from airflow_delta.monitoring.fleets.rows import TablesQuery, chosen, counts_of, groups_of, total_of
from airflow_delta.monitoring.record import table_id
from delta_maintenance.fleet.account.view import Alert, FleetView, TableNight
from delta_maintenance.fleet.decision.holds import Hold
from delta_maintenance.units import HOUR_MS, format_duration

#: Groups of one answer.
MAX_GROUPS = 100
#: A fleet whose runs came at an interval is missed when so many of them have passed without one.
_MISSED_INTERVALS = 2


def line_of(fleet: KeptFleet, now_ms: int) -> dict[str, Any]:
    """One fleet among others."""
    view = fleet.view
    return {
        "asset_id": fleet.asset_id,
        "asset": shown(fleet.asset),
        "broken": shown(fleet.broken),
        "figures": None if view is None else msgspec.to_builtins(view.figures),
        "alerts": [] if view is None else _plain(alerts_of(view, now_ms)),
        **source_of(fleet.source),
    }


def alerts_of(view: FleetView, now_ms: int) -> list[Alert]:
    """The alerts of a night, after the one that says that no other has followed it."""
    late_ms = now_ms - view.started_ms
    if view.interval_ms is None or late_ms <= max(_MISSED_INTERVALS * view.interval_ms, HOUR_MS):
        return list(view.alerts)
    ago, usual = (format_duration(period / 1000) for period in (late_ms, view.interval_ms))
    missed = Alert("not_run", f"The last run began {ago} ago. Runs came every {usual} before.")
    return [missed, *view.alerts]


def night_of(
    fleet: KeptFleet, view: FleetView, query: TablesQuery, group: str, now_ms: int
) -> dict[str, Any]:
    """A fleet and a page of its tables.

    :param group: ``owner`` or ``prefix``; empty: no groups.
    """
    tables = chosen(view.tables, query, now_ms)
    groups = groups_of(tables, group) if group else []
    return {
        **line_of(fleet, now_ms),
        "run_id_of_fleet": view.run_id,
        "started_ms": view.started_ms,
        "finished_ms": view.finished_ms,
        "source": shown(view.source),
        "interval_ms": view.interval_ms,
        "budget": _plain(view.budget),
        "next": msgspec.to_builtins(view.next),
        "trend": _plain(view.trend),
        "counts": counts_of(view.tables, now_ms),
        "total": len(tables),
        "offset": query.offset,
        "tables": [_row(one) for one in tables[query.offset : query.offset + query.limit]],
        "totals": msgspec.to_builtins(total_of("all", tables)),
        "groups": _plain(groups[:MAX_GROUPS]),
        "num_groups": len(groups),
        "holds": _holds(fleet.holds),
        "night_holds": _holds(view.holds),
        "broken_holds": shown(fleet.broken_holds),
    }


def _row(table: TableNight) -> dict[str, Any]:
    return {**_safe(msgspec.to_builtins(table)), "id": table_id(table.table)}


def _plain(values: Iterable[Any]) -> list[dict[str, Any]]:
    return [_safe(msgspec.to_builtins(one)) for one in values]


def _holds(holds: Iterable[Hold]) -> list[dict[str, Any]]:
    # Text as it was written: the page writes it back.
    return [msgspec.to_builtins(one) for one in holds]


def _safe(value: Any) -> Any:
    """A JSON value whose texts are safe to show."""
    if isinstance(value, str):
        return shown(value)
    if isinstance(value, dict):
        return {name: _safe(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_safe(one) for one in value]
    return value
