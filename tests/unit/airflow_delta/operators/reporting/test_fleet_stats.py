"""The gauges of a fleet."""

from __future__ import annotations

from tests.support.fleet.nights import MONDAY_EVENING_MS, trusted
from tests.support.fleet.views import GIB, next_night, tables_of

from airflow_delta.operators.reporting.fleet_stats import fleet_gauges
from delta_maintenance.fleet.account.view import view_of
from delta_maintenance.fleet.decision.holds import Hold


def test_the_gauges_are_those_of_the_night() -> None:
    written = trusted(budget={"read": "4GiB"})
    holds = (Hold("pause", "**/table_0003", "audit"),)
    night = next_night(written, tables_of(5), MONDAY_EVENING_MS, holds=holds, took=3.0)
    gauges = fleet_gauges(view_of(night, written))
    expected = {
        "tables": 5,
        "tables_unhealthy": 3,
        "tables_unread": 1,
        "tables_late": 0,
        "tables_paused": 1,
        "tables_waiting": 1,
        "new_failures": 1,
        "operations_done": 1,
        "operations_failed": 0,
        "over_budget": 1,
        "reclaimable_bytes": 4 * GIB,
        "small_files": 151,
        "run_timestamp_seconds": MONDAY_EVENING_MS // 1000 + 3600,
    }
    assert {name: gauges[name] for name in expected} == expected
    assert gauges["read_budget_ratio"] == 1.5
    assert "worker_hours_budget_ratio" not in gauges
