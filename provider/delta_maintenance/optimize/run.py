"""OPTIMIZE and REORG PURGE, from a wish to a report: look, plan, rewrite, commit.

Each step's decision is made elsewhere by a pure function; this is their order:

1. the gate, and whether this very piece of work was done before;
2. what earlier tries of the run have finished (:mod:`delta_maintenance.optimize.resume`), and the plan of the
   rest, on a fresh snapshot (a dry run ends here);
3. the rewrite of each bin, on the engine that fits, each leaving a manifest;
4. one commit, or one for each batch, under the conflict rules: bins whose sources changed meanwhile are left out;
5. the report. Manifests go when the run is over, and with them what it wrote for bins that nobody can commit any more
   (:mod:`delta_maintenance.optimize.orphans`).

A run that dies anywhere leaves the table whole, at worst with some of its batches committed; the next try takes over
the bins that were finished. A file of which it is not certain that nobody will commit it is left to VACUUM.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from delta_log.errors import DeltaLogError, InvalidRequest
from delta_log.printable import print_traceback
from delta_log.runtime import Runtime
from delta_log.snapshot.snapshot import Snapshot
from delta_log.table import Table
from delta_log.table_config import features as table_features
from delta_log.table_config.features import Operation
from delta_log.table_config.properties import flag
from delta_log.table_config.row_tracking import ENABLED, PRESERVED_TAG
from delta_log.table_config.schema import storable
from delta_log.transaction.transaction import Transaction, find_transaction
from delta_maintenance.contract import MAX_DROPPED, JobReport, JobSpec
from delta_maintenance.engine.choice import ChooseEngine
from delta_maintenance.engine.engine import BinResult, MakeEngine
from delta_maintenance.errors import BadManifest, PlanChanged, TaskFailed, error_report
from delta_maintenance.optimize.batches import Batches, CommitDetails
from delta_maintenance.optimize.manifest_expiry import forget_old_manifests
from delta_maintenance.optimize.metrics import commit_metrics, dropped_bin
from delta_maintenance.optimize.options import OptimizeOptions
from delta_maintenance.optimize.orphans import remove_orphans
from delta_maintenance.optimize.plan.forecast import forecast
from delta_maintenance.optimize.plan.plan import LeftWork, OptimizePlan
from delta_maintenance.optimize.plan.planner import candidates_for_footers, plan_optimize, rewrite_tag
from delta_maintenance.optimize.plan.tasks import tasks_of
from delta_maintenance.optimize.remapping import VectorFiles
from delta_maintenance.optimize.resume import EarlierTries, earlier_tries
from delta_maintenance.plan_file import PlanFile
from delta_maintenance.progress import ProgressReporter
from delta_maintenance.rewrite.bin import forget
from delta_maintenance.rewrite.dropped_columns import files_with_dropped_columns
from delta_maintenance.rewrite.live_rows import row_tracking
from delta_maintenance.rewrite.manifest_file import RunKey, check_outputs
from delta_maintenance.rewrite.task import BinManifest, RewriteTask
from delta_maintenance.rewrite.writer import WriterSettings

#: So many commits are looked through for earlier runs, for a forecast.
_HISTORY = 50
#: Of a digest, at least so much must be given: as much as the plan's text shows.
_MIN_DIGEST = 12


def run(
    spec: JobSpec,
    table: Table,
    choose_engine: ChooseEngine,
    make_engine: MakeEngine,
    progress: ProgressReporter,
    runtime: Runtime,
    run_key: RunKey,
) -> JobReport:
    """Do what the spec asks: an ``optimize``, or a ``purge``.

    :param run_key: what earlier tries of the run have finished is taken over where they had the same key.
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
    options = OptimizeOptions.from_mapping(spec.options, purge=spec.operation == "purge")
    if options.output is not None and not spec.dry_run:
        raise InvalidRequest("output is the place for the plan of a dry run. Leave it out, or plan only.")
    gate = Operation.PURGE if options.purge else Operation.OPTIMIZE
    _require_rewritable(snapshot, gate)
    if spec.dry_run:
        output = PlanFile.of(options.output, table.storage_at) if options.output is not None else None
        plan = _plan(snapshot, table, options, EarlierTries(), started_ms, progress)
        return finished("planned", plan=_told(plan, table, output))
    transaction = Transaction(table.storage, snapshot, gate, runtime)
    if identity is not None:
        done = find_transaction(snapshot, table.storage, identity.app_id, identity.version)
        if done is not None:
            return finished("already_done", version=done)
    earlier = earlier_tries(table.storage, spec.run_id, run_key, snapshot, rewrite_tag(snapshot, options))
    if earlier.num_foreign:
        progress.message(
            f"ignored {earlier.num_foreign:,} files in _maintenance/{spec.run_id} that are no manifests of this run's key"
        )
    plan = _plan(snapshot, table, options, earlier, started_ms, progress)
    if not plan.bins and not earlier.committed and not earlier.finished:
        return finished(
            "nothing_to_do", metrics=commit_metrics(()), left=_left(plan, []), foreign=_foreign(plan)
        )
    choice = choose_engine(spec, plan.bytes_in)
    if choice.engine is None:
        return finished("needs_spark", engine_reason=choice.reason, plan=plan.to_dict())
    batches = Batches.after(
        earlier,
        transaction,
        CommitDetails(
            operation="REORG" if options.purge else "OPTIMIZE",
            parameters=_parameters(options),
            run_id=spec.run_id,
            tags={**spec.tags, **_kept(snapshot)},
            transaction=(identity.app_id, identity.version) if identity is not None else None,
        ),
        options.batch_size_bytes,
        progress,
        runtime,
        VectorFiles(table.storage, runtime.new_id) if options.remap else None,
    )
    work = _Work(plan, batches, options.on_broken_source == "skip")
    facts = {"engine": choice.engine, "engine_reason": choice.reason}
    limit = options.max_duration_seconds
    tasks = tasks_of(
        plan, snapshot, spec.run_id, table.uri, None if limit is None else started_ms + 1000 * limit
    )
    try:
        if tasks:
            progress.start(len(tasks), plan.bytes_in)
            work.take(tasks, make_engine(choice.engine).run(tasks, progress, run_key))
        work.end()
    except Exception as error:
        if not batches.num_batches:
            raise
        if not isinstance(error, DeltaLogError):
            print_traceback(error)
        return finished("failed", error=error_report(error), **facts, **work.facts())
    spent = [*earlier.manifests, *work.manifests]
    lost = [*earlier.stale, *(manifest for manifest, _ in batches.dropped)]
    _clean_up(spent, lost, table, options, progress, runtime.now_ms())
    status = "already_done" if batches.already_done else "committed"
    return finished(status, **facts, **work.facts())


