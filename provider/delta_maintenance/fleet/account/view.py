"""A night table by table, for a page: what was done, what was left and why, and what the next night is expected to do.

A night's file has the facts of all tables and weighs megabytes. A view has what a person asks about each table, in some hundred bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from statistics import median

from msgspec import Struct
from msgspec.structs import replace

from delta_log.errors import InvalidRequest
from delta_maintenance.fleet.account.night import Night, Outcome, figures_of, new_troubles, next_history
from delta_maintenance.fleet.decision.budget import spending, spent_before, total_cost
from delta_maintenance.fleet.decision.decide import FleetState, decide
from delta_maintenance.fleet.decision.document import NEEDS_A_PERSON, Decision, Postponed, Work, WorkUnit
from delta_maintenance.fleet.decision.due import is_own
from delta_maintenance.fleet.decision.held_files import with_forgotten_files
from delta_maintenance.fleet.decision.holds import Hold
from delta_maintenance.fleet.facts import SurveyedTable, UnreadTable
from delta_maintenance.fleet.history import Cost, FleetHistory, NightFigures
from delta_maintenance.fleet.policy.reading import WrittenPolicy
from delta_maintenance.fleet.policy.settings import settings_of
from delta_maintenance.units import DAY_MS, HOUR_MS, counted, format_bytes

VIEW_VERSION = 1
#: Longest message of a table in a view.
MAX_TEXT = 500
DONE, FAILED, NOT_BEGUN, NOT_KNOWN = "done", "failed", "not_begun", "surveyed_first"
_TREND = 30
#: A table that is left alone for these alone waits as the policy, or a person, wants it to. So it is not late.
_MEANT_TO_WAIT = frozenset(
    {
        "known_broken",
        "paused",
        "disabled",
        "reported",
        "other_maintainer",
        "frozen",
        "announced",
        "approval",
        "report_only",
        "not_worth_it",
    }
)


class DoneWork(Struct, frozen=True, omit_defaults=True):
    """One operation that ran.

    :param message: what went wrong; empty: it ended well.
    :param saved_files: live files less than before; ``saved_bytes`` counts bytes of the store that became free.
    """

    operation: str
    status: str
    forecast: Cost
    outcome: Cost
    message: str = ""
    saved_files: int = 0
    saved_bytes: int = 0


class LeftWork(Struct, frozen=True, omit_defaults=True):
    """Operations that were not done, or are not expected to be: all of them, where none is named.

    :param reason: a :data:`~delta_maintenance.fleet.decision.document.Reason`, ``not_begun``, or ``surveyed_first``: the table was worked
        on, so its next needs are not known yet.
    :param next_ms: the earliest moment at which this may change; ``None``: it depends on something else than time.
    """

    reason: str
    why: str
    operations: tuple[str, ...] = ()
    next_ms: int | None = None


class DueWork(Struct, frozen=True, omit_defaults=True):
    """One operation that is expected of the next night."""

    operation: str
    why: str
    cost: Cost


class TableNight(Struct, frozen=True, omit_defaults=True):
    """One table in a night.

    :param state: ``failed``, ``not_begun`` or ``done`` if one of its operations did so, in this order, or the reason of what was left.
    :param value: what its work, of this night or of the next, saves within a month, in the currency of the prices.
    :param unhealthy_since_ms: ``None``: it is healthy, or was cured by this night.
    :param deadline_ms: moment by which the policy wants it healthy again, ``within`` after it became unhealthy or was worked on last;
        ``None``: the policy, or a person, lets it wait.
    :param written_ms: newest commit by another program among those that the survey has read; ``None``: there is none among them.
    """

    table: str
    state: str
    owner: str | None = None
    done: tuple[DoneWork, ...] = ()
    left: tuple[LeftWork, ...] = ()
    due_next: tuple[DueWork, ...] = ()
    left_next: tuple[LeftWork, ...] = ()
    value: float = 0
    unhealthy_since_ms: int | None = None
    deadline_ms: int | None = None
    num_files: int | None = None
    size_bytes: int | None = None
    small_files: int | None = None
    reclaimable_bytes: int | None = None
    written_ms: int | None = None


class BudgetUse(Struct, frozen=True):
    """One resource of the window.

    :param limit: ``None``: the policy sets none.
    :param used: what the runs of the window took, this one included: as measured, else by forecast.
    :param forecast: what was expected of them before this run.
    """

    resource: str
    limit: float | None
    used: float
    forecast: float

    @property
    def is_over(self) -> bool:
        return self.limit is not None and self.used > self.limit


class NextNight(Struct, frozen=True):
    """The next night, as far as it is known: tables that were worked on are surveyed first, and others may change.

    :param starts_ms: moment for which it was decided: the runs keep their interval, and the window is open.
    """

    starts_ms: int
    num_tables: int
    cost: Cost
    budget: tuple[BudgetUse, ...]


class Alert(Struct, frozen=True):
    """Something that a person should know of.

    :param kind: ``failed``: failures that are new. ``late``: tables are unhealthy longer than ``within``. ``over_budget``: the window
        took more than its budget.
    """

    kind: str
    why: str
    num_tables: int = 0


class FleetView(Struct, frozen=True):
    """A night for a page.

    :param interval_ms: usual time from one run to the next; ``None``: there was one run only.
    :param trend: figures of the newest nights, this one last.
    """

    run_id: str
    started_ms: int
    finished_ms: int
    source: str
    figures: NightFigures
    budget: tuple[BudgetUse, ...]
    alerts: tuple[Alert, ...]
    holds: tuple[Hold, ...]
    trend: tuple[NightFigures, ...]
    interval_ms: int | None
    next: NextNight
    tables: tuple[TableNight, ...]
    view_version: int = VIEW_VERSION


def view_of(night: Night, written: WrittenPolicy) -> FleetView:
    """
    :param night: a night that is over.
    :param written: its policy.
    """
    history = next_history(night)
    interval_ms = _interval(history)
    coming = _next_decision(night, written, history, interval_ms)
    tables = _tables(night, written, coming)
    budget = _budget(written, night, history)
    return FleetView(
        run_id=night.run_id,
        started_ms=night.started_ms,
        finished_ms=night.finished_ms,
        source=night.source,
        figures=figures_of(night),
        budget=budget,
        alerts=tuple(_alerts(night, tables, budget)),
        holds=night.holds,
        trend=history.nights[-_TREND:],
        interval_ms=interval_ms,
        next=_next_night(coming),
        tables=tables,
    )


# -- next night ------------------------------------------------------------------------------------------------------


def _interval(history: FleetHistory) -> int | None:
    moments = [one.started_ms for one in history.nights[-_TREND:]]
    gaps = [later - earlier for earlier, later in pairwise(moments)]
    return int(median(gaps)) if gaps else None


def _next_decision(
    night: Night, written: WrittenPolicy, history: FleetHistory, interval_ms: int | None
) -> Decision:
    """The decision about the tables that this night has not changed, at the time of the next run."""
    worked_on = {outcome.table for outcome in night.outcomes if not outcome.run.has_failed}
    left = [table for table in night.tables if table.table not in worked_on]
    now_ms = max(night.started_ms + (interval_ms or DAY_MS), night.finished_ms)
    if written.policy.window is not None:
        now_ms = written.policy.window.next_opening(now_ms)
    return decide(written, FleetState(left, history, now_ms, holds=night.holds))


def _next_night(coming: Decision) -> NextNight:
    return NextNight(
        starts_ms=coming.decided_ms,
        num_tables=len(coming.units),
        cost=total_cost([work for unit in coming.units for work in unit.operations]),
        budget=tuple(
            BudgetUse(one.resource, one.limit, one.spent, one.spent + one.planned) for one in coming.budget
        ),
    )


def _budget(written: WrittenPolicy, night: Night, history: FleetHistory) -> tuple[BudgetUse, ...]:
    used = spending(written.policy, spent_before(written.policy, history, night.decision.window), ())
    return tuple(
        BudgetUse(now.resource, now.limit, now.spent, planned.spent + planned.planned)
        for now, planned in zip(used, night.decision.budget, strict=True)
    )


# -- tables ----------------------------------------------------------------------------------------------------------


class _OfTables(Struct, frozen=True):
    """What a night says of each table, by its address."""

    outcomes: Mapping[str, list[Outcome]]
    units: Mapping[str, WorkUnit]
    left: Mapping[str, list[LeftWork]]
    owners: Mapping[str, str | None]
    next_units: Mapping[str, WorkUnit]
    next_left: Mapping[str, list[LeftWork]]


def _tables(night: Night, written: WrittenPolicy, coming: Decision) -> tuple[TableNight, ...]:
    decision = night.decision
    outcomes: dict[str, list[Outcome]] = {}
    for outcome in night.outcomes:
        outcomes.setdefault(outcome.table, []).append(outcome)
    left = _left_of(decision)
    for table, why in _not_begun(night, outcomes).items():
        left.setdefault(table, []).insert(0, LeftWork(NOT_BEGUN, why))
    of = _OfTables(
        outcomes=outcomes,
        units={unit.table: unit for unit in decision.units},
        left=left,
        owners={one.table: one.owner for one in decision.postponed}
        | {unit.table: unit.owner for unit in decision.units},
        next_units={unit.table: unit for unit in coming.units},
        next_left=_left_of(coming),
    )
    unhealthy = frozenset(decision.unhealthy)
    return tuple(
        _table(table, of, night, written, is_unhealthy=table.table in unhealthy) for table in night.tables
    )


def _left_of(decision: Decision) -> dict[str, list[LeftWork]]:
    found: dict[str, list[LeftWork]] = {}
    for one in decision.postponed:
        found.setdefault(one.table, []).append(_left(one))
    return found


def _left(one: Postponed) -> LeftWork:
    return LeftWork(one.reason, one.why[:MAX_TEXT], one.operations, one.next_ms)


def _not_begun(night: Night, outcomes: Mapping[str, list[Outcome]]) -> dict[str, str]:
    """Why a unit was not begun, by table. A run that was killed says nothing of the others."""
    told = {one.table: one.why for one in night.not_begun}
    silent = {unit.table for unit in night.decision.units} - set(outcomes) - set(told)
    return {**told, **dict.fromkeys(silent, "The run ended before its turn.")}


def _table(
    table: SurveyedTable | UnreadTable,
    of: _OfTables,
    night: Night,
    written: WrittenPolicy,
    *,
    is_unhealthy: bool,
) -> TableNight:
    name = table.table
    done = tuple(map(_done, of.outcomes.get(name, ())))
    left = tuple(of.left.get(name, ()))
    unit, coming = of.units.get(name), of.next_units.get(name)
    known = night.history.of(name, night.started_ms)
    is_cured = any(not one.message for one in done)
    since_ms = _or(known.unhealthy_since_ms, night.started_ms) if is_unhealthy and not is_cured else None
    found = TableNight(
        table=name,
        state=_state(done, left),
        owner=of.owners.get(name),
        done=done,
        left=left,
        due_next=() if coming is None else tuple(map(_due, coming.operations)),
        left_next=tuple(of.next_left.get(name, () if coming else _SURVEYED_FIRST)),
        value=unit.value if unit is not None else coming.value if coming is not None else 0,
        unhealthy_since_ms=since_ms,
    )
    if isinstance(table, UnreadTable):
        return found
    is_let_wait = bool(left) and not done and {one.reason for one in left} <= _MEANT_TO_WAIT
    is_waiting = since_ms is not None and not is_let_wait
    return _with_facts(
        found,
        replace(table, facts=with_forgotten_files(table.facts, known)),
        written,
        _or(known.waiting_since_ms, night.started_ms) if is_waiting else None,
    )


def _or(moment_ms: int | None, otherwise_ms: int) -> int:
    return otherwise_ms if moment_ms is None else moment_ms


_SURVEYED_FIRST = (LeftWork(NOT_KNOWN, "It was worked on; the next survey says what it needs."),)


def _with_facts(
    found: TableNight, table: SurveyedTable, written: WrittenPolicy, waiting_ms: int | None
) -> TableNight:
    facts = table.facts
    return replace(
        found,
        deadline_ms=None if waiting_ms is None else _deadline(written, table, waiting_ms),
        num_files=facts.files.num_files,
        size_bytes=facts.files.size_bytes,
        small_files=0 if facts.files.optimize is None else facts.files.optimize.num_files_to_merge,
        reclaimable_bytes=facts.removed.reclaimable.size_bytes,
        written_ms=max((one.timestamp_ms for one in facts.commits if not is_own(one.engine)), default=None),
    )


def _deadline(written: WrittenPolicy, table: SurveyedTable, waiting_ms: int) -> int | None:
    try:
        return waiting_ms + settings_of(written, table.table, table.properties).within_ms
    except InvalidRequest:
        # A property of the table contradicts the policy; the table is refused for that.
        return None


def _done(outcome: Outcome) -> DoneWork:
    run = outcome.run
    message = (run.message or "It failed without saying why.") if run.has_failed else ""
    return DoneWork(
        run.operation,
        run.status,
        run.forecast,
        run.outcome,
        message[:MAX_TEXT],
        run.saved_files,
        run.saved_bytes,
    )


def _due(work: Work) -> DueWork:
    return DueWork(work.operation, work.why[:MAX_TEXT], work.cost)


def _state(done: tuple[DoneWork, ...], left: tuple[LeftWork, ...]) -> str:
    if any(one.message for one in done):
        return FAILED
    reasons = [one.reason for one in left]
    if NOT_BEGUN in reasons:
        return NOT_BEGUN
    if done:
        return DONE
    return min(reasons, key=lambda reason: reason not in NEEDS_A_PERSON)


# -- alerts ----------------------------------------------------------------------------------------------------------


def _alerts(night: Night, tables: tuple[TableNight, ...], budget: tuple[BudgetUse, ...]) -> Iterator[Alert]:
    new = dict(new_troubles(night))
    if new:
        table, message = next(iter(new.items()))
        yield Alert("failed", f"{counted(len(new), 'new failure')}: {table}: {message[:MAX_TEXT]}", len(new))
    late = sorted(
        (one.deadline_ms, one.table)
        for one in tables
        if one.deadline_ms is not None and one.deadline_ms < night.finished_ms
    )
    if late:
        deadline_ms, table = late[0]
        hours = (night.finished_ms - deadline_ms) / HOUR_MS
        yield Alert(
            "late",
            f"{counted(len(late), 'table')} unhealthy longer than the policy allows; {table} by {hours:,.1f} hours.",
            len(late),
        )
    for one in budget:
        if one.is_over:
            yield Alert("over_budget", _over(one))


def _over(one: BudgetUse) -> str:
    show = format_bytes if one.resource == "read" else "{:,.4g}".format
    return f"The window took {show(one.used)} of {show(one.limit or 0)} ({one.resource.replace('_', ' ')})."
