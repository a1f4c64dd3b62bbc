"""Nights of a fleet in which nothing is executed: work succeeds, or fails, as the caller says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from delta_maintenance.fleet.account.night import Night, Outcome
from delta_maintenance.fleet.decision.decide import FleetState, decide
from delta_maintenance.fleet.decision.document import Decision, Work, WorkUnit
from delta_maintenance.fleet.decision.holds import Hold
from delta_maintenance.fleet.facts import SurveyedTable, UnreadTable
from delta_maintenance.fleet.history import Cost, FleetHistory, PastRun
from delta_maintenance.fleet.policy.reading import WrittenPolicy, policy_of

#: 2026-06-01 22:00 UTC, a Monday.
MONDAY_EVENING_MS = 1_780_351_200_000
#: Tables are maintained from the first night on.
TRUSTED = {"trust": {"new_table": "auto", "deletions": "auto"}, "disruption": {"quiet": "0m"}}


def trusted(**members: object) -> WrittenPolicy:
    """A policy that maintains tables from the first night on."""
    return policy_of({**TRUSTED, **members})


def decided(
    written: WrittenPolicy,
    tables: Sequence[SurveyedTable | UnreadTable],
    now_ms: int = MONDAY_EVENING_MS,
    history: FleetHistory | None = None,
    approved: Mapping[str, tuple[str, ...]] | None = None,
    holds: Sequence[Hold] = (),
) -> Decision:
    return decide(written, FleetState(tables, history or FleetHistory(), now_ms, approved or {}, holds))


def outcome(unit: WorkUnit, work: Work, now_ms: int, *, kind: str = "", took: float = 1.0) -> Outcome:
    """
    :param kind: kind of the error; empty: the work succeeded.
    :param took: what it took, as a factor of its forecast.
    """
    run = PastRun(
        operation=work.operation,
        started_ms=now_ms,
        status="failed" if kind else "succeeded",
        forecast=work.cost,
        outcome=Cost() if kind else work.cost.times(took),
        kind=kind,
        message="it went wrong" if kind else "",
        version=unit.version,
        by_log=work.by_log,
    )
    return Outcome(unit.table, f"run-{now_ms}", run, now_ms)


def night_of(
    written: WrittenPolicy,
    tables: Sequence[SurveyedTable | UnreadTable],
    history: FleetHistory,
    decision: Decision,
    outcomes: Sequence[Outcome],
) -> Night:
    return Night(
        run_id=f"night-{decision.decided_ms}",
        started_ms=decision.decided_ms,
        finished_ms=decision.decided_ms,
        policy=written.text,
        source=written.source,
        tables=tuple(tables),
        history=history,
        approved={},
        decision=decision,
        outcomes=tuple(outcomes),
    )


def successes(decision: Decision) -> list[Outcome]:
    """The outcomes of a night in which all work succeeds, and takes what was forecast."""
    return [outcome(unit, work, decision.decided_ms) for unit in decision.units for work in unit.operations]