def _require_rewritable(snapshot: Snapshot, gate: Operation) -> None:
    """What a run is refused for, its dry run is refused for.

    :raises DeltaLogError: a file of this table cannot be written.
    """
    table_features.require(snapshot.protocol, gate, snapshot.unused_features)
    storable(snapshot.schema.without(snapshot.partition_columns))
    row_tracking(snapshot.properties)
    WriterSettings.codec_of(snapshot.properties)


def _clean_up(
    spent: list[BinManifest],
    lost: Sequence[BinManifest],
    table: Table,
    options: OptimizeOptions,
    progress: ProgressReporter,
    now_ms: int,
) -> None:
    """The run is over and done; what cannot be tidied up is no failure of it.

    :param spent: manifests that nobody needs any more. They go first: files are orphans only once nobody can learn of them.
    :param lost: those of them whose bins were not committed.
    """
    try:
        forget(spent, table.storage)
        if lost:
            removed = remove_orphans(lost, table.snapshot(), table.storage, remap=options.remap)
            progress.message(f"removed {len(removed):,} files of {len(lost):,} bins that were not committed")
        forget_old_manifests(table, now_ms)
    except (DeltaLogError, OSError) as error:
        progress.message(f"left for another run or for VACUUM: {error}")


def _plan(
    snapshot: Snapshot,
    table: Table,
    options: OptimizeOptions,
    earlier: EarlierTries,
    now_ms: int,
    progress: ProgressReporter,
) -> OptimizePlan:
    """
    :raises PlanChanged: another one was approved.
    """
    prior, dropped = earlier.prior_work(), []
    if options.looks_for_dropped_columns:
        keys = candidates_for_footers(snapshot, options)
        progress.message(f"looking for dropped columns in {len(keys):,} files")
        dropped = list(files_with_dropped_columns(table.storage, snapshot, keys))
    plan = plan_optimize(snapshot, options, now_ms, prior, dropped)
    approved = options.approved_digest
    if approved is not None and (len(approved) < _MIN_DIGEST or not plan.digest.startswith(approved)):
        raise PlanChanged(approved, plan.digest)
    return plan


