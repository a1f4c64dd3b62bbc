"""Decides what facts mean: findings, a status, and the operations that would help. Pure.

1. A finding compares one number with one limit (:data:`FINDINGS`). It is there if the number exceeds the limit, and critical
   if it exceeds :data:`CRITICAL_TIMES` of the limit.
2. The status follows from the severity of the worst finding. A table that OPTIMIZE refuses is ``unsupported``, whatever else was found.
3. A finding leads to a recommendation (:data:`RECOMMENDED`) if the operation's own plan has something to do and the operation
   does not refuse the table. So an operation that is recommended for a version finds work in this version.

OPTIMIZE also does what a purge above the limit would do, so the two are not recommended together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from delta_maintenance.health.facts import HealthFacts, PlannedRewrite
from delta_maintenance.health.options import HealthOptions
from delta_maintenance.log_upkeep.plan.checkpoint import MAX_TAIL_BYTES
from delta_maintenance.log_upkeep.plan.log_compaction import MIN_PIECES
from delta_maintenance.units import counted, format_bytes

#: In ascending order. ``info`` does not change the status.
SEVERITIES = ("info", "attention", "critical")
STATUSES = ("healthy", "attention", "critical", "unsupported")

#: By finding, how many times over its limit a number is critical. The others never are.
CRITICAL_TIMES = {
    "small_files": 100,
    "deleted_rows": 5,
    "checkpoint_due": 10,
    "reclaimable_files": 100,
    "expired_log_files": 100,
}


class Finding(Struct, frozen=True):
    """Something about the table that exceeds a limit.

    :param code: code for programs; one of :data:`FINDINGS`.
    :param message: text for people.
    :param number: what was measured, and ``limit`` what it exceeds; ``None``: the finding has no number.
    :param evidence: what the number rests on; JSON values.
    """

    code: str
    severity: str
    message: str
    number: float | None = None
    limit: float | None = None
    evidence: Mapping[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        return {
            "code": self.code,
            "severity": self.severity,
            "message": self.message,
            "number": self.number,
            "limit": self.limit,
            "evidence": dict(self.evidence),
        }


class Advice(Struct, frozen=True):
    """An operation that has something to do.

    :param operation: its name as a command.
    :param options: options of its job spec.
    :param findings: codes of those that it would cure.
    :param why: reason, for people.
    :param gain: numbers before and after; JSON values.
    """

    operation: str
    options: Mapping[str, Any]
    findings: tuple[str, ...]
    why: str
    gain: Mapping[str, Any]


class Diagnosis(Struct, frozen=True):
    """``advice`` is in the order in which to follow it; ``findings`` are in the order of :data:`FINDINGS`."""

    status: str
    findings: tuple[Finding, ...]
    advice: tuple[Advice, ...]


def diagnose(facts: HealthFacts, options: HealthOptions) -> Diagnosis:
    """Find what exceeds the limits, and what would help."""
    every = (find(facts, options) for find in FINDINGS.values())
    findings = tuple(finding for finding in every if finding is not None)
    codes = [finding.code for finding in findings]
    advice = (advise(facts, codes) for advise in RECOMMENDED.values())
    return Diagnosis(_status(findings), findings, tuple(found for found in advice if found is not None))


def _status(findings: tuple[Finding, ...]) -> str:
    if any(finding.code == "unsupported" for finding in findings):
        return "unsupported"
    worst = max((SEVERITIES.index(finding.severity) for finding in findings), default=0)
    return STATUSES[worst]


def _over(
    code: str, number: float, limit: float, message: str, evidence: Mapping[str, Any]
) -> Finding | None:
    if number <= limit:
        return None
    # Without any limit to speak of, "many times the limit" means nothing.
    is_critical = limit > 0 and code in CRITICAL_TIMES and number > CRITICAL_TIMES[code] * limit
    return Finding(code, "critical" if is_critical else "attention", message, number, limit, evidence)


# -- findings ------------------------------------------------------------------------------------------------------


def _unsupported(facts: HealthFacts, _options: HealthOptions) -> Finding | None:
    refusal = facts.refusals.get("optimize")
    if refusal is None:
        return None
    return Finding("unsupported", "attention", refusal.why, evidence={"features": list(refusal.features)})


def _small_files(facts: HealthFacts, options: HealthOptions) -> Finding | None:
    plan = facts.files.optimize
    if plan is None:
        return None
    return _over(
        "small_files",
        plan.num_files_to_merge,
        options.small_files,
        f"OPTIMIZE would merge {plan.num_files_to_merge:,} of {facts.files.num_files:,} files; the limit is "
        f"{options.small_files:,}.",
        plan.to_dict(),
    )


def _deleted_rows(facts: HealthFacts, options: HealthOptions) -> Finding | None:
    whole, worst = facts.files.deleted, facts.files.worst
    if whole is None or worst is None:
        return None
    where = "of one partition " if worst.partition else ""
    return _over(
        "deleted_rows",
        worst.ratio,
        options.deleted_rows_ratio,
        f"{worst.ratio:.1%} of the rows {where}are deleted and still in its files, which every reader reads; the limit is "
        f"{options.deleted_rows_ratio:.1%}.",
        {
            "numRows": whole.num_rows,
            "numDeletedRows": whole.num_deleted_rows,
            "numPartitionsOver": facts.files.partitions_over,
            "worstPartition": dict(worst.partition),
        },
    )


def _poor_layout(facts: HealthFacts, options: HealthOptions) -> Finding | None:
    layout = facts.files.layout
    if layout is None:
        return None
    return _over(
        "poor_layout",
        round(layout.gain, 3),
        options.layout_gain,
        f"Queries skip {layout.skipped_now:.0%} of the table, and would skip {layout.skipped_after:.0%} after a layout by "
        f"{', '.join(layout.columns)}; the limit is a gain of {options.layout_gain:.0%}.",
        layout.to_dict(),
    )


def _checkpoint_due(facts: HealthFacts, _options: HealthOptions) -> Finding | None:
    plan = facts.checkpoint
    if not plan.due:
        return None
    # The planner has other reasons, too: bytes, and the time that a reader needs. So a number below its limit may be due.
    number, limit = plan.tail.commits, plan.interval
    times = CRITICAL_TIMES["checkpoint_due"]
    is_critical = number > times * limit or plan.tail.size_bytes > times * MAX_TAIL_BYTES
    return Finding(
        "checkpoint_due",
        "critical" if is_critical else "attention",
        f"A checkpoint is due: {'; '.join(plan.reasons)}.",
        number,
        limit,
        {"sizeInBytes": plan.tail.size_bytes, "checkpointVersion": plan.tail.checkpoint_version},
    )


def _log_compaction_due(facts: HealthFacts, _options: HealthOptions) -> Finding | None:
    plan = facts.compaction
    if plan is None or not plan.worth_it or facts.checkpoint.due:
        return None
    return Finding(
        "log_compaction_due",
        "info",
        f"{plan.reason[0].upper()}{plan.reason[1:]}.",
        plan.pieces,
        MIN_PIECES - 1,
        plan.to_dict(),
    )


def _reclaimable_files(facts: HealthFacts, options: HealthOptions) -> Finding | None:
    total = facts.removed.reclaimable
    return _over(
        "reclaimable_files",
        total.size_bytes,
        options.reclaimable_bytes,
        f"Older than the retention and not deleted yet: {counted(total.files, 'removed file')}, "
        f"{format_bytes(total.size_bytes)}; the limit is {format_bytes(options.reclaimable_bytes)}.",
        {
            "numFiles": total.files,
            "numFilesLookedAt": facts.removed.looks,
            "cutoffMs": facts.removed.cutoff_ms,
        },
    )


def _expired_log_files(facts: HealthFacts, options: HealthOptions) -> Finding | None:
    total = facts.log.expired
    return _over(
        "expired_log_files",
        total.files,
        options.expired_log_files,
        f"{total.files:,} of {facts.log.num_files:,} files of the log are older than its retention, and a checkpoint stands "
        f"for them; the limit is {options.expired_log_files:,}.",
        {"sizeInBytes": total.size_bytes, "firstVersionToKeep": facts.log.expired_before},
    )


def _wrong_checksum(facts: HealthFacts, _options: HealthOptions) -> Finding | None:
    if facts.files.checksum not in ("wrong", "broken"):
        return None
    members = list(facts.files.checksum_differences)
    what = f"contradicts the log in {', '.join(members)}" if members else "cannot be read"
    return Finding(
        "wrong_checksum",
        "attention",
        f"The version's checksum file {what}. checkpoint --repair-checksum replaces it, if the right content can be proved.",
        evidence={"members": members},
    )


def _invalid_property(facts: HealthFacts, _options: HealthOptions) -> Finding | None:
    if not facts.invalid_properties:
        return None
    return Finding(
        "invalid_property",
        "attention",
        " ".join(facts.invalid_properties.values()),
        evidence={"properties": list(facts.invalid_properties)},
    )


#: By code, what looks for the finding.
FINDINGS: dict[str, Callable[[HealthFacts, HealthOptions], Finding | None]] = {
    "unsupported": _unsupported,
    "small_files": _small_files,
    "deleted_rows": _deleted_rows,
    "poor_layout": _poor_layout,
    "checkpoint_due": _checkpoint_due,
    "log_compaction_due": _log_compaction_due,
    "reclaimable_files": _reclaimable_files,
    "expired_log_files": _expired_log_files,
    "wrong_checksum": _wrong_checksum,
    "invalid_property": _invalid_property,
}


# -- advice --------------------------------------------------------------------------------------------------------


def _optimize(facts: HealthFacts, codes: list[str]) -> Advice | None:
    plan, layout = facts.files.optimize, facts.files.layout
    cured = tuple(code for code in codes if code in ("small_files", "deleted_rows", "poor_layout"))
    if layout is not None and "poor_layout" in codes:
        # It rewrites every file that the other plan would, small ones and those with deleted rows.
        advice = _rewrite("optimize", layout.rewrite, cured)
        gain = {"skippedBefore": layout.skipped_now, "skippedAfter": layout.skipped_after}
        return replace(advice, gain={**advice.gain, **{name: round(part, 3) for name, part in gain.items()}})
    if plan is None or "small_files" not in codes:
        return None
    return _rewrite("optimize", plan, cured)


def _purge(facts: HealthFacts, codes: list[str]) -> Advice | None:
    plan = facts.files.purge
    if plan is None or not plan.num_bins or "deleted_rows" not in codes:
        return None
    if "small_files" in codes or "poor_layout" in codes:
        return None
    return _rewrite("purge", plan, ("deleted_rows",))


def _rewrite(operation: str, plan: PlannedRewrite, cured: tuple[str, ...]) -> Advice:
    where = {} if plan.where is None else {"where": plan.where}
    partitions = f" in {plan.num_partitions:,} partitions" if plan.num_partitions > 1 else ""
    return Advice(
        operation,
        {**plan.options, **where},
        cured,
        f"{counted(plan.num_files, 'file')} ({format_bytes(plan.bytes_in)}) → about {plan.num_outputs:,} "
        f"({format_bytes(plan.live_bytes)}){partitions}.",
        {
            "filesBefore": plan.num_files,
            "filesAfter": plan.num_outputs,
            "bytesBefore": plan.bytes_in,
            "bytesAfter": plan.live_bytes,
        },
    )


def _checkpoint(facts: HealthFacts, codes: list[str]) -> Advice | None:
    if "checkpoint_due" not in codes or "checkpoint" in facts.refusals:
        return None
    tail = facts.checkpoint.tail
    return Advice(
        "checkpoint",
        {"if_due": True},
        ("checkpoint_due",),
        f"Readers no longer have to read {tail.commits:,} commits to open the table.",
        {"commitsBefore": tail.commits, "commitsAfter": 0, "bytesBefore": tail.size_bytes, "bytesAfter": 0},
    )


def _compact_log(facts: HealthFacts, codes: list[str]) -> Advice | None:
    plan = facts.compaction
    if plan is None or "log_compaction_due" not in codes or "checkpoint" in facts.refusals:
        return None
    why = f"A reader fetches one file in place of {plan.pieces:,}."
    gain = {"filesBefore": plan.pieces, "filesAfter": 1}
    return Advice("compact-log", {}, ("log_compaction_due",), why, gain)


def _vacuum(facts: HealthFacts, codes: list[str]) -> Advice | None:
    if "reclaimable_files" not in codes or "vacuum" in facts.refusals:
        return None
    total = facts.removed.reclaimable
    return Advice(
        "vacuum",
        {},
        ("reclaimable_files",),
        f"About {format_bytes(total.size_bytes)} become free; files that the log never named are not counted here.",
        {"filesToDelete": total.files, "bytesToDelete": total.size_bytes},
    )


def _cleanup_log(facts: HealthFacts, codes: list[str]) -> Advice | None:
    if "expired_log_files" not in codes or "checkpoint" in facts.refusals:
        return None
    total = facts.log.expired
    return Advice(
        "cleanup-log",
        {},
        ("expired_log_files",),
        f"The log begins with version {facts.log.expired_before} then, and listing it takes {total.files:,} files less.",
        {"filesToDelete": total.files, "bytesToDelete": total.size_bytes},
    )


#: By operation, what recommends it.
RECOMMENDED: dict[str, Callable[[HealthFacts, list[str]], Advice | None]] = {
    "optimize": _optimize,
    "purge": _purge,
    "checkpoint": _checkpoint,
    "compact-log": _compact_log,
    "vacuum": _vacuum,
    "cleanup-log": _cleanup_log,
}
