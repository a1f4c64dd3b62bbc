"""The decision of a run, as types."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from msgspec import Struct

from delta_maintenance.fleet.history import Cost

#: Why a table, or one of its operations, is not worked on in this run.
#:
#: ``healthy``: nothing exceeds a limit. ``unread``: the table could not be read. ``known_broken``: the policy, or a person, says so.
#: ``disabled``: the policy, or the table, says so. ``paused``: a person says so. ``reported``: it has to be reported more often first.
#: ``refused``: every operation that is due refuses the table. ``other_maintainer``: another program looks after it. ``frozen``: today
#: nothing is changed. ``outside_window``: the window of the table is closed. ``quiet``: others are writing to it. ``failed_before``: it
#: waits after a failure. ``stopped``: it failed too often. ``announced``: its deletion was not announced before. ``approval``: its
#: deletion waits for a person. ``not_measured``: its deletion rests on a number that is not known. ``report_only``: deletions of the
#: table are only reported. ``not_worth_it``: the work costs more than it saves, and there is time. ``over_budget``: other work goes
#: first. ``never_fits``: no window has such a budget.
Reason = Literal[
    "healthy",
    "unread",
    "known_broken",
    "disabled",
    "paused",
    "reported",
    "refused",
    "other_maintainer",
    "frozen",
    "outside_window",
    "quiet",
    "failed_before",
    "stopped",
    "announced",
    "approval",
    "not_measured",
    "report_only",
    "not_worth_it",
    "over_budget",
    "never_fits",
]
#: A person has to do something about these.
NEEDS_A_PERSON: tuple[Reason, ...] = ("unread", "refused", "stopped", "approval", "never_fits")


class Work(Struct, frozen=True):
    """One operation that is due.

    :param operation: its name as a command.
    :param options: options of its job spec.
    :param findings: codes of the findings that it cures.
    :param why: reason, for people.
    :param gain: numbers before and after, as in a recommendation of health.
    :param cost: forecast; ``by_log`` is the part of it that rests on the log alone, before earlier runs have corrected it.
    :param value: what it saves within a month, in the currency of the policy's prices.
    """

    operation: str
    options: Mapping[str, Any]
    findings: tuple[str, ...]
    why: str
    gain: Mapping[str, Any]
    cost: Cost
    value: float
    by_log: Cost = Cost()


class WorkUnit(Struct, frozen=True):
    """The work on one table, in the order in which it is done.

    :param version: version of the table that was surveyed.
    :param cost: cost of all operations; ``price`` is its money.
    :param score: logarithm to the base of 2 of the value for the money; each window of waiting, and each 100 of priority, adds 1.
        Units are in descending order of it.
    :param not_before_ms: moment from which on the unit may begin.
    :param owner: person or team that is told of it.
    """

    table: str
    version: int
    operations: tuple[Work, ...]
    cost: Cost
    price: float
    value: float
    score: float
    not_before_ms: int
    owner: str | None = None


class Postponed(Struct, frozen=True):
    """A table, or operations of it, that are not worked on in this run.

    :param operations: names of the operations concerned; empty: nothing is due.
    :param why: reason, for people, with a number where there is one.
    :param next_ms: the earliest moment at which this may change; ``None``: it depends on something else than time.
    :param nearest: code of the finding that is nearest to its limit, where nothing exceeds one; ``nearest_share`` is its part of the limit.
    """

    table: str
    reason: Reason
    why: str
    operations: tuple[str, ...] = ()
    next_ms: int | None = None
    nearest: str | None = None
    nearest_share: float | None = None
    owner: str | None = None


class Spending(Struct, frozen=True):
    """One resource of the budget.

    :param limit: ``None``: the policy sets none.
    :param spent: what earlier runs of this window took; ``planned`` is what this run will take.
    """

    resource: Literal["read", "worker_hours", "requests", "cost"]
    limit: float | None
    spent: float
    planned: float


class Decision(Struct, frozen=True):
    """What a run does.

    :param window: beginning and end of the window whose budget counts, in ms; outside of the policy's window, of the next one.
    :param units: work, in the order in which it is begun.
    :param announced: operations that delete and are announced by this run's report, by table.
    :param unhealthy: addresses of the tables in which something exceeds a limit.
    :param at_once: the most tables at the same time.
    :param night_since_ms: runs since this moment belong to the same night as this run; ``None``: each run is a night, since the policy's
        window is always open.
    """

    decided_ms: int
    window: tuple[int, int]
    units: tuple[WorkUnit, ...]
    postponed: tuple[Postponed, ...]
    announced: Mapping[str, tuple[str, ...]]
    unhealthy: tuple[str, ...]
    budget: tuple[Spending, ...]
    at_once: int
    night_since_ms: int | None = None
