"""What another policy would have done in past nights."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec import Struct

from delta_maintenance.fleet.account.night import Night
from delta_maintenance.fleet.decision.decide import decide
from delta_maintenance.fleet.decision.document import Decision
from delta_maintenance.fleet.history import Cost
from delta_maintenance.fleet.policy.reading import WrittenPolicy

Operations = dict[str, tuple[str, ...]]


class NightDifference(Struct, frozen=True):
    """What two policies make of one night: operations by table that only one of them would do.

    Each night is decided by what was known then. What the other policy would have done in the nights before is not played through.
    """

    started_ms: int
    only_old: dict[str, tuple[str, ...]]
    only_new: dict[str, tuple[str, ...]]
    old_cost: Cost
    new_cost: Cost
    num_old: int
    num_new: int


def compare(old: WrittenPolicy, new: WrittenPolicy, nights: Iterable[Night]) -> Iterator[NightDifference]:
    """
    :param nights: recorded nights, oldest first.
    """
    for night in nights:
        before, after = decide(old, night.state), decide(new, night.state)
        yield NightDifference(
            night.started_ms,
            _only(before, after),
            _only(after, before),
            _cost(before),
            _cost(after),
            len(before.units),
            len(after.units),
        )


def _only(one: Decision, other: Decision) -> Operations:
    theirs = {(unit.table, work.operation) for unit in other.units for work in unit.operations}
    found: dict[str, list[str]] = {}
    for unit in one.units:
        for work in unit.operations:
            if (unit.table, work.operation) not in theirs:
                found.setdefault(unit.table, []).append(work.operation)
    return {table: tuple(names) for table, names in found.items()}


def _cost(decision: Decision) -> Cost:
    total = Cost()
    for unit in decision.units:
        total = total.plus(unit.cost)
    return total
