"""Runs COMPACT LOG: puts commits since the newest checkpoint into one file."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from delta_log.snapshot.snapshot import Snapshot
from delta_log.storage.storage import Storage
from delta_log.table_config import features as table_features
from delta_log.table_config.features import Operation
from delta_log.upkeep.log_compaction import write_log_compaction
from delta_maintenance.contract import JobReport, JobSpec
from delta_maintenance.job_context import JobContext
from delta_maintenance.log_upkeep.options import COMPACT_LOG
from delta_maintenance.log_upkeep.plan.log_compaction import LogCompactionPlan, plan_log_compaction
from delta_maintenance.log_upkeep.replay_cost import replay_cost


def run(spec: JobSpec, context: JobContext) -> JobReport:
    """Write a log compaction, or plan one.

    :raises DeltaLogError: nothing was written that a reader would take for a compaction.
    """
    table = context.table
    COMPACT_LOG.require_known(spec.options)
    snapshot = table.snapshot()
    table_features.require(snapshot.protocol, Operation.CHECKPOINT)
    _, pieces = replay_cost(table.storage, snapshot)
    plan = plan_log_compaction(pieces)
    if spec.dry_run:
        return context.report(spec, "planned", snapshot.version, plan=plan.to_dict())
    context.progress.message(plan.reason)
    metrics = {} if plan.start is None else compact_log(table.storage, snapshot, plan)
    if not metrics:
        plan = plan if plan.start is None else nothing_left(plan)
        return context.report(spec, "nothing_to_do", snapshot.version, plan=plan.to_dict())
    return context.report(
        spec, "written", snapshot.version, plan=plan.to_dict(), metrics=metrics, version=plan.end
    )


def nothing_left(plan: LogCompactionPlan) -> LogCompactionPlan:
    why = f"the commits {plan.start} to {plan.end} come to nothing at all: there is nothing to write"
    return replace(plan, worth_it=False, reason=why)


def compact_log(storage: Storage, snapshot: Snapshot, plan: LogCompactionPlan) -> dict[str, Any]:
    """Write the log compaction of a plan.

    :return: metrics; none where the commits cancel each other out and nothing was written.

    :raises DeltaLogError: see :func:`~delta_log.upkeep.log_compaction.write_log_compaction`.
    """
    assert plan.start is not None
    assert plan.end is not None
    result = write_log_compaction(storage, snapshot, plan.start, plan.end)
    if result is None:
        return {}
    return {
        "numCompactedCommits": result.end - result.start + 1,
        "numCompactedActions": result.actions,
        "sizeOfCompactedCommits": result.commits_bytes,
        "sizeOfLogCompaction": result.size_bytes,
    }
