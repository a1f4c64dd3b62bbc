"""CHECKPOINT, from a wish to a report: look, decide, write, point, and look after the log where that is asked for.

It needs no engine: the state is streamed through this process, however many files there are. No version is added to the
table, and doing it twice does no harm, so that a run needs no transaction. All that can refuse comes first: what would be
compacted, repaired or cleaned is decided before anything is written.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from delta_log.checkpoint.writer import write_checkpoint
from delta_log.runtime import Runtime
from delta_log.table import Table
from delta_log.table_config import features as table_features
from delta_log.table_config.features import Operation
from delta_log.transaction.post_commit import checkpoint_interval
from delta_log.upkeep.checksum_repair import ChecksumVerdict, examine, repair
from delta_maintenance.contract import JobReport, JobSpec
from delta_maintenance.log_upkeep.log_cleanup import clean_up, survey
from delta_maintenance.log_upkeep.log_compaction import compact_log
from delta_maintenance.log_upkeep.log_tail import tail_of
from delta_maintenance.log_upkeep.options import CheckpointOptions
from delta_maintenance.log_upkeep.plan.checkpoint import plan_checkpoint
from delta_maintenance.log_upkeep.plan.log_compaction import plan_log_compaction
from delta_maintenance.progress import ProgressReporter


def run(
    spec: JobSpec,
    table: Table,
    progress: ProgressReporter,
    runtime: Runtime,
) -> JobReport:
    """Do what the spec asks.

    :raises DeltaLogError: nothing that a reader would take for a checkpoint was written.
    :raises LogCleanupIncomplete: all else was done; of the log's old files some are left.
    """
    started_ms = runtime.now_ms()
    options = CheckpointOptions.from_mapping(spec.options)
    storage, snapshot = table.storage, table.snapshot()
    table_features.require(snapshot.protocol, Operation.CHECKPOINT)
    tail, pieces = tail_of(storage, snapshot)
    plan = plan_checkpoint(tail, checkpoint_interval(snapshot.properties))
    compaction = plan_log_compaction(pieces)
    verdict = examine(storage, snapshot) if options.repair_checksum else None
    cleanup = survey(storage, snapshot, started_ms, progress) if options.cleanup_log else None
    told: dict[str, Any] = {**plan.to_dict(), "logCompaction": compaction.to_dict()}
    if verdict is not None:
        told["checksum"] = _told(verdict)
    if cleanup is not None:
        told["logCleanup"] = cleanup.to_dict()
    report = JobReport(
        operation=spec.operation,
        table=spec.table,
        status="planned",
        run_id=spec.run_id,
        read_version=snapshot.version,
        started_ms=started_ms,
        plan=told,
    )
    if spec.dry_run:
        return replace(report, finished_ms=runtime.now_ms())
    metrics: dict[str, Any] = {}
    written, version = False, None
    if verdict is not None:
        # First of all, since a checkpoint is not written beside a checksum that contradicts it.
        repaired = repair(storage, snapshot, verdict)
        written = repaired
        told["checksum"] |= {"repaired": repaired}
    if plan.due or not options.if_due:
        progress.message(f"checkpoint of version {snapshot.version}: {'; '.join(plan.reasons)}")
        result = write_checkpoint(
            storage,
            snapshot,
            runtime,
            options.policy,
            top_format=options.top_format,
            incremental=not options.full,
        )
        metrics |= {
            "size": result.actions,
            "numOfAddFiles": result.num_add_files,
            "sizeInBytes": result.size_bytes,
            "numCheckpointFiles": len(result.keys),
            "numReusedSidecars": result.reused_sidecars,
        }
        told["checkpointWritten"] = not result.already_there
        if result.warnings:
            told["warnings"] = list(result.warnings)
        written, version = written or not result.already_there, result.version
    elif options.compact_log and compaction.worth_it:
        progress.message(compaction.reason)
        compacted = compact_log(storage, snapshot, compaction)
        metrics |= compacted
        written = written or bool(compacted)
    status = "written" if written else "nothing_to_do"
    if cleanup is not None:
        done, deleted = clean_up(storage, snapshot, cleanup, runtime, progress)
        told["logCleanup"] |= done
        metrics |= deleted
        if not written and not cleanup.is_empty:
            status = "cleaned"
    return replace(
        report, status=status, version=version, metrics=metrics, plan=told, finished_ms=runtime.now_ms()
    )


def _told(verdict: ChecksumVerdict) -> dict[str, Any]:
    return {
        "state": verdict.state,
        "disagreements": list(verdict.disagreements),
        "provedBy": verdict.proof,
    }
