"""Decides what a run of a fleet does: a pure function of facts, policy, history and time.

1. Each table is looked at by itself: what is due (:mod:`~delta_maintenance.fleet.decision.due`), and what speaks against doing it now
   (:mod:`~delta_maintenance.fleet.decision.caution`). So a change of one table does not change what another one gets, but for the budget.
2. Work is ordered by its value for the money: what it saves, and that one more table is healthy. The priority of the table is a factor.
   So is waiting: it doubles the value with every 14 windows in which the work found no room, or with every 14 periods of ``within``
   if those are more. So no work that fits a window waits for ever.
3. The budget is filled in this order (:mod:`~delta_maintenance.fleet.decision.budget`).
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Collection, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from delta_log.errors import InvalidRequest
from delta_maintenance.fleet.decision.budget import (
    budget_window,
    fill_budget,
    night_since,
    spending,
    spent_before,
    total_cost,
)
from delta_maintenance.fleet.decision.caution import Situation, known_broken, why_not_now, why_not_operation
from delta_maintenance.fleet.decision.document import Decision, Postponed, Work, WorkUnit
from delta_maintenance.fleet.decision.due import DELETIONS, due_on, nearest_finding
from delta_maintenance.fleet.decision.forecast import STAND_IN_PRICES, price
from delta_maintenance.fleet.decision.held_files import with_forgotten_files
from delta_maintenance.fleet.decision.holds import Hold
from delta_maintenance.fleet.facts import SurveyedTable, UnreadTable
from delta_maintenance.fleet.history import FleetHistory
from delta_maintenance.fleet.policy.document import Policy, Prices
from delta_maintenance.fleet.policy.reading import WrittenPolicy
from delta_maintenance.fleet.policy.settings import DEFAULT_JITTER, settings_of

#: What value for the money counts at least and at most.
_LEAST_RATIO, _GREATEST_RATIO = 1e-3, 1e6
#: Windows, or periods of ``within``, with which waiting doubles the value of work.
_WINDOWS_OF_A_DOUBLING = 14
#: Delays end within the first of so many parts of a window.
_WINDOW_PARTS = 4


class FleetState(Struct, frozen=True):
    """All that a decision rests on, besides the policy.

    :param tables: tables and places as the survey found them.
    :param approved: operations that a person has approved for this run, by table.
    :param holds: what persons have said of tables since the policy was written.
    """

    tables: Sequence[SurveyedTable | UnreadTable]
    history: FleetHistory
    now_ms: int
    approved: Mapping[str, Collection[str]] = {}
    holds: Sequence[Hold] = ()


class _Verdict(Struct, frozen=True):
    """What was found about one table, before the budget."""

    unit: WorkUnit | None
    postponed: tuple[Postponed, ...]
    announced: tuple[str, ...] = ()
    is_unhealthy: bool = False


def decide(written: WrittenPolicy, state: FleetState) -> Decision:
    """
    :param written: the policy.
    :return: ordered work, and for every other table the reason.
    """
    policy = written.policy
    window = budget_window(policy, state.now_ms)
    tables = sorted(state.tables, key=lambda table: table.table)
    night_since_ms = night_since(policy, window)
    verdicts = {table.table: _verdict(written, state, table, night_since_ms) for table in tables}
    units = sorted(
        (verdict.unit for verdict in verdicts.values() if verdict.unit is not None),
        key=lambda unit: (-unit.score, unit.table),
    )
    spent = spent_before(policy, state.history, window)
    taken, passed_over = fill_budget(units, policy, spent)
    postponed = (*(one for verdict in verdicts.values() for one in verdict.postponed), *passed_over)
    return Decision(
        decided_ms=state.now_ms,
        window=window,
        units=tuple(taken),
        postponed=tuple(sorted(postponed, key=lambda one: (one.table, one.reason))),
        announced={name: verdict.announced for name, verdict in verdicts.items() if verdict.announced},
        unhealthy=tuple(name for name, verdict in verdicts.items() if verdict.is_unhealthy),
        budget=spending(policy, spent, taken),
        at_once=_at_once(policy, len(tables)),
        night_since_ms=night_since_ms,
    )


def _at_once(policy: Policy, num_tables: int) -> int:
    limit = None if policy.disruption is None else policy.disruption.at_once
    if limit is None or limit.tables is None:
        return max(num_tables, 1)
    return limit.tables.among(num_tables)


# -- one table -------------------------------------------------------------------------------------------------------


def _verdict(
    written: WrittenPolicy,
    state: FleetState,
    table: SurveyedTable | UnreadTable,
    night_since_ms: int | None,
) -> _Verdict:
    if isinstance(table, UnreadTable):
        return _Verdict(None, (_unread(written, table, state),))
    try:
        settings = settings_of(written, table.table, table.properties)
    except InvalidRequest as error:
        return _Verdict(None, (Postponed(table.table, "refused", str(error)),))
    history = state.history.of(table.table, state.now_ms)
    table = replace(table, facts=with_forgotten_files(table.facts, history))
    prices = written.policy.prices or STAND_IN_PRICES
    due = due_on(table, settings, history, prices)
    of = Situation(
        table=table,
        settings=settings,
        history=history,
        policy=written.policy,
        now_ms=state.now_ms,
        approved=state.approved.get(table.table, ()),
        holds=state.holds,
        night_since_ms=night_since_ms,
    )
    if not due.is_unhealthy:
        return _Verdict(None, (_healthy(of),))
    refused = tuple(of.postponed("refused", why, (name,)) for name, why in due.refusals.items())
    if not due.work:
        return _Verdict(None, refused, is_unhealthy=True)
    announced = tuple(work.operation for work in due.work if work.operation in DELETIONS)
    left_alone = why_not_now(of, tuple(work.operation for work in due.work))
    if left_alone is not None:
        return _Verdict(None, (*refused, left_alone), announced, is_unhealthy=True)
    unit, postponed = _unit(of, due.work, prices)
    return _Verdict(unit, (*refused, *postponed), announced, is_unhealthy=True)


def _unread(written: WrittenPolicy, table: UnreadTable, state: FleetState) -> Postponed:
    # Its properties are not known, so rules by property do not count.
    owner = settings_of(written, table.table, {}).owner
    known = known_broken(written.policy, state.holds, table.table, state.now_ms)
    if known is not None:
        return Postponed(table.table, "known_broken", f"{known} {table.error.message}", owner=owner)
    return Postponed(table.table, "unread", table.error.message, owner=owner)


def _healthy(of: Situation) -> Postponed:
    nearest = nearest_finding(of.table.facts, of.settings)
    if nearest is None:
        return of.postponed("healthy", "Nothing is near a limit.", ())
    code, share = nearest
    found = of.postponed("healthy", f"The nearest finding is {code}, at {share:.0%} of its limit.", ())
    return replace(found, nearest=code, nearest_share=share)


def _unit(of: Situation, due: tuple[Work, ...], prices: Prices) -> tuple[WorkUnit | None, list[Postponed]]:
    work, postponed = [], []
    for one in due:
        why_not = why_not_operation(of, one) or _not_worth_it(of, one, prices)
        if why_not is None:
            work.append(one)
        else:
            postponed.append(why_not)
    if not work:
        return None, postponed
    return _unit_of(of, tuple(work), prices), postponed


def _not_worth_it(of: Situation, work: Work, prices: Prices) -> Postponed | None:
    """Work that does not pay waits as long as the policy gives it time. Without prices nobody can say what pays."""
    costs = price(work.cost, prices)
    if of.policy.prices is None or work.value >= costs or of.now_ms >= of.deadline_ms:
        return None
    why = f"{work.operation.upper()} would cost {costs:.4g} and save {work.value:.4g} within a month."
    return of.postponed("not_worth_it", why, (work.operation,), of.deadline_ms)


def _unit_of(of: Situation, work: tuple[Work, ...], prices: Prices) -> WorkUnit:
    cost = total_cost(work)
    costs, value = price(cost, prices), sum(one.value for one in work)
    return WorkUnit(
        table=of.table.table,
        version=of.table.facts.version,
        operations=work,
        cost=cost,
        price=costs,
        value=value,
        score=_value_for_money(value + prices.healthy_table, costs)
        + of.settings.priority / 100
        + _doublings(of),
        not_before_ms=_not_before(of),
        owner=of.settings.owner,
    )


def _value_for_money(value: float, costs: float) -> float:
    """As a logarithm to the base of 2, within limits: so nothing is ahead of all others for more than some windows of waiting."""
    ratio = value / costs if costs > 0 else math.inf
    return math.log2(min(max(ratio, _LEAST_RATIO), _GREATEST_RATIO))


def _doublings(of: Situation) -> float:
    """How often waiting has doubled the value of the work. If it doubled faster, work that waits would be done by its age alone."""
    since_ms = of.history.waiting_since_ms
    late = 0 if since_ms is None else (of.now_ms - since_ms) // of.settings.within_ms
    return max(of.history.missed_windows, late, 0) / _WINDOWS_OF_A_DOUBLING


def _not_before(of: Situation) -> int:
    """A moment of the table's window that differs between tables and windows, and is the same for each of both."""
    opening = of.settings.window.opening(of.now_ms)
    assert opening is not None, "the table's window is open, or it would have been left alone"
    start_ms, end_ms = opening
    jitter_ms = DEFAULT_JITTER if of.policy.jitter is None else of.policy.jitter
    most_ms = min(jitter_ms, (end_ms - start_ms) // _WINDOW_PARTS)
    digest = hashlib.blake2b(f"{start_ms} {of.table.table}".encode(), digest_size=8).digest()
    return max(of.now_ms, start_ms + int.from_bytes(digest, "big") % (most_ms + 1))
