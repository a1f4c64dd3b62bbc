from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.support.fleet.nights import MONDAY_EVENING_MS, decided, night_of, outcome, trusted
from tests.support.fleet.table_figures import TableFigures
from tests.support.repetition import examples

from delta_maintenance.fleet.account.night import next_history
from delta_maintenance.fleet.decision.held_files import held_files, with_forgotten_files
from delta_maintenance.fleet.history import FleetHistory, TableHistory
from delta_maintenance.health.facts import CommitFact
from delta_maintenance.units import DAY_MS

GIB = 1 << 30
RETENTION_DAYS = 7


def vacuum_at(days: list[int]) -> tuple[CommitFact, ...]:
    return tuple(CommitFact(day, day * DAY_MS, "VACUUM START", None) for day in days)


@given(st.lists(st.tuples(st.integers(0, 9), st.booleans()), min_size=1, max_size=60))
@examples(200)
def test_what_checkpoints_drop_is_counted_once(days: list[tuple[int, bool]]) -> None:
    """Each day removes some bytes, at its noon, is surveyed at its end, and may end with a VACUUM by someone else."""
    history, vacuums = TableHistory(0), list[int]()
    removed: list[int] = []
    for day, (size, is_vacuumed) in enumerate(days, 1):
        removed.append(size)
        held = sum(removed[-RETENTION_DAYS:])
        figures = TableFigures(held_bytes=held, commits=vacuum_at(vacuums))
        facts = figures.surveyed("t", day * DAY_MS).facts
        deleted_days = max([0, *vacuums]) - RETENTION_DAYS
        there = sum(removed[max(deleted_days, 0) : max(day - RETENTION_DAYS, 0)])
        newest = sum(removed[max(day - 2 * RETENTION_DAYS, 0) : max(day - RETENTION_DAYS, 0)])
        counted = with_forgotten_files(facts, history).removed.reclaimable.size_bytes
        assert (
            there - newest
            <= counted
            <= there + sum(removed[max(deleted_days - RETENTION_DAYS, 0) : max(deleted_days, 0)])
        )
        history = replace(history, held=held_files(facts, history))
        if is_vacuumed:
            vacuums.append(day)


def test_a_table_with_a_checkpoint_each_night_comes_to_its_vacuum() -> None:
    """It removes a GiB a day, and the log tells of no more than one GiB that is old enough."""
    written = trusted()
    history, vacuumed = FleetHistory(), list[int]()
    for day in range(100):
        now_ms = MONDAY_EVENING_MS + day * DAY_MS
        figures = TableFigures(
            num_large=1, large_bytes=100 * GIB, reclaimable=(1, GIB), held_bytes=RETENTION_DAYS * GIB
        )
        tables = [figures.surveyed("t", now_ms)]
        decision = decided(written, tables, now_ms, history)
        done = [outcome(unit, work, now_ms) for unit in decision.units for work in unit.operations]
        vacuumed += [day for one in done if one.run.operation == "vacuum"]
        history = next_history(night_of(written, tables, history, decision, done))
    # The limit is 30 % of the live bytes.
    gaps = [later - earlier for earlier, later in pairwise(vacuumed)]
    assert vacuumed
    assert all(30 <= gap <= 30 + 2 * RETENTION_DAYS for gap in gaps)
