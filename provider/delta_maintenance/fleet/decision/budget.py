"""Fills the budget of a window with work, in the order that it is given. Pure.

1. No resource is ever exceeded. What does not fit is passed over, and the next is tried.
2. A rewrite that takes more than half of a resource of a window is done in parts, so that one giant does not take the night of all
   others.
3. Operations of one table that would fit alone, and not together, are done in their order as far as they fit.
4. What earlier runs have taken since the last window closed is spent.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from delta_maintenance.fleet.decision.document import Postponed, Reason, Spending, Work, WorkUnit
from delta_maintenance.fleet.decision.forecast import STAND_IN_PRICES, price
from delta_maintenance.fleet.history import Cost, FleetHistory
from delta_maintenance.fleet.policy.calendar import Window
from delta_maintenance.fleet.policy.document import Policy, Prices
from delta_maintenance.units import format_bytes, format_duration

#: The part of a window's resource that one rewrite may take.
_LARGEST_PART = 0.5
#: OPTIMIZE merges no fewer.
_LEAST_FILES = 2


class _Lack(Struct, frozen=True):
    """A resource that does not suffice."""

    resource: str
    needed: float
    left: float

    def told(self, room: str) -> str:
        """
        :param room: what the budget has, in words.
        """
        show, of_what = {
            "read": (format_bytes, "to read"),
            "worker_seconds": (format_duration, "of a processor"),
            "requests": ("{:,.0f}".format, "requests"),
            "cost": ("{:.4g}".format, "of cost"),
        }[self.resource]
        return f"It takes {show(self.needed)} {of_what}, and {room} {show(max(self.left, 0))}."


class _Limits(Struct, frozen=True):
    """What a budget has of each resource that it limits, by name."""

    left: dict[str, float]
    prices: Prices

    @classmethod
    def of(cls, policy: Policy) -> _Limits:
        budget = policy.budget
        hours = budget.worker_hours
        limits = {
            "read": budget.read,
            "worker_seconds": None if hours is None else hours * 3600,
            "requests": budget.requests,
            "cost": budget.cost,
        }
        found = {name: float(limit) for name, limit in limits.items() if limit is not None}
        return cls(found, policy.prices or STAND_IN_PRICES)

    def _needs(self, cost: Cost) -> dict[str, float]:
        return {
            "read": cost.read_bytes,
            "worker_seconds": cost.worker_seconds,
            "requests": cost.requests,
            "cost": price(cost, self.prices),
        }

    def lacking(self, cost: Cost) -> _Lack | None:
        """The first resource that does not suffice."""
        needs = self._needs(cost)
        return next(
            (
                _Lack(name, needs[name], left)
                for name, left in self.left.items()
                if needs[name] > max(left, 0)
            ),
            None,
        )

    def without(self, cost: Cost) -> _Limits:
        needs = self._needs(cost)
        return replace(self, left={name: left - needs[name] for name, left in self.left.items()})

    def part(self, cost: Cost) -> float:
        """The part of a cost, at most 1, that takes no more than the largest part of any resource."""
        needs = self._needs(cost)
        parts = (_LARGEST_PART * left / needs[name] for name, left in self.left.items() if needs[name] > 0)
        return min([1.0, *parts])


def fill_budget(
    units: Sequence[WorkUnit], policy: Policy, spent: Cost
) -> tuple[list[WorkUnit], list[Postponed]]:
    """
    :param units: work in descending order of its importance.
    :param spent: what earlier runs took of the same budget.
    :return: the units that fit, in their order, and what is passed over.
    """
    whole = _Limits.of(policy)
    left = whole.without(spent)
    taken: list[WorkUnit] = []
    passed: list[Postponed] = []
    for wanted in units:
        unit, dropped = _fitting(wanted, whole)
        passed += dropped
        if unit is None:
            continue
        lack = left.lacking(unit.cost)
        if lack is None:
            left = left.without(unit.cost)
            taken.append(unit)
        else:
            passed.append(_passed_over(unit, unit.operations, "over_budget", lack))
    return taken, passed


def _fitting(unit: WorkUnit, whole: _Limits) -> tuple[WorkUnit | None, list[Postponed]]:
    """A unit without what no window has room for, and with rewrites in parts that leave room for others."""
    if whole.part(unit.cost) == 1:
        return unit, []
    work: list[Work] = []
    dropped: list[Postponed] = []
    left = whole
    for one in unit.operations:
        part = _in_part(one, whole.part(one.cost))
        alone = whole.lacking(part.cost)
        together = left.lacking(part.cost)
        if alone is not None:
            dropped.append(_passed_over(unit, (one,), "never_fits", alone))
        elif together is not None:
            dropped.append(_passed_over(unit, (one,), "over_budget", together))
        else:
            work.append(part)
            left = left.without(part.cost)
    return (with_work(unit, work, whole.prices) if work else None), dropped


def _in_part(work: Work, part: float) -> Work:
    """A part of a rewrite. Other work has no parts, and neither have two files."""
    if work.operation not in ("optimize", "purge") or work.gain["filesBefore"] * part < _LEAST_FILES:
        return work
    if part == 1:
        return work
    return replace(
        work,
        options={**work.options, "max_bytes": max(int(work.gain["bytesBefore"] * part), 1)},
        cost=work.cost.times(part),
        by_log=work.by_log.times(part),
        value=work.value * part,
    )


def with_work(unit: WorkUnit, work: Sequence[Work], prices: Prices) -> WorkUnit:
    """A unit with other work. Its score is its place in the order, and stays."""
    cost = total_cost(work)
    value = sum(one.value for one in work)
    return replace(unit, operations=tuple(work), cost=cost, price=price(cost, prices), value=value)


def total_cost(work: Sequence[Work]) -> Cost:
    total = Cost()
    for one in work:
        total = total.plus(one.cost)
    return total


def _passed_over(unit: WorkUnit, work: Sequence[Work], reason: Reason, lack: _Lack) -> Postponed:
    room = "no window has more than" if reason == "never_fits" else "the budget has left"
    names = tuple(one.operation for one in work)
    return Postponed(unit.table, reason, lack.told(room), names, owner=unit.owner)


# -- windows and what was spent in them --------------------------------------------------------------------------------


def budget_window(policy: Policy, now_ms: int) -> tuple[int, int]:
    """The window whose budget counts at a moment: the open one, or else the next one."""
    window = _window(policy)
    found = window.opening(window.next_opening(now_ms))
    assert found is not None
    return found


def spent_before(policy: Policy, history: FleetHistory, window: tuple[int, int]) -> Cost:
    """What runs have taken of a window's budget, also those before it was open: rules may have windows of their own.

    Where it was not measured, the forecast counts.
    """
    since_ms = _window(policy).last_closing(window[0])
    total = Cost()
    # In one order: a sum of floating-point numbers depends on it.
    for _, table in sorted(history.tables.items()):
        for run in reversed(table.runs):
            if run.started_ms < since_ms:
                break
            total = total.plus(_measured(run.forecast, run.outcome))
    return total


def night_since(policy: Policy, window: tuple[int, int]) -> int | None:
    """The moment since which runs belong to the night of a window; ``None``: the window is always open, and each run is a night."""
    return None if _window(policy).is_always else _window(policy).last_closing(window[0])


def _window(policy: Policy) -> Window:
    return policy.window or Window.of("always")


def _measured(forecast: Cost, outcome: Cost) -> Cost:
    return Cost(
        outcome.read_bytes or forecast.read_bytes,
        outcome.worker_seconds or forecast.worker_seconds,
        outcome.requests or forecast.requests,
    )


def spending(policy: Policy, spent: Cost, taken: Sequence[WorkUnit]) -> tuple[Spending, ...]:
    """What was spent of each resource, and what is planned."""
    planned = Cost()
    for unit in taken:
        planned = planned.plus(unit.cost)
    budget, prices = policy.budget, policy.prices
    # A document of JSON has no quantities of a policy.
    read, requests = (None if limit is None else float(limit) for limit in (budget.read, budget.requests))
    hours = (spent.worker_seconds / 3600, planned.worker_seconds / 3600)
    return (
        Spending("read", read, spent.read_bytes, planned.read_bytes),
        Spending("worker_hours", budget.worker_hours, *hours),
        Spending("requests", requests, spent.requests, planned.requests),
        *(
            ()
            if prices is None
            else (Spending("cost", budget.cost, price(spent, prices), price(planned, prices)),)
        ),
    )
