"""What is due on one table: the findings that its settings make of its facts, and the operations that cure them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from delta_log.errors import InvalidProperty
from delta_log.transaction.commit_body import ENGINE_INFO
from delta_maintenance.fleet.decision.document import Work
from delta_maintenance.fleet.decision.forecast import cost_by_log, forecast_value, learned_cost, reads_per_day
from delta_maintenance.fleet.facts import SurveyedTable
from delta_maintenance.fleet.history import TableHistory
from delta_maintenance.fleet.policy.document import Prices
from delta_maintenance.fleet.policy.settings import Settings
from delta_maintenance.health.diagnosis import Advice, Diagnosis, diagnose
from delta_maintenance.health.facts import HealthFacts
from delta_maintenance.units import HOUR_MS
from delta_maintenance.vacuum.plan.cutoff import retention_of

#: The order in which operations of one table are done: each finds what the one before has left, and deletions come last.
ORDER = ("purge", "optimize", "checkpoint", "compact-log", "cleanup-log", "vacuum")
DELETIONS = ("cleanup-log", "vacuum")
#: ``commitInfo.operation`` of statements that a rewrite makes fail, if it replaces files that they read.
_ROW_STATEMENTS = ("DELETE", "UPDATE", "MERGE")
_LEAST_BATCH_BYTES = 128 << 20
_FIRST_BATCH_BYTES = 4 << 30
_OWN_ENGINE = ENGINE_INFO.partition("/")[0]


class Due(Struct, frozen=True):
    """What one table needs.

    :param work: operations that are due, in the order in which they are done.
    :param refusals: why an operation that would be due refuses the table, by operation.
    """

    diagnosis: Diagnosis
    work: tuple[Work, ...]
    refusals: Mapping[str, str]

    @property
    def is_unhealthy(self) -> bool:
        return bool(self.work) or bool(self.refusals)


def due_on(table: SurveyedTable, settings: Settings, history: TableHistory, prices: Prices) -> Due:
    """Find what exceeds the limits of the settings, and what it takes to cure it."""
    facts = table.facts
    diagnosis = diagnose(facts, settings.health_options(facts.files.size_bytes))
    reads = reads_per_day(facts, settings.reads_per_day)
    work = [
        Work(
            advice.operation,
            {**advice.options, **_options(advice, table, settings, history)},
            advice.findings,
            advice.why,
            advice.gain,
            learned_cost(by_log, history.last_runs(advice.operation)),
            forecast_value(advice, facts, reads, prices),
            by_log,
        )
        for advice, by_log in ((advice, cost_by_log(advice, facts)) for advice in diagnosis.advice)
        if settings.checkpoint == "due" or advice.operation not in ("checkpoint", "compact-log")
    ]
    work.sort(key=lambda one: ORDER.index(one.operation))
    return Due(diagnosis, tuple(work), _refusals(facts, diagnosis))


def _refusals(facts: HealthFacts, diagnosis: Diagnosis) -> dict[str, str]:
    """The refusals of operations whose finding is there."""
    codes = {finding.code for finding in diagnosis.findings}
    causes = {
        "optimize": {"unsupported"},
        "checkpoint": {"checkpoint_due", "expired_log_files"},
        "vacuum": {"reclaimable_files"},
    }
    return {
        name: facts.refusals[name].why
        for name, found in causes.items()
        if name in facts.refusals and codes & found
    }


def _options(
    advice: Advice, table: SurveyedTable, settings: Settings, history: TableHistory
) -> dict[str, Any]:
    if advice.operation in ("optimize", "purge"):
        return {**_polite(table, settings), **_smaller_batches(advice.operation, history)}
    return _longer_retention(table, settings) if advice.operation == "vacuum" else {}


def _polite(table: SurveyedTable, settings: Settings) -> dict[str, Any]:
    """Options by which other writers are left alone."""
    found: dict[str, Any] = {}
    if settings.quiet_ms and table.partition_columns:
        found |= {"quiet_minutes": -(-settings.quiet_ms // 60_000), "hot_partitions": "wait"}
    statements = [one for one in table.facts.commits if not is_own(one.engine)]
    if settings.failed_statements == 0 and any(
        (one.operation or "").startswith(_ROW_STATEMENTS) for one in statements
    ):
        found |= {"commit_when": "gap", "remap": True}
    return found


def is_own(engine: str | None) -> bool:
    """Whether a commit was made by this package."""
    return engine is not None and engine.startswith(_OWN_ENGINE)


def _smaller_batches(operation: str, history: TableHistory) -> dict[str, Any]:
    """Batches that are halved with each conflict since the last success."""
    lost = sum(run.kind == "conflict" for run in history.failures(operation))
    if not lost:
        return {}
    return {"batch_size_bytes": max(_FIRST_BATCH_BYTES >> lost, _LEAST_BATCH_BYTES)}


def _longer_retention(table: SurveyedTable, settings: Settings) -> dict[str, Any]:
    if settings.retain_ms is None:
        return {}
    try:
        retention = retention_of(table.properties, table.facts.measured_ms)
    except InvalidProperty:
        # VACUUM itself refuses the property, and names it.
        return {}
    own_ms = table.facts.measured_ms - retention.cutoff_ms
    return {"retain_hours": settings.retain_ms / HOUR_MS} if settings.retain_ms > own_ms else {}


def nearest_finding(facts: HealthFacts, settings: Settings) -> tuple[str, float] | None:
    """The finding whose number is nearest to its limit, and its part of the limit; ``None``: every number is 0."""
    plan, worst, tail = facts.files.optimize, facts.files.worst, facts.checkpoint.tail
    reclaimable = settings.reclaimable * facts.files.size_bytes
    shares = {
        "small_files": (0 if plan is None else plan.num_files_to_merge, settings.small_files),
        "deleted_rows": (0.0 if worst is None else worst.ratio, settings.deleted_rows),
        "checkpoint_due": (tail.commits, facts.checkpoint.interval),
        "reclaimable_files": (facts.removed.reclaimable.size_bytes, reclaimable),
        "expired_log_files": (facts.log.expired.files, settings.log_files),
    }
    found = {code: number / limit for code, (number, limit) in shares.items() if limit and number}
    code = max(found, key=lambda one: found[one], default=None)
    return None if code is None else (code, round(found[code], 3))
