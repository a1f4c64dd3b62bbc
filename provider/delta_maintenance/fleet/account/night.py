"""One run of a fleet, as it is kept: everything that its decision rests on, the decision itself, and what came of it.

A night can be replayed: :func:`~delta_maintenance.fleet.decision.decide.decide` makes the same decision of the same night, and another
one of another policy.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from delta_maintenance.contract import JobReport
from delta_maintenance.fleet.decision.caution import is_of_night
from delta_maintenance.fleet.decision.decide import FleetState
from delta_maintenance.fleet.decision.document import Decision, Work, WorkUnit
from delta_maintenance.fleet.decision.held_files import held_files, with_forgotten_files
from delta_maintenance.fleet.decision.holds import Hold
from delta_maintenance.fleet.facts import SurveyedTable, UnreadTable
from delta_maintenance.fleet.history import (
    FORGOTTEN_AFTER_MS,
    MAX_NIGHTS,
    MAX_RUNS,
    Cost,
    FleetHistory,
    NightFigures,
    PastRun,
    TableHistory,
)

NIGHT_VERSION = 1


class Outcome(Struct, frozen=True):
    """What came of one operation.

    :param run_id: id of the run in the table's history.
    :param run: the run, as the history of the table keeps it.
    :param dropped_bins: bins that were left out of the commit, since other writers had changed their files.
    """

    table: str
    run_id: str
    run: PastRun
    finished_ms: int
    error_type: str = ""
    dropped_bins: int = 0


class NotBegun(Struct, frozen=True):
    """A unit that was decided on, and not begun, or not brought to an end.

    :param reason: ``time``: the time of the run, or the window, was over. ``lease``: another run works on the table. ``interrupted``: its
        process has ended before it.
    """

    table: str
    reason: Literal["time", "lease", "interrupted"]
    why: str


class Night(Struct, frozen=True):
    """One run of a fleet.

    :param policy: text of the policy, and ``source`` the name of its file.
    :param tables: the facts of all tables.
    :param history: what was remembered before the run.
    :param holds: what persons had said of tables.
    :param is_finished: ``False``: the run still goes on, or was killed.
    """

    run_id: str
    started_ms: int
    finished_ms: int
    policy: str
    source: str
    tables: tuple[SurveyedTable | UnreadTable, ...]
    history: FleetHistory
    approved: Mapping[str, tuple[str, ...]]
    decision: Decision
    outcomes: tuple[Outcome, ...] = ()
    not_begun: tuple[NotBegun, ...] = ()
    holds: tuple[Hold, ...] = ()
    is_finished: bool = False
    night_version: int = NIGHT_VERSION

    @property
    def state(self) -> FleetState:
        """What the decision rested on."""
        return FleetState(self.tables, self.history, self.decision.decided_ms, self.approved, self.holds)


class UnitResult(Struct, frozen=True):
    """What came of one unit."""

    outcomes: tuple[Outcome, ...] = ()
    not_begun: NotBegun | None = None


def finished(night: Night, results: Mapping[int, UnitResult], now_ms: int) -> Night:
    """A night with what came of its units.

    :param results: results by the number of the unit within the decision. A unit without a result, or with the result of a part of its
        operations, was interrupted.
    """
    units = list(enumerate(night.decision.units))
    return replace(
        night,
        outcomes=tuple(
            outcome for number, _ in units for outcome in results.get(number, UnitResult()).outcomes
        ),
        not_begun=tuple(
            left for number, unit in units if (left := _left(unit, results.get(number))) is not None
        ),
        finished_ms=now_ms,
        is_finished=True,
    )


def _left(unit: WorkUnit, result: UnitResult | None) -> NotBegun | None:
    """What is told of a unit that was not brought to an end."""
    if result is None:
        return NotBegun(
            unit.table, "interrupted", "The run was interrupted before it, or while its first operation ran."
        )
    done = {outcome.run.operation for outcome in result.outcomes}
    left = [work.operation.upper() for work in unit.operations if work.operation not in done]
    is_over = result.not_begun is not None or any(one.run.has_failed for one in result.outcomes) or not left
    return (
        result.not_begun
        if is_over
        else NotBegun(unit.table, "interrupted", f"The run was interrupted before the end of {left[0]}.")
    )


def outcome_of(table: str, work: Work, report: JobReport, version: int) -> Outcome:
    """
    :param report: report of the job that did the work.
    :param version: version of the table before the job.
    """
    metrics, error = report.metrics, report.error
    started_ms, finished_ms = report.started_ms or 0, report.finished_ms or 0
    seconds = max(finished_ms - started_ms, 1) / 1000
    size = report.table_size or {}
    run = PastRun(
        operation=work.operation,
        started_ms=started_ms,
        status=report.status,
        forecast=work.cost,
        outcome=Cost(metrics.get("numRemovedBytes", 0), seconds, report.requests or 0),
        kind="" if error is None else error.kind,
        message="" if error is None else error.message,
        version=report.read_version if report.read_version is not None else version,
        saved_files=size.get("files_before", 0) - size.get("files_after", 0),
        saved_bytes=metrics.get("sizeOfDeletedData", 0),
        by_log=work.by_log,
    )
    return Outcome(
        table,
        report.run_id,
        run,
        finished_ms,
        "" if error is None else error.type,
        report.dropped_bins,
    )


# -- memory ----------------------------------------------------------------------------------------------------------


def next_history(night: Night) -> FleetHistory:
    """What is remembered after a night."""
    now_ms, before = night.decision.decided_ms, night.history.tables
    kept = {name: table for name, table in before.items() if now_ms - table.last_seen_ms < FORGOTTEN_AFTER_MS}
    unhealthy = frozenset(night.decision.unhealthy)
    missed = _missed(night)
    outcomes: dict[str, list[Outcome]] = {}
    for outcome in night.outcomes:
        outcomes.setdefault(outcome.table, []).append(outcome)
    for table in night.tables:
        old = night.history.of(table.table, now_ms)
        seen = _seen(old, table, night.decision, is_unhealthy=table.table in unhealthy)
        if table.table in missed:
            seen = _after_missing(seen, night.decision.window[0])
        announced = night.decision.announced.get(table.table, ())
        kept[table.table] = _after_work(seen, announced, outcomes.get(table.table, []), now_ms)
    return FleetHistory(kept, (*night.history.nights, figures_of(night))[-MAX_NIGHTS:])


def _seen(
    old: TableHistory, table: SurveyedTable | UnreadTable, decision: Decision, *, is_unhealthy: bool
) -> TableHistory:
    now_ms = decision.decided_ms
    if isinstance(table, UnreadTable):
        since_ms = now_ms if old.unread_since_ms is None else old.unread_since_ms
        return replace(old, last_seen_ms=now_ms, unread_since_ms=since_ms)
    since = None if not is_unhealthy else now_ms if old.unhealthy_since_ms is None else old.unhealthy_since_ms
    # A night counts once, however many runs it has.
    is_new = old.reports == 0 or not is_of_night(old.last_seen_ms, decision.night_since_ms)
    return replace(
        old,
        last_seen_ms=now_ms,
        unread_since_ms=None,
        unhealthy_since_ms=since,
        reports=old.reports + is_new,
        held=held_files(table.facts, old),
    )


def _missed(night: Night) -> frozenset[str]:
    """The tables for whose work there was no room in the budget, or no time."""
    found = {one.table for one in night.decision.postponed if one.reason == "over_budget"}
    found -= {unit.table for unit in night.decision.units}
    return frozenset(found | {one.table for one in night.not_begun if one.reason == "time"})


def _after_missing(table: TableHistory, window_ms: int) -> TableHistory:
    """A window counts once, however many runs it has."""
    if table.missed_in_ms == window_ms:
        return table
    return replace(table, missed_windows=table.missed_windows + 1, missed_in_ms=window_ms)


def _after_work(
    table: TableHistory, announced: Sequence[str], outcomes: Sequence[Outcome], now_ms: int
) -> TableHistory:
    done = {outcome.run.operation for outcome in outcomes if not outcome.run.has_failed}
    due = {name: table.announced.get(name, now_ms) for name in announced if name not in done}
    if done or table.unhealthy_since_ms is None:
        table = replace(table, missed_windows=0, missed_in_ms=None)
    return replace(
        table, announced=due, runs=(*table.runs, *(outcome.run for outcome in outcomes))[-MAX_RUNS:]
    )


def figures_of(night: Night) -> NightFigures:
    read = [table for table in night.tables if isinstance(table, SurveyedTable)]
    failed = sum(outcome.run.has_failed for outcome in night.outcomes)
    return NightFigures(
        started_ms=night.started_ms,
        num_tables=len(night.tables),
        num_unhealthy=len(night.decision.unhealthy),
        num_unread=len(night.tables) - len(read),
        num_files=sum(table.facts.files.num_files for table in read),
        size_bytes=sum(table.facts.files.size_bytes for table in read),
        reclaimable_bytes=sum(
            with_forgotten_files(
                table.facts, night.history.of(table.table, night.started_ms)
            ).removed.reclaimable.size_bytes
            for table in read
        ),
        num_done=len(night.outcomes) - failed,
        num_failed=failed,
    )


# -- what is new -----------------------------------------------------------------------------------------------------


def new_troubles(night: Night) -> Iterator[tuple[str, str]]:
    """The tables that failed, or could not be read, in this night and not before, each with its message. A run is red for these alone."""
    known = {one.table for one in night.decision.postponed if one.reason == "known_broken"}
    for table in night.tables:
        old = night.history.tables.get(table.table)
        was_unread = old is not None and old.unread_since_ms is not None
        if isinstance(table, UnreadTable) and not was_unread and table.table not in known:
            yield table.table, table.error.message
    for outcome in night.outcomes:
        old = night.history.tables.get(outcome.table)
        failed_before = old is not None and bool(old.failures(outcome.run.operation))
        if outcome.run.has_failed and outcome.run.kind != "conflict" and not failed_before:
            yield outcome.table, f"{outcome.run.operation.upper()}: {outcome.run.message}"
