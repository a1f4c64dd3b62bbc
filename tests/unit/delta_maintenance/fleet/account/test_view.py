"""A night table by table."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace
from tests.support.fleet.nights import MONDAY_EVENING_MS, trusted
from tests.support.fleet.views import GIB, next_night, tables_of, view_after

from delta_maintenance.fleet.account.night import NotBegun, next_history
from delta_maintenance.fleet.account.view import FleetView, view_of
from delta_maintenance.fleet.decision.holds import Hold
from delta_maintenance.units import DAY_MS, HOUR_MS


def states(view: FleetView) -> dict[str, str]:
    return {one.table.rpartition("_")[2]: one.state for one in view.tables}


def test_every_table_says_what_became_of_it_and_why() -> None:
    night = next_night(trusted(), tables_of(5), MONDAY_EVENING_MS, failing=["s3://lake/gold/table_0003"])
    view = view_of(night, trusted())
    assert states(view) == {
        "0000": "healthy",
        "0001": "done",
        "0002": "announced",
        "0003": "failed",
        "0004": "unread",
    }
    by_name = {one.table.rpartition("_")[2]: one for one in view.tables}
    (work,) = by_name["0001"].done
    assert (work.operation, work.forecast) == ("optimize", work.outcome)
    assert by_name["0003"].done[0].message == "it went wrong"
    assert by_name["0004"].left[0].why == "s3://lake/silver/table_0004 has no log."
    assert by_name["0001"].left_next[0].reason == "surveyed_first"
    assert by_name["0001"].value > 0
    assert by_name["0002"].written_ms == MONDAY_EVENING_MS - 2 * DAY_MS


def test_the_next_night_does_what_this_one_has_announced() -> None:
    view = view_after(2, trusted(), 5, last_ms=MONDAY_EVENING_MS)
    assert view.interval_ms == DAY_MS
    assert view.next.starts_ms == MONDAY_EVENING_MS + DAY_MS
    first = view_of(next_night(trusted(), tables_of(5), MONDAY_EVENING_MS), trusted())
    due = {one.table.rpartition("_")[2]: [work.operation for work in one.due_next] for one in first.tables}
    assert due["0002"] == ["vacuum"]
    assert first.next.num_tables == 1


def test_what_was_not_begun_says_so_even_if_the_run_was_killed() -> None:
    night = replace(next_night(trusted(), tables_of(5), MONDAY_EVENING_MS), outcomes=())
    late = NotBegun("s3://lake/gold/table_0003", "time", "The time of the run is over.")
    view = view_of(replace(night, not_begun=(late,)), trusted())
    why = {one.table.rpartition("_")[2]: one.left[0].why for one in view.tables if one.state == "not_begun"}
    assert why == {"0001": "The run ended before its turn.", "0003": "The time of the run is over."}


def test_a_window_that_took_more_than_its_budget_and_late_tables_are_alerts() -> None:
    written = trusted(budget={"read": "10GiB"}, within="12h")
    view = view_after(3, written, 40, took=1.5)
    kinds = {one.kind: one for one in view.alerts}
    assert kinds["over_budget"].why.startswith("The window took ")
    assert kinds["late"].num_tables == sum(
        one.deadline_ms is not None and one.deadline_ms < view.finished_ms for one in view.tables
    )
    (read,) = (one for one in view.budget if one.resource == "read")
    assert read.limit == 10 * GIB
    assert read.used > read.limit >= read.forecast
    assert "over_budget" in states(view).values()


def test_a_table_that_fails_each_night_is_late_and_one_that_is_let_wait_is_not() -> None:
    written = trusted(within="12h", trust={"new_table": "auto", "deletions": "approve"})
    broken = ["s3://lake/gold/table_0003"]
    first = next_night(written, tables_of(5), MONDAY_EVENING_MS, failing=broken)
    now_ms = MONDAY_EVENING_MS + DAY_MS
    view = view_of(next_night(written, tables_of(5), now_ms, next_history(first), failing=broken), written)
    assert {name: state for name, state in states(view).items() if name in ("0002", "0003")} == {
        "0002": "approval",
        "0003": "failed",
    }
    late = {one.table for one in view.tables if one.deadline_ms is not None}
    assert late == {"s3://lake/gold/table_0003"}
    assert [(one.kind, one.num_tables) for one in view.alerts] == [("late", 1)]


def test_new_failures_are_an_alert_once() -> None:
    first = view_of(next_night(trusted(), tables_of(5), MONDAY_EVENING_MS), trusted())
    assert [(one.kind, one.num_tables) for one in first.alerts] == [("failed", 1)]
    assert view_after(2, trusted(), 5).alerts == ()


def test_a_paused_fleet_does_nothing_in_this_night_and_in_the_next() -> None:
    view = view_after(2, trusted(), 5, holds=(Hold("pause", "**", "migration"),))
    assert states(view)["0001"] == "paused"
    assert view.next.num_tables == 0
    assert view.holds[0].why == "migration"


def test_a_view_of_three_thousand_tables_is_small() -> None:
    view = view_after(1, trusted(), 3_000)
    assert len(msgspec.json.encode(view)) < 4_000_000
    assert view.finished_ms - view.started_ms == HOUR_MS
