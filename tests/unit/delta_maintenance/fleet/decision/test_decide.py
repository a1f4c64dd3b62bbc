from __future__ import annotations

import random
from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.support.fleet.nights import MONDAY_EVENING_MS, decided, night_of, successes, trusted
from tests.support.fleet.strategies import fleets, histories, policies, surveyed
from tests.support.fleet.table_figures import TableFigures
from tests.support.repetition import examples

from delta_maintenance.fleet.account.night import next_history
from delta_maintenance.fleet.decision.budget import spent_before
from delta_maintenance.fleet.decision.document import Decision, WorkUnit
from delta_maintenance.fleet.decision.due import DELETIONS, ORDER
from delta_maintenance.fleet.decision.forecast import STAND_IN_PRICES, price
from delta_maintenance.fleet.facts import SurveyedTable, UnreadTable
from delta_maintenance.fleet.history import Cost, FleetHistory
from delta_maintenance.fleet.policy.reading import WrittenPolicy
from delta_maintenance.units import DAY_MS

Tables = list[SurveyedTable | UnreadTable]
APPROVALS = st.dictionaries(
    st.integers(0, 5).map(lambda number: f"s3://lake/{number}"),
    st.just(("vacuum", "cleanup-log")),
    max_size=6,
)


def needs(cost: Cost, written: WrittenPolicy) -> dict[str, float]:
    return {
        "read": cost.read_bytes,
        "worker_hours": cost.worker_seconds / 3600,
        "requests": cost.requests,
        "cost": price(cost, written.policy.prices or STAND_IN_PRICES),
    }


def limits(written: WrittenPolicy) -> dict[str, float]:
    budget = written.policy.budget
    found = {name: getattr(budget, name) for name in ("read", "worker_hours", "requests", "cost")}
    return {name: float(limit) for name, limit in found.items() if limit is not None}


def total(costs: list[Cost]) -> Cost:
    found = Cost()
    for cost in costs:
        found = found.plus(cost)
    return found


@given(fleets(), histories(), policies())
@examples(200)
def test_no_resource_of_the_budget_is_exceeded(
    tables: Tables, history: FleetHistory, written: WrittenPolicy
) -> None:
    decision = decided(written, tables, history=history)
    spent = spent_before(written.policy, history, decision.window)
    assert decision.window[1] > decision.window[0]
    planned = total([unit.cost for unit in decision.units])
    for name, limit in limits(written).items():
        used = needs(spent, written)[name]
        taken = needs(planned, written)[name]
        assert taken <= max(limit - used, 0) * (1 + 1e-9) + limit * 1e-9, name


@given(fleets(), histories(), policies(), APPROVALS)
@examples(300)
def test_every_table_has_one_unit_or_a_reason(
    tables: Tables, history: FleetHistory, written: WrittenPolicy, approved: Mapping[str, tuple[str, ...]]
) -> None:
    decision = decided(written, tables, history=history, approved=approved)
    worked_on = [unit.table for unit in decision.units]
    explained = {one.table for one in decision.postponed}
    assert len(worked_on) == len(set(worked_on))
    assert {table.table for table in tables} == {*worked_on} | explained
    assert all(one.why for one in decision.postponed)
    for unit in decision.units:
        names = [work.operation for work in unit.operations]
        assert names == sorted(set(names), key=ORDER.index)
        assert names
        left_out = {name for one in decision.postponed if one.table == unit.table for name in one.operations}
        assert not left_out & set(names)
        assert unit.not_before_ms >= decision.decided_ms
    assert [unit.score for unit in decision.units] == sorted(
        (unit.score for unit in decision.units), reverse=True
    )


