"""The report of a night: what was seen, done and left, what it saved, and what a person has to look at."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from msgspec import Struct

from delta_maintenance.fleet.account.night import Night, NotBegun, Outcome, figures_of, new_troubles
from delta_maintenance.fleet.decision.document import NEEDS_A_PERSON, Postponed, Spending, WorkUnit
from delta_maintenance.fleet.history import NightFigures

REPORT_VERSION = 1
_WORST = 5
_TREND = 14
#: A report names as many tables of one kind; the night's file has all.
MAX_NAMED = 100


class Trouble(Struct, frozen=True):
    """A table that failed, or could not be read.

    :param is_new: it did not do so in the night before, and the policy does not know it as broken. A run is red for these alone.
    """

    table: str
    message: str
    is_new: bool
    owner: str | None = None


class Unhealthy(Struct, frozen=True):
    """A table that has been unhealthy for some time."""

    table: str
    since_ms: int


class FleetReport(Struct, frozen=True):
    """What a night was.

    :param figures: tables that were seen, and sums of their facts.
    :param done: operations that ended well.
    :param saved_files: live files less than before; ``saved_bytes`` counts bytes of stores that became free.
    :param forecast_seconds: seconds of a processor that were expected of the operations that ran; ``measured_seconds`` were measured.
    :param not_worth_it: operations that cost more than they were expected to save within a month, and had to be done by ``within``.
    :param troubles: what failed, the new ones first.
    :param skipped: tables by the reason why they, or some of their operations, were not worked on.
    :param waiting: what waits for a person: approvals, refusals, tables that were stopped; what could not be read is among ``troubles``.
    :param announced: operations that delete and may follow in the next run, by table.
    :param worst: the tables that have been unhealthy longest.
    :param trend: figures of the newest nights, this one last.
    :param is_planned: nothing was done, since it was a dry run: ``planned`` has the units.
    """

    run_id: str
    started_ms: int
    finished_ms: int
    source: str
    figures: NightFigures
    done: tuple[Outcome, ...]
    saved_files: int
    saved_bytes: int
    forecast_seconds: float
    measured_seconds: float
    not_worth_it: int
    troubles: tuple[Trouble, ...]
    skipped: Mapping[str, int]
    waiting: tuple[Postponed, ...]
    over_budget: tuple[Postponed, ...]
    not_begun: tuple[NotBegun, ...]
    announced: Mapping[str, tuple[str, ...]]
    budget: tuple[Spending, ...]
    worst: tuple[Unhealthy, ...]
    trend: tuple[NightFigures, ...]
    planned: tuple[WorkUnit, ...] = ()
    is_planned: bool = False
    report_version: int = REPORT_VERSION

    @property
    def has_news(self) -> bool:
        """Whether something is wrong that was not before."""
        return any(trouble.is_new for trouble in self.troubles)


def report_of(night: Night, *, is_planned: bool = False) -> FleetReport:
    """
    :param is_planned: the night was a dry run.
    """
    decision = night.decision
    done = tuple(outcome for outcome in night.outcomes if not outcome.run.has_failed)
    values = {
        (unit.table, work.operation): (work.value, unit.price * _share(unit, work.operation))
        for unit in decision.units
        for work in unit.operations
    }
    ran = [values.get((outcome.table, outcome.run.operation), (0.0, 0.0)) for outcome in done]
    return FleetReport(
        run_id=night.run_id,
        started_ms=night.started_ms,
        finished_ms=night.finished_ms,
        source=night.source,
        figures=figures_of(night),
        done=done[:MAX_NAMED],
        saved_files=sum(outcome.run.saved_files for outcome in done),
        saved_bytes=sum(outcome.run.saved_bytes for outcome in done),
        forecast_seconds=sum(outcome.run.forecast.worker_seconds for outcome in done),
        measured_seconds=sum(outcome.run.outcome.worker_seconds for outcome in done),
        not_worth_it=sum(value < cost for value, cost in ran) if _has_prices(night) else 0,
        troubles=tuple(_troubles(night))[:MAX_NAMED],
        skipped=dict(sorted(Counter(one.reason for one in decision.postponed).items())),
        waiting=_named(decision.postponed, tuple(one for one in NEEDS_A_PERSON if one != "unread")),
        over_budget=_named(decision.postponed, ("over_budget",)),
        not_begun=night.not_begun[:MAX_NAMED],
        announced=dict(list(decision.announced.items())[:MAX_NAMED]),
        budget=decision.budget,
        worst=_worst(night),
        trend=(*night.history.nights, figures_of(night))[-_TREND:],
        planned=decision.units[:MAX_NAMED] if is_planned else (),
        is_planned=is_planned,
    )


def _has_prices(night: Night) -> bool:
    """Without prices nobody can say what is worth its cost."""
    return any(one.resource == "cost" for one in night.decision.budget)


def _share(unit: WorkUnit, operation: str) -> float:
    """The part of a unit's price that one of its operations has, by seconds of a processor."""
    total = sum(work.cost.worker_seconds for work in unit.operations)
    own = sum(work.cost.worker_seconds for work in unit.operations if work.operation == operation)
    return own / total if total else 0.0


def _named(postponed: tuple[Postponed, ...], reasons: tuple[str, ...]) -> tuple[Postponed, ...]:
    return tuple(one for one in postponed if one.reason in reasons)[:MAX_NAMED]


def _troubles(night: Night) -> list[Trouble]:
    owners = {unit.table: unit.owner for unit in night.decision.units}
    owners |= {one.table: one.owner for one in night.decision.postponed if one.owner}
    new = {table for table, _ in new_troubles(night)}
    found = [
        *(
            (one.table, one.why)
            for one in night.decision.postponed
            if one.reason in ("unread", "known_broken")
        ),
        *(
            (outcome.table, f"{outcome.run.operation.upper()}: {outcome.run.message}")
            for outcome in night.outcomes
            if outcome.run.has_failed
        ),
    ]
    troubles = [Trouble(table, message, table in new, owners.get(table)) for table, message in found]
    return sorted(troubles, key=lambda one: (not one.is_new, one.table))


def _worst(night: Night) -> tuple[Unhealthy, ...]:
    cured = {outcome.table for outcome in night.outcomes if not outcome.run.has_failed}
    tables = night.history.tables
    found = []
    for table in night.decision.unhealthy:
        since_ms = tables[table].unhealthy_since_ms if table in tables else None
        if table not in cured:
            found.append(Unhealthy(table, night.started_ms if since_ms is None else since_ms))
    return tuple(sorted(found, key=lambda one: (one.since_ms, one.table))[:_WORST])
