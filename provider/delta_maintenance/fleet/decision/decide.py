"""Decides what a run of a fleet does: a pure function of facts, policy, history and time.

1. Each table is looked at by itself: what is due (:mod:`~delta_maintenance.fleet.decision.due`), and what speaks against doing it now
   (:mod:`~delta_maintenance.fleet.decision.caution`). So a change of one table does not change what another one gets, but for the budget.
2. Work is ordered by value for its money. The priority of the table is a factor. So is waiting: it doubles with each window in which
   the work found no room, and again with each period of ``within`` that the table has been unhealthy. So no work that fits a window
   waits for ever.
3. The budget is filled in this order. What does not fit is passed over, and the next is tried; no resource is ever exceeded. A rewrite
   that is larger than half a budget is done in parts, so that one giant does not take the night of all others.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from delta_log.errors import InvalidRequest
from delta_maintenance.fleet.decision.caution import Situation, known_broken, why_not_now, why_not_operation
from delta_maintenance.fleet.decision.document import Decision, Postponed, Spending, Work, WorkUnit
from delta_maintenance.fleet.decision.due import DELETIONS, due_on, nearest_finding
from delta_maintenance.fleet.decision.forecast import STAND_IN_PRICES, price
from delta_maintenance.fleet.facts import SurveyedTable, UnreadTable
from delta_maintenance.fleet.history import Cost, FleetHistory, TableHistory
from delta_maintenance.fleet.policy.calendar import Window
from delta_maintenance.fleet.policy.document import Budget, Policy, Prices
from delta_maintenance.fleet.policy.reading import WrittenPolicy
from delta_maintenance.fleet.policy.settings import DEFAULT_JITTER, settings_of
from delta_maintenance.units import format_bytes, format_duration

#: The part of a window's bytes that one table may take, if it can be done in parts.
_LARGEST_PART = 0.5
#: Doubling ends here: the order is settled long before.
_MOST_DOUBLINGS = 60
_LEAST_PRICE = 1e-9
#: Work whose value is next to nothing still rises by waiting.
_LEAST_VALUE_FOR_MONEY = 1e-3


class FleetState(Struct, frozen=True):
    """All that a decision rests on, besides the policy.

    :param tables: tables and places as the survey found them.
    :param approved: operations that a person has approved for this run, by table.
    """

    tables: Sequence[SurveyedTable | UnreadTable]
    history: FleetHistory
    now_ms: int
    approved: Mapping[str, Collection[str]] = {}


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
    verdicts = [_verdict(written, state, table, window) for table in _in_order(state.tables)]
    units = sorted(
        (verdict.unit for verdict in verdicts if verdict.unit is not None),
        key=lambda unit: (-unit.score, unit.table),
    )
    spent = spent_since(state.history, window[0])
    taken, passed_over = _filled(units, policy, spent)
    postponed = (*(one for verdict in verdicts for one in verdict.postponed), *passed_over)
    at_once = None if policy.disruption is None else policy.disruption.at_once
    limit = None if at_once is None or at_once.tables is None else at_once.tables.among(len(state.tables))
    return Decision(
        decided_ms=state.now_ms,
        window=window,
        units=tuple(taken),
        postponed=tuple(sorted(postponed, key=lambda one: (one.table, one.reason))),
        announced={
            table.table: verdict.announced
            for table, verdict in zip(_in_order(state.tables), verdicts, strict=True)
            if verdict.announced
        },
        unhealthy=tuple(
            table.table
            for table, verdict in zip(_in_order(state.tables), verdicts, strict=True)
            if verdict.is_unhealthy
        ),
        budget=_spending(policy, spent, taken),
        at_once=limit or max(len(state.tables), 1),
    )


def _in_order(tables: Sequence[SurveyedTable | UnreadTable]) -> list[SurveyedTable | UnreadTable]:
    return sorted(tables, key=lambda table: table.table)


def budget_window(policy: Policy, now_ms: int) -> tuple[int, int]:
    """The window whose budget counts at a moment: the open one, or else the next one."""
    window = policy.window or Window.of("always")
    found = window.opening(window.next_opening(now_ms))
    assert found is not None
    return found


# -- one table -------------------------------------------------------------------------------------------------------


def _verdict(
    written: WrittenPolicy, state: FleetState, table: SurveyedTable | UnreadTable, window: tuple[int, int]
) -> _Verdict:
    if isinstance(table, UnreadTable):
        return _Verdict(None, (_unread(written.policy, table, state.now_ms),))
    try:
        settings = settings_of(written, table.table, table.properties)
    except InvalidRequest as error:
        return _Verdict(None, (Postponed(table.table, "refused", str(error)),))
    history = state.history.tables.get(table.table) or TableHistory(state.now_ms)
    prices = written.policy.prices or STAND_IN_PRICES
    due = due_on(table, settings, history, prices)
    of = Situation(
        table, settings, history, written.policy, state.now_ms, state.approved.get(table.table, ())
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
    unit, postponed = _unit(of, due.work, prices, window)
    return _Verdict(unit, (*refused, *postponed), announced, is_unhealthy=True)


def _unread(policy: Policy, table: UnreadTable, now_ms: int) -> Postponed:
    known = known_broken(policy, table.table, now_ms)
    if known is not None:
        return Postponed(
            table.table, "known_broken", f"{known.why}, until {known.until}. {table.error.message}"
        )
    return Postponed(table.table, "unread", table.error.message)


def _healthy(of: Situation) -> Postponed:
    nearest = nearest_finding(of.table.facts, of.settings)
    if nearest is None:
        return of.postponed("healthy", "Nothing is near a limit.", ())
    code, share = nearest
    found = of.postponed("healthy", f"The nearest finding is {code}, at {share:.0%} of its limit.", ())
    return replace(found, nearest=code, nearest_share=share)


def _unit(
    of: Situation, due: tuple[Work, ...], prices: Prices, window: tuple[int, int]
) -> tuple[WorkUnit | None, list[Postponed]]:
    work, postponed = [], []
    for one in due:
        why_not = why_not_operation(of, one) or _not_worth_it(of, one, prices)
        if why_not is None:
            work.append(one)
        else:
            postponed.append(why_not)
    if not work:
        return None, postponed
    return _unit_of(of, tuple(work), prices, window), postponed


def _not_worth_it(of: Situation, work: Work, prices: Prices) -> Postponed | None:
    """Work that does not pay waits as long as the policy gives it time. Without prices nobody can say what pays."""
    costs = price(work.cost, prices)
    due_ms = (of.history.unhealthy_since_ms or of.now_ms) + of.settings.within_ms
    if of.policy.prices is None or work.value >= costs or of.now_ms >= due_ms:
        return None
    why = f"{work.operation.upper()} would cost {costs:.4g} and save {work.value:.4g} within a month."
    return of.postponed("not_worth_it", why, (work.operation,), due_ms)


def _unit_of(of: Situation, work: tuple[Work, ...], prices: Prices, window: tuple[int, int]) -> WorkUnit:
    cost = _total(work)
    costs, value = price(cost, prices), sum(one.value for one in work)
    for_money = max(value / max(costs, _LEAST_PRICE), _LEAST_VALUE_FOR_MONEY)
    jitter_ms = DEFAULT_JITTER if of.policy.jitter is None else of.policy.jitter
    return WorkUnit(
        table=of.table.table,
        version=of.table.facts.version,
        operations=work,
        cost=cost,
        price=costs,
        value=value,
        score=for_money * of.settings.weight * 2.0 ** _doublings(of),
        not_before_ms=max(of.now_ms, window[0] + _delay(of.table.table, window[0], jitter_ms)),
        owner=of.settings.owner,
    )


def _total(work: Sequence[Work]) -> Cost:
    total = Cost()
    for one in work:
        total = total.plus(one.cost)
    return total


def _doublings(of: Situation) -> int:
    """How often waiting has doubled the weight of a table."""
    since = of.history.unhealthy_since_ms
    late = 0 if since is None else (of.now_ms - since) // of.settings.within_ms
    return int(min(of.history.missed_windows + late, _MOST_DOUBLINGS))


def _delay(table: str, window_ms: int, jitter_ms: int) -> int:
    """A delay that differs between tables and windows, and is the same for each of both."""
    digest = hashlib.blake2b(f"{window_ms} {table}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") % (jitter_ms + 1)


# -- the budget ------------------------------------------------------------------------------------------------------


class _Limits(Struct):
    """What is left of each resource of a budget; ``None``: it has no limit."""

    read: float | None
    worker_seconds: float | None
    requests: float | None
    cost: float | None

    @classmethod
    def of(cls, budget: Budget) -> _Limits:
        hours = budget.worker_hours
        return cls(budget.read, None if hours is None else hours * 3600, budget.requests, budget.cost)

    def lacking(self, cost: Cost, costs: float) -> tuple[str, float, float] | None:
        """The first resource that does not suffice: its name, what is needed and what is left."""
        needs = (cost.read_bytes, cost.worker_seconds, cost.requests, costs)
        for name, need in zip(self.__struct_fields__, needs, strict=True):
            left = getattr(self, name)
            if left is not None and need > left:
                return name, need, left
        return None

    def take(self, cost: Cost, costs: float) -> None:
        needs = (cost.read_bytes, cost.worker_seconds, cost.requests, costs)
        for name, need in zip(self.__struct_fields__, needs, strict=True):
            left = getattr(self, name)
            if left is not None:
                setattr(self, name, left - need)


def _filled(units: Sequence[WorkUnit], policy: Policy, spent: Cost) -> tuple[list[WorkUnit], list[Postponed]]:
    """Fill the budget: the units that fit, and what is passed over."""
    prices = policy.prices or STAND_IN_PRICES
    whole, left = _Limits.of(policy.budget), _Limits.of(policy.budget)
    left.take(spent, price(spent, prices))
    taken: list[WorkUnit] = []
    passed: list[Postponed] = []
    for wanted in units:
        unit, dropped = _fitting(wanted, whole, prices)
        passed += dropped
        lack = left.lacking(unit.cost, unit.price)
        if unit.operations and lack is None:
            left.take(unit.cost, unit.price)
            taken.append(unit)
        elif lack is not None:
            passed.append(_passed_over(unit, "over_budget", lack))
    return taken, passed


def _fitting(unit: WorkUnit, whole: _Limits, prices: Prices) -> tuple[WorkUnit, list[Postponed]]:
    """A unit without what no window has room for, and with rewrites in parts that leave room for others."""
    work, dropped = [], []
    for one in unit.operations:
        part = _in_part(one, whole.read)
        lack = whole.lacking(part.cost, price(part.cost, prices))
        if lack is None:
            work.append(part)
        else:
            dropped.append(_passed_over(replace(unit, operations=(one,)), "never_fits", lack))
    cost = _total(work)
    kept = replace(unit, operations=tuple(work), cost=cost, price=price(cost, prices))
    lack = whole.lacking(kept.cost, kept.price)
    if lack is None or len(work) < 2:
        return kept, dropped
    # Each alone would fit, and all together would not in any window: the first ones are done now.
    return _fitting(replace(kept, operations=tuple(work[:-1])), whole, prices)


def _in_part(work: Work, read_bytes: float | None) -> Work:
    """A rewrite that takes more than a part of a window's bytes, as far as the part goes."""
    if work.operation not in ("optimize", "purge") or read_bytes is None:
        return work
    most = read_bytes * _LARGEST_PART
    if work.cost.read_bytes <= most:
        return work
    share = most / work.cost.read_bytes
    limit = max(int(work.gain["bytesBefore"] * share), 1)
    return replace(
        work,
        options={**work.options, "max_bytes": limit},
        cost=work.cost.times(share),
        value=work.value * share,
    )


