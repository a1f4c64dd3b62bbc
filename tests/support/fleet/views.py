"""Nights of a fleet as its page gets them: made by the real decision, of tables that are figures alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from delta_maintenance.contract import ErrorReport
from delta_maintenance.fleet.account.night import Night, next_history
from delta_maintenance.fleet.account.view import FleetView, view_of
from delta_maintenance.fleet.decision.holds import Hold
from delta_maintenance.fleet.facts import SurveyedTable, UnreadTable
from delta_maintenance.fleet.history import FleetHistory
from delta_maintenance.fleet.policy.reading import WrittenPolicy
from delta_maintenance.health.facts import CommitFact
from delta_maintenance.units import DAY_MS
from tests.support.fleet.nights import MONDAY_EVENING_MS, decided, night_of, outcome
from tests.support.fleet.table_figures import TableFigures

GIB = 1 << 30
#: What each of five tables after one another needs: nothing, OPTIMIZE, VACUUM, a purge, and one that cannot be read.
KINDS = 5


def tables_of(count: int, now_ms: int = MONDAY_EVENING_MS) -> list[SurveyedTable | UnreadTable]:
    """Tables ``s3://lake/<area>/table_<number>``."""
    return [_table(number, now_ms) for number in range(count)]


def _table(number: int, now_ms: int) -> SurveyedTable | UnreadTable:
    name = f"s3://lake/{('gold', 'silver', 'raw')[number % 3]}/table_{number:04}"
    kind = number % KINDS
    if kind == KINDS - 1 and number % 50 == 4:
        return UnreadTable(name, now_ms, ErrorReport("NotATable", f"{name} has no log.", "refused"))
    commits = (CommitFact(7, now_ms - (number % 40) * DAY_MS, "WRITE", "Apache-Spark/4.0"),)
    figures = TableFigures(num_large=3, large_bytes=3 * GIB, commits=commits, version=7)
    if kind == 1:
        figures = replace(figures, num_small=150 + number, small_bytes=(1 + number % 7) * GIB)
    if kind == 2:
        figures = replace(figures, reclaimable=(40 + number, 4 * GIB))
    if kind == 3:
        figures = replace(figures, deleted=0.4)
    return figures.surveyed(name, now_ms)


def next_night(
    written: WrittenPolicy,
    tables: Sequence[SurveyedTable | UnreadTable],
    now_ms: int,
    history: FleetHistory | None = None,
    *,
    holds: tuple[Hold, ...] = (),
    failing: Sequence[str] = (),
    took: float = 1.0,
) -> Night:
    """A night that is over: all work succeeded, but on the tables that are `failing`, and took as many times its forecast as `took`."""
    known = history or FleetHistory()
    decision = decided(written, tables, now_ms, known, holds=holds)
    outcomes = [
        outcome(unit, work, now_ms, kind="environment" if unit.table in failing else "", took=took)
        for unit in decision.units
        for work in unit.operations
    ]
    night = night_of(written, tables, known, decision, outcomes)
    return replace(night, holds=holds, finished_ms=now_ms + 3_600_000, is_finished=True)


def view_after(
    nights: int, written: WrittenPolicy, count: int, last_ms: int = MONDAY_EVENING_MS, **last: Any
) -> FleetView:
    """The view of the last of some nights over the same tables.

    :param last: arguments of the last :func:`next_night`.
    """
    history = FleetHistory()
    for back in range(nights - 1, 0, -1):
        now_ms = last_ms - back * DAY_MS
        history = next_history(next_night(written, tables_of(count, now_ms), now_ms, history))
    night = next_night(written, tables_of(count, last_ms), last_ms, history, **last)
    return view_of(night, written)
