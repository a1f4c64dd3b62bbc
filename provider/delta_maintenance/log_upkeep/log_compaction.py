"""A log compaction on request, from a wish to a report."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from delta_log.runtime import Runtime
from delta_log.snapshot.snapshot import Snapshot
from delta_log.storage.storage import Storage
from delta_log.table import Table
from delta_log.table_config import features as table_features
from delta_log.table_config.features import Operation
from delta_log.upkeep.log_compaction import write_log_compaction
from delta_maintenance.contract import JobReport, JobSpec
from delta_maintenance.log_upkeep.log_tail import tail_of
from delta_maintenance.log_upkeep.options import COMPACT_LOG
from delta_maintenance.log_upkeep.plan.log_compaction import LogCompactionPlan, plan_log_compaction
from delta_maintenance.progress import ProgressReporter


def run(spec: JobSpec, table: Table, progress: ProgressReporter, runtime: Runtime) -> JobReport:
    """Do what the spec asks.

    :raises DeltaLogError: nothing was written that a reader would take for a compaction.
    """
    started_ms = runtime.now_ms()
    COMPACT_LOG.require_known(spec.options)
    snapshot = table.snapshot()
    table_features.require(snapshot.protocol, Operation.CHECKPOINT)
    _, pieces = tail_of(table.storage, snapshot)
    plan = plan_log_compaction(pieces)
    report = JobReport(
        operation=spec.operation,
        table=spec.table,
        status="planned",
        run_id=spec.run_id,
        read_version=snapshot.version,
        started_ms=started_ms,
        plan=plan.to_dict(),
    )
    if not spec.dry_run:
        progress.message(plan.reason)
        metrics = {} if plan.start is None else compact_log(table.storage, snapshot, plan)
        if metrics:
            report = replace(report, status="written", metrics=metrics, version=plan.end)
        else:
            told = plan if plan.start is None else _nothing_left(plan)
            report = replace(report, status="nothing_to_do", plan=told.to_dict())
    return replace(report, finished_ms=runtime.now_ms())


def _nothing_left(plan: LogCompactionPlan) -> LogCompactionPlan:
    why = f"the commits {plan.start} to {plan.end} come to nothing at all: there is nothing to write"
    return replace(plan, worth_it=False, reason=why)


def compact_log(storage: Storage, snapshot: Snapshot, plan: LogCompactionPlan) -> dict[str, Any]:
    """Write what a plan says; gives metrics, or none where the commits come to nothing.

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