@given(fleets(), histories(), policies(), APPROVALS)
@examples(300)
def test_nothing_is_deleted_that_was_not_announced_measured_and_approved(
    tables: Tables, history: FleetHistory, written: WrittenPolicy, approved: Mapping[str, tuple[str, ...]]
) -> None:
    decision = decided(written, tables, history=history, approved=approved)
    assert written.policy.trust is not None
    facts = {table.table: table for table in tables}
    for unit in decision.units:
        for operation in {work.operation for work in unit.operations} & set(DELETIONS):
            table = facts[unit.table]
            assert isinstance(table, SurveyedTable)
            assert operation in history.tables[unit.table].announced
            assert written.policy.trust.deletions != "never"
            assert table.properties.get("delta-maintenance.deletions") != "never"
            if written.policy.trust.deletions == "approve":
                assert operation in approved[unit.table]
            if operation == "vacuum":
                assert table.facts.removed.looks is not None
        if facts[unit.table].table not in history.tables:
            assert not set(decision.announced.get(unit.table, ())) & {w.operation for w in unit.operations}


@given(fleets(), histories(), policies(), st.randoms())
@examples(100)
def test_the_order_of_the_tables_does_not_matter(
    tables: Tables, history: FleetHistory, written: WrittenPolicy, chance: random.Random
) -> None:
    shuffled = list(tables)
    chance.shuffle(shuffled)
    names = list(history.tables)
    chance.shuffle(names)
    other = replace(history, tables={name: history.tables[name] for name in names})
    assert decided(written, tables, history=history) == decided(written, shuffled, history=other)


def unlimited(decision: Decision, but: str) -> list[WorkUnit]:
    return [unit for unit in decision.units if unit.table != but]


@given(fleets(), histories(), st.data())
@examples(100)
def test_a_change_of_one_table_does_not_reorder_the_others(
    tables: Tables, history: FleetHistory, data: st.DataObject
) -> None:
    written = trusted()
    if not tables:
        return
    changed = data.draw(st.sampled_from(tables)).table
    other = [data.draw(surveyed(changed)) if table.table == changed else table for table in tables]
    before, after = (decided(written, found, history=history) for found in (tables, other))
    assert unlimited(before, changed) == unlimited(after, changed)


@given(fleets(), histories(), policies())
@examples(100)
def test_no_rewrite_takes_more_than_half_of_a_resource_if_it_has_parts(
    tables: Tables, history: FleetHistory, written: WrittenPolicy
) -> None:
    decision = decided(written, tables, history=history)
    for unit in decision.units:
        for work in unit.operations:
            if work.operation not in ("optimize", "purge") or "max_bytes" not in work.options:
                continue
            for name, limit in limits(written).items():
                assert needs(work.cost, written)[name] <= limit / 2 * (1 + 1e-9), name


@given(fleets(), policies(), st.integers(MONDAY_EVENING_MS, MONDAY_EVENING_MS + 400 * 86_400_000))
@examples(50)
def test_it_can_be_decided_at_any_moment(tables: Tables, written: WrittenPolicy, now_ms: int) -> None:
    decision = decided(written, tables, now_ms)
    assert decision.window[0] < decision.window[1]
    assert decision.window[1] > now_ms


def small(num_bytes: int, files: int = 200) -> TableFigures:
    return TableFigures(num_small=files, small_bytes=num_bytes)


def test_a_budget_that_is_short_makes_as_many_tables_healthy_as_it_can() -> None:
    written = trusted(budget={"read": "100GiB"})
    figures = [small(90 << 30, files=4000), *(small(5 << 30) for _ in range(20))]
    tables = [one.surveyed(f"s3://lake/{n}", MONDAY_EVENING_MS) for n, one in enumerate(figures)]
    assert {unit.table for unit in decided(written, tables).units} == {f"s3://lake/{n}" for n in range(1, 21)}


def test_expensive_work_waits_for_weeks_at_most_while_cheap_work_fills_every_window() -> None:
    written, history = trusted(budget={"read": "100GiB"}), FleetHistory()
    for night in range(60):
        now_ms = MONDAY_EVENING_MS + night * DAY_MS
        # The cheap tables are unhealthy again each evening.
        figures = [small(45 << 30), *(small(5 << 30) for _ in range(20))]
        tables = [one.surveyed(f"s3://lake/{n}", now_ms) for n, one in enumerate(figures)]
        decision = decided(written, tables, now_ms, history)
        if any(unit.table == "s3://lake/0" for unit in decision.units):
            break
        history = next_history(night_of(written, tables, history, decision, successes(decision)))
    # Nine times the price is a little more than three doublings, of 14 windows each.
    assert 28 < night < 59
