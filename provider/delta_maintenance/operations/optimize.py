"""OPTIMIZE, from a wish to a report: look, plan, rewrite, commit.

Each step's decision is made elsewhere by a pure function; this is their order:

1. the gate, and whether this very piece of work was done before;
2. the plan, on a fresh snapshot (a dry run ends here);
3. the rewrite of each bin, on the engine that fits, each leaving a manifest;
4. one commit, under the conflict rules: bins whose sources changed meanwhile are left out of it;
5. the report. Manifests go when the commit stands.

A run that dies anywhere before 4 has changed nothing, and neither has one whose commit was refused; the next try takes
over the bins that were finished. Files are never deleted here, not even after a lost race: another try of the same run
may hold the same manifests and be about to commit them, or have done so. What nobody commits is left to VACUUM.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from typing import Any

from delta_log.actions import Add, DeletionVector, Remove
from delta_log.change import Change, FileGroup
from delta_log.runtime import Runtime
from delta_log.schema import storable
from delta_log.snapshot import Snapshot
from delta_log.table import Table
from delta_log.table_features import Operation
from delta_log.transaction import Transaction, find_transaction
from delta_maintenance.contract import MAX_DROPPED, JobReport, JobSpec
from delta_maintenance.engine.engine import ChooseEngine, Engine, MakeEngine
from delta_maintenance.metrics import commit_metrics, dropped_bin
from delta_maintenance.plan.optimize import plan_optimize
from delta_maintenance.plan.optimize_plan import OptimizePlan
from delta_maintenance.plan.options import OptimizeOptions
from delta_maintenance.plan.tasks import tasks_of
from delta_maintenance.progress import ProgressReporter
from delta_maintenance.rewrite.bin import forget
from delta_maintenance.rewrite.task import BinManifest, SourceFile


def run(
    spec: JobSpec,
    table: Table,
    choose_engine: ChooseEngine,
    make_engine: MakeEngine,
    progress: ProgressReporter,
    runtime: Runtime,
) -> JobReport:
    """Do what the spec asks.

    :raises DeltaLogError: nothing was committed.
    """
    started_ms = runtime.now_ms()
    snapshot = table.snapshot()
    report = JobReport(
        operation=spec.operation,
        table=spec.table,
        status="nothing_to_do",
        run_id=spec.run_id,
        read_version=snapshot.version,
        transaction=spec.transaction,
        started_ms=started_ms,
    )

    def finished(status: str, **facts: Any) -> JobReport:
        return replace(report, status=status, finished_ms=runtime.now_ms(), **facts)

    identity = spec.transaction
    options = OptimizeOptions.from_mapping(spec.options)
    if not spec.dry_run:
        transaction = Transaction(table.storage, snapshot, Operation.OPTIMIZE, runtime)
        storable(snapshot.schema.without(snapshot.partition_columns))
        if identity is not None:
            done = find_transaction(snapshot, table.storage, identity.app_id, identity.version)
            if done is not None:
                return finished("already_done", version=done)
    plan = plan_optimize(snapshot, options, started_ms)
    if spec.dry_run:
        return finished("planned", plan=plan.to_dict())
    if not plan.bins:
        return finished("nothing_to_do", metrics=commit_metrics(()))
    choice = choose_engine(spec, plan.bytes_in)
    if choice.engine is None:
        return finished("needs_spark", engine_reason=choice.reason, plan=plan.to_dict())
    manifests = _rewrite(plan, spec, snapshot, table.uri, make_engine(choice.engine), progress)
    change = Change(
        operation="OPTIMIZE",
        groups=[_group(manifest, runtime.now_ms()) for manifest in manifests],
        parameters={
            "predicate": [options.where] if options.where else [],
            "zOrderBy": [],
            "clusterBy": [],
            "auto": False,
        },
        metrics=lambda kept: commit_metrics([manifests[number] for number in kept]),
        transaction=(identity.app_id, identity.version) if identity is not None else None,
        tags={**spec.tags, "delta-maintenance.run": spec.run_id},
    )
    progress.message(f"committing {len(manifests)} bins")
    result = transaction.commit(change)
    forget(manifests, table.storage)
    if result.already_done:
        return finished("already_done", version=result.version)
    for number, conflict in result.dropped.items():
        progress.message(f"left out bin {manifests[number].bin_id}: {conflict}")
    return finished(
        "committed",
        version=result.version,
        engine=choice.engine,
        engine_reason=choice.reason,
        metrics=commit_metrics([m for n, m in enumerate(manifests) if n not in result.dropped]),
        dropped_bins=len(result.dropped),
        dropped=[
            dropped_bin(manifests[number], conflict)
            for number, conflict in islice(result.dropped.items(), MAX_DROPPED)
        ]
        or None,
    )


def _rewrite(
    plan: OptimizePlan,
    spec: JobSpec,
    snapshot: Snapshot,
    table_uri: str,
    engine: Engine,
    progress: ProgressReporter,
) -> list[BinManifest]:
    tasks = tasks_of(plan, snapshot, spec.run_id, table_uri)
    progress.start(len(tasks), plan.bytes_in)
    # In the plan's order, so that equal work gives equal commits.
    order = {task.bin_id: index for index, task in enumerate(tasks)}
    manifests = list(engine.run(tasks, progress))
    return sorted(manifests, key=lambda manifest: order[manifest.bin_id])


def _group(manifest: BinManifest, now_ms: int) -> FileGroup:
    adds = [
        Add(
            path=output.path,
            partitionValues=dict(manifest.partition_values),
            size=output.size_bytes,
            modificationTime=output.modification_time_ms,
            dataChange=False,
            stats=output.stats,
            tags=dict(output.tags) or None,
        )
        for output in manifest.outputs
    ]
    return FileGroup(adds, [_remove(source, now_ms) for source in manifest.sources])


def _remove(source: SourceFile, now_ms: int) -> Remove:
    vector = source.deletion_vector
    return Remove(
        path=source.path,
        deletionTimestamp=now_ms,
        dataChange=False,
        extendedFileMetadata=True,
        partitionValues=dict(source.partition_values),
        size=source.size_bytes,
        tags=dict(source.tags) if source.tags else None,
        deletionVector=DeletionVector(**vector) if vector is not None else None,
        baseRowId=source.base_row_id,
        defaultRowCommitVersion=source.default_row_commit_version,
    )
