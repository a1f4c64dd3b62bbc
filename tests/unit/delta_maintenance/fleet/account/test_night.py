from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.fleet.nights import MONDAY_EVENING_MS, decided, night_of, successes, trusted
from tests.support.fleet.table_figures import TableFigures
from tests.support.repetition import examples

from delta_maintenance.contract import JobReport
from delta_maintenance.fleet.account.night import next_history, outcome_of
from delta_maintenance.fleet.decision.document import Decision
from delta_maintenance.fleet.history import MAX_RUNS, FleetHistory
from delta_maintenance.units import DAY_MS

GIB = 1 << 30
#: No work of the test costs 128 times as much as other work, and 14 windows double its value.
_LONGEST_WAIT = 7 * 14


def figures(gib: int, files: int) -> TableFigures:
    return TableFigures(num_small=files, small_bytes=gib * GIB)


@given(st.lists(st.tuples(st.integers(1, 10), st.integers(101, 10_000)), min_size=1, max_size=6))
@examples(10)
def test_no_work_that_fits_a_window_waits_for_ever(sizes: list[tuple[int, int]]) -> None:
    """Every table is unhealthy again each night, and each wants much of the budget."""
    written = trusted(budget={"read": "10GiB"}, within="30d")
    tables = [
        figures(gib, files).surveyed(f"s3://lake/{n}", MONDAY_EVENING_MS)
        for n, (gib, files) in enumerate(sizes)
    ]
    history, waits = FleetHistory(), dict.fromkeys((table.table for table in tables), 0)
    for night in range(2 * _LONGEST_WAIT):
        decision = decided(written, tables, MONDAY_EVENING_MS + night * DAY_MS, history)
        history = next_history(night_of(written, tables, history, decision, successes(decision)))
        done = {unit.table for unit in decision.units}
        waits = {name: 0 if name in done else waited + 1 for name, waited in waits.items()}
        assert max(waits.values()) <= _LONGEST_WAIT + len(tables)


def test_a_second_run_of_a_window_has_what_the_first_has_left() -> None:
    written = trusted(budget={"read": "10GiB"})
    tables = [figures(4, 500).surveyed(f"s3://lake/{n}", MONDAY_EVENING_MS) for n in range(3)]
    first = decided(written, tables)
    history = next_history(night_of(written, tables, FleetHistory(), first, successes(first)))
    second = decided(written, tables, MONDAY_EVENING_MS + 60_000, history)
    assert (len(first.units), len(second.units)) == (2, 0)
    assert _read(second) == (8 * GIB, 0)


def _read(decision: Decision) -> tuple[float, float]:
    (found,) = (one for one in decision.budget if one.resource == "read")
    return found.spent, found.planned


def test_a_giant_is_done_in_parts_beside_the_others() -> None:
    written = trusted(budget={"read": "10GiB"})
    tables = [
        figures(1000, 50_000).surveyed("s3://lake/giant", MONDAY_EVENING_MS),
        figures(2, 200).surveyed("s3://lake/small", MONDAY_EVENING_MS),
    ]
    units = {unit.table: unit for unit in decided(written, tables).units}
    assert units["s3://lake/giant"].operations[0].options["max_bytes"] == 5 * GIB
    assert "max_bytes" not in units["s3://lake/small"].operations[0].options


def test_a_deletion_is_announced_by_one_night_and_done_by_the_next() -> None:
    written = trusted()
    tables = [TableFigures(num_large=1, large_bytes=GIB, reclaimable=(9, 9 * GIB)).surveyed("t", 0)]
    first = decided(written, tables)
    assert (first.units, [one.reason for one in first.postponed]) == ((), ["announced"])
    history = next_history(night_of(written, tables, FleetHistory(), first, []))
    (unit,) = decided(written, tables, MONDAY_EVENING_MS + DAY_MS, history).units
    assert [work.operation for work in unit.operations] == ["vacuum"]


def test_a_table_larger_than_any_limit_does_not_stop_the_others() -> None:
    tables = [TableFigures(num_large=1, large_bytes=1 << 62).surveyed("s3://lake/1", MONDAY_EVENING_MS)]
    assert [one.reason for one in decided(trusted(), tables).postponed] == ["healthy"]


def test_the_requests_of_a_run_correct_the_next_forecast() -> None:
    """Each night takes three times as many as the log lets expect. The forecast comes to that, also when the first nights are forgotten."""
    written, table = trusted(), figures(4, 500).surveyed("s3://lake/1", MONDAY_EVENING_MS)
    history, forecasts = FleetHistory(), []
    for night in range(MAX_RUNS + 5):
        decision = decided(written, [table], MONDAY_EVENING_MS + night * DAY_MS, history)
        (work,) = decision.units[0].operations
        forecasts.append(work.cost.requests / work.by_log.requests)
        report = JobReport(
            "optimize", table.table, "committed", "run", requests=round(3 * work.by_log.requests)
        )
        outcome = outcome_of(table.table, work, report, 1)
        history = next_history(night_of(written, [table], history, decision, [outcome]))
    assert forecasts[:3] == pytest.approx([1, 2, 2.5], rel=0.01)
    assert forecasts[MAX_RUNS:] == pytest.approx([3] * 5, rel=0.01)


def test_the_runs_of_one_night_report_and_announce_once() -> None:
    """By the policy's window: 22:00 to 23:59 is one night, also with a run before it, and the next evening another one."""
    written = trusted(
        window="22:00-23:59 UTC", trust={"new_table": "report", "after": "2 reports", "deletions": "auto"}
    )
    tables = [TableFigures(num_large=1, large_bytes=GIB, reclaimable=(9, 9 * GIB)).surveyed("t", 0)]
    history, reports = FleetHistory(), []
    reasons: list[list[str]] = []
    for minutes in (-60, 0, 30, 24 * 60, 24 * 60 + 30, 48 * 60):
        decision = decided(written, tables, MONDAY_EVENING_MS + minutes * 60_000, history)
        reasons.append([one.reason for one in decision.postponed] or ["due"])
        history = next_history(night_of(written, tables, history, decision, []))
        reports.append(history.tables["t"].reports)
    assert reports == [1, 1, 1, 2, 2, 3]
    assert reasons == [*[["reported"]] * 4, ["due"], ["due"]]


def test_where_the_window_is_always_open_each_run_is_a_night() -> None:
    tables = [TableFigures(num_large=1, large_bytes=GIB, reclaimable=(9, 9 * GIB)).surveyed("t", 0)]
    first = decided(trusted(), tables)
    history = next_history(night_of(trusted(), tables, FleetHistory(), first, []))
    second = decided(trusted(), tables, MONDAY_EVENING_MS + 60_000, history)
    assert [unit.table for unit in second.units] == ["t"]