def _told(plan: OptimizePlan, table: Table, output: PlanFile | None) -> dict[str, Any]:
    """The summary of a dry run."""
    expected = forecast(plan.bytes_in, table.history(_HISTORY)) if plan.bins else None
    facts: dict[str, Any] = plan.to_dict() | (expected.to_dict() if expected is not None else {})
    if output is not None:
        output.write(plan.lines())
        facts["uri"] = output.uri
    return facts


def _kept(snapshot: Snapshot) -> dict[str, str]:
    """For readers of the log, that the rows of a table that tracks them are still the same."""
    return {PRESERVED_TAG: "true"} if flag(snapshot.properties, ENABLED) else {}


def _parameters(options: OptimizeOptions) -> dict[str, Any]:
    """``operationParameters`` as Spark has them."""
    predicate = {"predicate": [options.where] if options.where else []}
    if options.purge:
        return {**predicate, "applyPurge": True}
    return {**predicate, "zOrderBy": [], "clusterBy": [], "auto": False}


def _foreign(plan: OptimizePlan) -> dict[str, Any] | None:
    """What no run will ever do."""
    return plan.foreign.to_dict() if plan.foreign.files else None


def _left(plan: OptimizePlan, not_done: Sequence[str]) -> dict[str, int] | None:
    """What another run has to do, in numbers."""
    missing = set(not_done)
    late = LeftWork.of([planned for planned in plan.bins if planned.bin_id in missing])
    left = plan.left_by_budget.plus(plan.left_as_hot).plus(late)
    return {"bins": left.bins, "files": left.files, "bytes": left.bytes} if left.bins else None


def _check_answer(manifest: BinManifest, task: RewriteTask) -> None:
    """
    :raises BadManifest: the manifest does not answer the task.
    """
    why = manifest.differs_from(task)
    if why is not None:
        raise BadManifest(f"bin {task.bin_id}: {why}")
    check_outputs(manifest)


@dataclass(slots=True)
class _Work:
    """The bins of a run, as they come from the engine.

    :param skips_broken: a bin with a source that cannot be read is left out, and the others go on.
    """

    plan: OptimizePlan
    batches: Batches
    skips_broken: bool
    manifests: list[BinManifest] = field(default_factory=list)
    broken: list[TaskFailed] = field(default_factory=list)

    def take(self, tasks: Sequence[RewriteTask], results: Iterator[BinResult]) -> None:
        """
        :param tasks: those that the engine was given.
        :raises TaskFailed: a bin's sources cannot be read.
        :raises BadManifest: what the engine gave back is not what it was asked for.
        :raises CommitFailed: the table is not the one any more that was planned on.
        """
        expected = len(self.plan.bins)
        numbers = {planned.bin_id: number for number, planned in enumerate(self.plan.bins)}
        for result in results:
            number = numbers.pop(result.bin_id, None)
            if number is None:
                raise BadManifest(f"bin {result.bin_id} was not asked for, or came back twice")
            if isinstance(result, TaskFailed):
                if not self.skips_broken:
                    raise result
                self.broken.append(result)
                self.batches.progress.message(f"left out bin {result.bin_id}: {result}")
                continue
            _check_answer(result, tasks[number])
            self.manifests.append(result)
            self.batches.add(result, more_to_come=len(self.manifests) + len(self.broken) < expected)

    def end(self) -> None:
        """
        :raises TaskFailed: every bin that there was is broken.
        :raises CommitFailed: nothing of the run is in the table.
        """
        self.batches.finish({planned.bin_id: number for number, planned in enumerate(self.plan.bins)})
        if self.broken and self.batches.version is None:
            raise self.broken[0]

    def facts(self) -> dict[str, Any]:
        """For the report."""
        batches = self.batches
        done = {manifest.bin_id for manifest in self.manifests} | {task.bin_id for task in self.broken}
        dropped = [dropped_bin(manifest, conflict) for manifest, conflict in batches.dropped[:MAX_DROPPED]]
        broken = [task.report.to_dict() for task in self.broken[:MAX_DROPPED]]
        return {
            "version": batches.version,
            "metrics": {} if batches.already_done else commit_metrics(batches.committed),
            "num_batches": batches.num_batches if batches.size_bytes is not None else None,
            "dropped_bins": len(batches.dropped),
            "dropped": dropped or None,
            "remapped_bins": batches.remapped,
            "broken_bins": len(self.broken),
            "broken": broken or None,
            "left": _left(self.plan, [b.bin_id for b in self.plan.bins if b.bin_id not in done]),
            "foreign": _foreign(self.plan),
        }
