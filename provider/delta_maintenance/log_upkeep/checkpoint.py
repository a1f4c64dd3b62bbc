"""Runs CHECKPOINT: writes a checkpoint of the latest version and, if asked, looks after the rest of the log.

No engine takes part: the state is streamed through this process, however many files the table has. A run adds no version
and may be repeated, so it needs no transaction. Whatever can be refused is refused before the first write: the plan
covers the repair of the checksum, the checkpoint, the log compaction and the log cleanup.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct, field

from delta_log.checkpoint.writer import write_checkpoint
from delta_log.errors import InvalidProperty
from delta_log.snapshot.snapshot import Snapshot
from delta_log.table_config import features as table_features
from delta_log.table_config.features import Operation
from delta_log.transaction.post_commit import checkpoint_interval
from delta_log.upkeep.checksum_repair import ChecksumVerdict, examine, repair
from delta_maintenance.contract import JobReport, JobSpec
from delta_maintenance.job_context import JobContext
from delta_maintenance.log_upkeep.log_cleanup import clean_up, plan_log_cleanup
from delta_maintenance.log_upkeep.log_compaction import compact_log
from delta_maintenance.log_upkeep.options import CheckpointOptions
from delta_maintenance.log_upkeep.plan.checkpoint import CheckpointPlan, plan_checkpoint
from delta_maintenance.log_upkeep.plan.log_cleanup import LogCleanupPlan
from delta_maintenance.log_upkeep.plan.log_compaction import LogCompactionPlan, plan_log_compaction
from delta_maintenance.log_upkeep.replay_cost import replay_cost


def run(spec: JobSpec, context: JobContext) -> JobReport:
    """Write a checkpoint, or plan one.

    :raises DeltaLogError: nothing that a reader would take for a checkpoint was written.
    :raises LogCleanupIncomplete: everything else is done, and some old files of the log are left.
    """
    options = CheckpointOptions.from_mapping(spec.options)
    snapshot = context.table.snapshot()
    context.saw(snapshot)
    table_features.require(snapshot.protocol, Operation.CHECKPOINT)
    plan = _plan(context, snapshot, options)
    if spec.dry_run:
        return context.report(spec, "planned", snapshot.version, plan=plan.to_dict())
    done = _Done(plan.to_dict())
    if plan.checksum is not None:
        # The checksum comes first: no checkpoint is written beside a checksum that contradicts it.
        done.repair_checksum(context, snapshot, plan.checksum)
    if plan.checkpoint.due or not options.if_due:
        done.write_checkpoint(context, snapshot, plan.checkpoint, options)
    elif options.compact_log and plan.compaction.worth_it:
        done.compact_log(context, snapshot, plan.compaction)
    if plan.cleanup is not None:
        done.clean_up(context, snapshot, plan.cleanup)
    context.saw(snapshot, done.version)
    return context.report(
        spec, done.status, snapshot.version, version=done.version, metrics=done.metrics, plan=done.facts
    )


class _Plan(Struct, frozen=True):
    """
    :param warnings: sentences for people.
    :param checksum: ``None``: the checksum is not looked at.
    :param cleanup: ``None``: the log is not cleaned up.
    """

    checkpoint: CheckpointPlan
    compaction: LogCompactionPlan
    checksum: ChecksumVerdict | None
    cleanup: LogCleanupPlan | None
    warnings: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        facts: dict[str, Any] = {**self.checkpoint.to_dict(), "logCompaction": self.compaction.to_dict()}
        if self.checksum is not None:
            facts["checksum"] = {
                "state": self.checksum.state,
                "disagreements": list(self.checksum.disagreements),
                "provedBy": self.checksum.proof,
            }
        if self.cleanup is not None:
            facts["logCleanup"] = self.cleanup.to_dict()
        if self.warnings:
            facts["warnings"] = list(self.warnings)
        return facts


def _plan(context: JobContext, snapshot: Snapshot, options: CheckpointOptions) -> _Plan:
    storage = context.table.storage
    tail, pieces = replay_cost(storage, snapshot)
    warnings: tuple[str, ...] = ()
    try:
        interval = checkpoint_interval(snapshot.properties)
    except InvalidProperty as error:
        if options.if_due:
            raise
        # The checkpoint is written whether it is due or not.
        interval, warnings = checkpoint_interval({}), (str(error),)
    return _Plan(
        plan_checkpoint(tail, interval),
        plan_log_compaction(pieces),
        examine(storage, snapshot) if options.repair_checksum else None,
        plan_log_cleanup(storage, snapshot, context.started_ms, context.progress)
        if options.cleanup_log
        else None,
        warnings,
    )


class _Done(Struct):
    """What the run has done so far.

    :param facts: facts of the plan; each step adds its own.
    :ivar version: version of the checkpoint.
    """

    facts: dict[str, Any]
    metrics: dict[str, Any] = field(default_factory=dict)
    version: int | None = None
    has_written: bool = False
    has_cleaned: bool = False

    @property
    def status(self) -> str:
        if self.has_written:
            return "written"
        return "cleaned" if self.has_cleaned else "nothing_to_do"

    def repair_checksum(self, context: JobContext, snapshot: Snapshot, verdict: ChecksumVerdict) -> None:
        repaired = repair(context.table.storage, snapshot, verdict)
        self.facts["checksum"] |= {"repaired": repaired}
        self.has_written |= repaired

    def write_checkpoint(
        self, context: JobContext, snapshot: Snapshot, plan: CheckpointPlan, options: CheckpointOptions
    ) -> None:
        context.progress.message(f"checkpoint of version {snapshot.version}: {'; '.join(plan.reasons)}")
        result = write_checkpoint(
            context.table.storage,
            snapshot,
            context.runtime,
            options.policy,
            top_format=options.top_format,
            incremental=not options.full,
        )
        self.metrics |= {
            "size": result.actions,
            "numOfAddFiles": result.num_add_files,
            "sizeInBytes": result.size_bytes,
            "numCheckpointFiles": len(result.keys),
            "numReusedSidecars": result.reused_sidecars,
        }
        self.facts["checkpointWritten"] = not result.already_there
        if result.warnings:
            self.facts["warnings"] = [*self.facts.get("warnings", ()), *result.warnings]
        self.has_written |= not result.already_there
        self.version = result.version

    def compact_log(self, context: JobContext, snapshot: Snapshot, plan: LogCompactionPlan) -> None:
        context.progress.message(plan.reason)
        metrics = compact_log(context.table.storage, snapshot, plan)
        self.metrics |= metrics
        self.has_written |= bool(metrics)

    def clean_up(self, context: JobContext, snapshot: Snapshot, plan: LogCleanupPlan) -> None:
        facts, metrics = clean_up(context.table.storage, snapshot, plan, context.runtime, context.progress)
        self.facts["logCleanup"] |= facts
        self.metrics |= metrics
        self.has_cleaned = not plan.is_empty