def _passed_over(unit: WorkUnit, reason: str, lack: tuple[str, float, float]) -> Postponed:
    name, need, left = lack
    shown = {
        "read": format_bytes,
        "worker_seconds": format_duration,
        "requests": "{:,.0f}".format,
        "cost": "{:.4g}".format,
    }[name]
    what = {"read": "to read", "worker_seconds": "of a processor", "requests": "requests", "cost": "of cost"}[
        name
    ]
    room = "the budget has" if reason == "never_fits" else "the budget has left"
    return Postponed(
        unit.table,
        "never_fits" if reason == "never_fits" else "over_budget",
        f"It takes {shown(need)} {what}, and {room} {shown(max(left, 0))}.",
        tuple(one.operation for one in unit.operations),
        owner=unit.owner,
    )


def spent_since(history: FleetHistory, since_ms: int) -> Cost:
    """What runs since a moment have taken; where it was not measured, what was forecast."""
    total = Cost()
    for table in history.tables.values():
        for run in table.runs:
            if run.started_ms >= since_ms:
                total = total.plus(_measured(run.forecast, run.outcome))
    return total


def _measured(forecast: Cost, outcome: Cost) -> Cost:
    return Cost(
        outcome.read_bytes or forecast.read_bytes,
        outcome.worker_seconds or forecast.worker_seconds,
        outcome.requests or forecast.requests,
    )


def _spending(policy: Policy, spent: Cost, taken: Sequence[WorkUnit]) -> tuple[Spending, ...]:
    prices = policy.prices or STAND_IN_PRICES
    planned = Cost()
    for unit in taken:
        planned = planned.plus(unit.cost)
    budget = policy.budget
    money = policy.prices is not None
    # A document of JSON has no quantities of a policy.
    read, requests = (None if limit is None else float(limit) for limit in (budget.read, budget.requests))
    return (
        Spending("read", read, spent.read_bytes, planned.read_bytes),
        Spending(
            "worker_hours", budget.worker_hours, spent.worker_seconds / 3600, planned.worker_seconds / 3600
        ),
        Spending("requests", requests, spent.requests, planned.requests),
        *((Spending("cost", budget.cost, price(spent, prices), price(planned, prices)),) if money else ()),
    )
