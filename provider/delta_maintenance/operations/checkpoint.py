"""CHECKPOINT, from a wish to a report: look, decide, write, point.

It needs no engine: the state is streamed through this process, however many files there are. No version is added to the
table, and doing it twice does no harm, so that a run needs no transaction.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

from delta_log import table_features
from delta_log.checkpoint_writer import CheckpointPolicy, write_checkpoint
from delta_log.errors import InvalidRequest
from delta_log.post_commit import checkpoint_interval
from delta_log.runtime import Runtime
from delta_log.snapshot import Snapshot
from delta_log.table import Table
from delta_log.table_features import Operation
from delta_maintenance.contract import CHECKPOINT_POLICIES, JobReport, JobSpec
from delta_maintenance.plan.checkpoint import LogTail, plan_checkpoint
from delta_maintenance.progress import ProgressReporter


@dataclass(frozen=True, slots=True)
class CheckpointOptions:
    """
    :param policy: ``classic`` or ``v2``; ``None``: what the table's ``delta.checkpointPolicy`` says.
    :param if_due: only where the plan finds it due.
    """

    policy: CheckpointPolicy | None = None
    if_due: bool = False

    @classmethod
    def from_mapping(cls, options: Mapping[str, Any]) -> CheckpointOptions:
        """
        :raises InvalidRequest: an option is unknown or makes no sense.
        """
        unknown = sorted(set(options) - {"policy", "if_due"})
        if unknown:
            raise InvalidRequest(f"CHECKPOINT has no option {', '.join(unknown)}. It has policy and if_due.")
        policy, if_due = options.get("policy"), options.get("if_due", False)
        if policy not in (None, *CHECKPOINT_POLICIES):
            raise InvalidRequest(
                f"The checkpoint policy {policy!r} is not one of {', '.join(CHECKPOINT_POLICIES)}."
            )
        if not isinstance(if_due, bool):
            raise InvalidRequest(f"if_due is {if_due!r}, not true or false.")
        return cls(cast("CheckpointPolicy | None", policy), if_due)


def run(
    spec: JobSpec,
    table: Table,
    progress: ProgressReporter,
    runtime: Runtime,
) -> JobReport:
    """Do what the spec asks.

    :raises DeltaLogError: nothing that a reader would take for a checkpoint was written.
    """
    started_ms = runtime.now_ms()
    options = CheckpointOptions.from_mapping(spec.options)
    snapshot = table.snapshot()
    table_features.require(snapshot.protocol, Operation.CHECKPOINT)
    plan = plan_checkpoint(_tail_of(snapshot), checkpoint_interval(snapshot.properties))
    report = JobReport(
        operation=spec.operation,
        table=spec.table,
        status="nothing_to_do",
        run_id=spec.run_id,
        read_version=snapshot.version,
        started_ms=started_ms,
        plan=plan.to_dict(),
    )

    def finished(status: str, **facts: Any) -> JobReport:
        return replace(report, status=status, finished_ms=runtime.now_ms(), **facts)

    if spec.dry_run:
        return finished("planned")
    if options.if_due and not plan.due:
        return finished("nothing_to_do")
    progress.message(f"checkpoint of version {snapshot.version}: {'; '.join(plan.reasons)}")
    result = write_checkpoint(table.storage, snapshot, runtime, options.policy)
    metrics = {
        "size": result.actions,
        "numOfAddFiles": result.num_add_files,
        "sizeInBytes": result.size_bytes,
        "numCheckpointFiles": len(result.keys),
    }
    status = "nothing_to_do" if result.already_there else "written"
    return finished(status, version=result.version, metrics=metrics)


def _tail_of(snapshot: Snapshot) -> LogTail:
    return LogTail(
        snapshot.version,
        snapshot.checkpoint_version,
        snapshot.commits_since_checkpoint,
        snapshot.bytes_since_checkpoint,
    )
