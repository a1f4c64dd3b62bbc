"""Runs OPTIMIZE and REORG PURGE: plan, rewrite, commit, report.

Pure functions in other modules decide each step. This module puts them in order:

1. Check that the table may be rewritten, and whether this transaction was committed before.
2. Find what earlier tries of the run have finished (:mod:`delta_maintenance.optimize.commit.resume`), and plan the rest on a
   fresh snapshot. A dry run ends here.
3. Rewrite each bin on the chosen engine. Each bin leaves a manifest.
4. Commit once, or once per batch, under the conflict rules, and perhaps only when other writers lose least by it. Bins
   whose sources changed meanwhile are left out.
5. Report. Delete the manifests of the run, and the files of bins that no try can commit any more
   (:mod:`delta_maintenance.optimize.commit.orphans`).

A run that dies leaves the table consistent, at worst with some of its batches committed. Its next try takes over the
finished bins. A file that another try might still commit is left to VACUUM.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field
from msgspec.structs import replace

from delta_log.errors import DeltaLogError, InvalidRequest, VersionNotFound
from delta_log.snapshot.snapshot import Snapshot
from delta_log.table_config.features import Operation
from delta_log.table_config.row_tracking import preserving_tags
from delta_log.transaction.transaction import Transaction, find_transaction
from delta_maintenance.contract import MAX_COLUMNS, MAX_DROPPED, JobReport, JobSpec
from delta_maintenance.engine.engine import BinResult
from delta_maintenance.errors import (
    BadManifest,
    OperationLost,
    PlanChanged,
    TaskFailed,
    error_report,
    log_failure,
)
from delta_maintenance.job_context import JobContext
from delta_maintenance.layout.layout import ZORDER
from delta_maintenance.optimize.commit.batches import Batches, CommitDetails
from delta_maintenance.optimize.commit.gap_wait import GapWait
from delta_maintenance.optimize.commit.orphans import forget_old_manifests, remove_orphans
from delta_maintenance.optimize.commit.remapping import VectorFiles
from delta_maintenance.optimize.commit.resume import EarlierTries, find_earlier_tries
from delta_maintenance.optimize.dropped_columns import files_with_dropped_columns
from delta_maintenance.optimize.forecast.copy_forecast import copy_forecast
from delta_maintenance.optimize.forecast.duration_forecast import forecast
from delta_maintenance.optimize.forecast.layout_forecast import layout_forecast, measured_skipping
from delta_maintenance.optimize.metrics import commit_metrics, dropped_bin, partition_changes
from delta_maintenance.optimize.options import OptimizeOptions
from delta_maintenance.optimize.plan.candidates import candidates_for_footers
from delta_maintenance.optimize.plan.plan import LeftWork, OptimizePlan
from delta_maintenance.optimize.plan.planner import plan_optimize
from delta_maintenance.optimize.plan.rewrite_tag import rewrite_tag
from delta_maintenance.optimize.plan.table_layout import TableLayout
from delta_maintenance.optimize.tasks import require_no_links, require_rewritable, tasks_of
from delta_maintenance.plan_file import PlanFile
from delta_maintenance.rewrite.bin import forget
from delta_maintenance.rewrite.manifest.manifest_file import check_outputs
from delta_maintenance.rewrite.task import BinManifest, RewriteTask
from delta_maintenance.text.plan import rewrite_lines
from delta_maintenance.text.selection import taken_over_text

if TYPE_CHECKING:
    from delta_maintenance.engine.connect.detached_rewrite import DetachedRewrite

#: How many commits a forecast searches for earlier runs.
_HISTORY = 50
#: The shortest prefix of a digest that approves a plan; the plan's text shows as many characters.
_MIN_DIGEST = 12


def run(spec: JobSpec, context: JobContext) -> JobReport:
    """Rewrite files of a table (``optimize`` or ``purge``), or plan it.

    On a Spark Connect server, one job may begin the rewrite and another one finish it
    (:class:`~delta_maintenance.engine.connect.detached_rewrite.DetachedRewrite`). If the server loses the rewrite, the second job begins
    another one for the bins that are left.

    :raises DeltaLogError: nothing was committed.
    """
    table, snapshot = context.table, _snapshot(context)
    context.saw(snapshot)

    def report(status: str, **facts: Any) -> JobReport:
        return context.report(spec, status, snapshot.version, transaction=spec.transaction, **facts)

    options = OptimizeOptions.from_mapping(spec.options, purge=spec.operation == "purge")
    if options.output is not None and not spec.dry_run:
        raise InvalidRequest("output is the place for the plan of a dry run. Leave it out, or plan only.")
    gate = Operation.PURGE if options.purge else Operation.OPTIMIZE
    require_rewritable(snapshot, gate)
    if spec.dry_run:
        return report("planned", plan=_dry_run(context, snapshot, options))
    if spec.transaction is not None:
        app_id, version = spec.transaction.app_id, spec.transaction.version
        latest = snapshot if context.engines.finishes is None else table.snapshot()
        done = find_transaction(latest, table.storage, app_id, version)
        if done is not None:
            return report("already_done", version=done)
    earlier = _earlier_tries(spec, context, snapshot, options)
    plan = _plan(context, snapshot, options, earlier)
    if not plan.bins and not earlier.committed and not earlier.finished:
        for warning in plan.warnings:
            context.progress.message(warning)
        why = {"left": _left(plan, []), "foreign": _foreign(plan), "selection": plan.selection.to_dict()}
        return report("nothing_to_do", metrics=commit_metrics(()), **why)
    # From here on the run writes. Whether a store can be written takes requests, which a run without work does not make.
    transaction = Transaction(table.storage, snapshot, gate, context.runtime)
    choice = context.engines.choose(plan.bytes_in)
    if choice.engine is None:
        return report("needs_spark", engine_reason=choice.reason, plan=plan.to_dict())
    batches = _batches(spec, context, snapshot, transaction, plan, earlier)
    columns = {column.physical_name: column.name for column in snapshot.partition_schema}
    # A run that finishes a rewrite on a server began before it: nearly all of the time until now was rewriting.
    planned_ms = context.runtime.now_ms() if context.engines.finishes is None else context.started_ms
    work = _Work(
        plan, batches, options.on_broken_source == "skip", earlier, columns, context.started_ms, planned_ms
    )
    rewrite = context.engines.finishes
    _tell_plan(context, plan, earlier)
    facts: dict[str, Any] = {"engine": choice.engine, "engine_reason": choice.reason}
    tasks = _tasks(spec, context, snapshot, plan)
    begun = _begin(context, snapshot, work, tasks, choice.engine)
    if begun is not None:
        return report("begun", rewrite=begun.to_dict(), **facts)
    try:
        _rewrite(context, work, tasks, choice.engine)
    except Exception as error:
        if isinstance(error, OperationLost) and work.has_gained_on(rewrite):
            context.progress.message(f"{error.loss}; beginning another one for the bins that are left")
            return run(spec, replace(context, engines=context.engines.instead_of_lost()))
        if not batches.num_batches:
            raise
        log_failure(error)
        return report("failed", error=error_report(error), **facts, **work.facts(rewrite))
    spent = [*earlier.manifests, *work.manifests]
    lost = [*earlier.stale, *(manifest for manifest, _ in batches.dropped)]
    _clean_up(context, spent, lost, options)
    context.saw(*batches.latest)
    if batches.already_done:
        return report("already_done", **facts, **work.facts(rewrite))
    written = {m.bin_id: [output.stats for output in m.outputs] for m in batches.committed}
    facts["skipping"] = measured_skipping(plan, snapshot, written)
    return report("committed", columns=_columns(snapshot), **facts, **work.facts(rewrite))


def _earlier_tries(
    spec: JobSpec, context: JobContext, snapshot: Snapshot, options: OptimizeOptions
) -> EarlierTries:
    tag = rewrite_tag(snapshot, options)
    earlier = find_earlier_tries(context.table.storage, spec.run_id, context.run_key, snapshot, tag, options)
    if earlier.num_foreign:
        context.progress.message(
            f"ignored {earlier.num_foreign:,} files in _maintenance/{spec.run_id} that are no manifests of this run's key"
        )
    return earlier


def _tell_plan(context: JobContext, plan: OptimizePlan, earlier: EarlierTries) -> None:
    """Say what is about to be done, and why, before it begins. The job that began a rewrite has said it."""
    if context.engines.finishes is not None:
        return
    lines = rewrite_lines(plan.to_dict()) if plan.bins else []
    taken_over = earlier.taken_over()
    if taken_over is not None:
        lines.append(taken_over_text(taken_over, len(plan.bins)))
    for line in lines:
        context.progress.message(line)


def _batches(
    spec: JobSpec,
    context: JobContext,
    snapshot: Snapshot,
    transaction: Transaction,
    plan: OptimizePlan,
    earlier: EarlierTries,
) -> Batches:
    identity, options = spec.transaction, plan.options
    details = CommitDetails(
        operation="REORG" if options.purge else "OPTIMIZE",
        parameters=_parameters(options, plan.layout),
        run_id=spec.run_id,
        tags={**spec.tags, **preserving_tags(snapshot.properties)},
        transaction=(identity.app_id, identity.version) if identity is not None else None,
    )
    vectors = VectorFiles(context.table.storage, context.runtime.new_id) if options.remap else None
    size_bytes = options.batch_size_bytes
    return Batches.after(
        earlier,
        transaction,
        details,
        size_bytes,
        context.progress,
        context.runtime,
        vectors,
        _gap(context, snapshot, transaction, options),
    )


def _gap(
    context: JobContext, snapshot: Snapshot, transaction: Transaction, options: OptimizeOptions
) -> GapWait | None:
    if options.commit_when == "now":
        return None
    return GapWait(
        transaction,
        context.table.storage,
        snapshot,
        options.max_wait_ms,
        options.after_max_wait,
        context.progress,
        context.runtime,
    )


def _snapshot(context: JobContext) -> Snapshot:
    """The version to plan on: the latest, or that on which another job has planned the rewrite that this job finishes."""
    rewrite = context.engines.finishes
    if rewrite is None or rewrite.read_version is None:
        return context.table.snapshot()
    try:
        return context.table.snapshot(version=rewrite.read_version)
    except VersionNotFound as error:
        context.progress.message(f"planning anew: {error}")
        return context.table.snapshot()


def _tasks(
    spec: JobSpec, context: JobContext, snapshot: Snapshot, plan: OptimizePlan
) -> Sequence[RewriteTask]:
    limit = plan.options.max_duration_seconds
    begin_before_ms = None if limit is None else context.started_ms + 1000 * limit
    return tasks_of(plan, snapshot, spec.run_id, context.table.uri, begin_before_ms)


def _begin(
    context: JobContext, snapshot: Snapshot, work: _Work, tasks: Sequence[RewriteTask], engine_name: str
) -> DetachedRewrite | None:
    """Begin a rewrite that another job finishes; ``None``: this job rewrites by itself."""
    begun = context.engines.begin(engine_name, tasks, context.progress, context.run_key)
    if begun is None:
        return None
    return begun.begun(
        bins=len(tasks),
        bytes_in=work.plan.bytes_in,
        read_version=snapshot.version,
        started_ms=context.started_ms,
        facts=work.planned_facts(),
    )


def _rewrite(context: JobContext, work: _Work, tasks: Sequence[RewriteTask], engine_name: str) -> None:
    """Rewrite the bins of the plan, and commit them.

    :raises TaskFailed, BadManifest, CommitFailed: see :class:`_Work`.
    :raises OperationLost: the rewrite that this job finishes is not to be had.
    """
    if tasks:
        context.progress.start(len(tasks), work.plan.bytes_in)
        engine = context.engines.make(engine_name)
        # Closed here, not when the error that ends the run is forgotten: its threads may not outlive the run.
        with closing(engine.run(tasks, context.progress, context.run_key)) as results:
            work.take(tasks, results)
        if context.engines.finishes is not None:
            work.require_some()
    work.end()


def _clean_up(
    context: JobContext, spent: list[BinManifest], lost: Sequence[BinManifest], options: OptimizeOptions
) -> None:
    """Remove what a finished run no longer needs. The run stands even if this fails.

    :param spent: manifests of the run. They are deleted first: a file is an orphan only once no try can learn of it.
    :param lost: manifests among them whose bins were not committed.
    """
    table, progress = context.table, context.progress
    try:
        forget(spent, table.storage)
        if lost:
            removed = remove_orphans(lost, table.snapshot(), table.storage, remap=options.remap)
            progress.message(f"removed {len(removed):,} files of {len(lost):,} bins that were not committed")
        forget_old_manifests(table, context.runtime.now_ms())
    except (DeltaLogError, OSError) as error:
        progress.message(f"left for another run or for VACUUM: {error}")


def _plan(
    context: JobContext, snapshot: Snapshot, options: OptimizeOptions, earlier: EarlierTries
) -> OptimizePlan:
    """
    :raises PlanChanged: the plan is not the approved one.
    :raises SymbolicLinkRefused: a file that would be rewritten is a link, or a link leads there.
    """
    dropped = []
    if options.looks_for_dropped_columns:
        keys = candidates_for_footers(snapshot, options)
        context.progress.message(f"looking for dropped columns in {len(keys):,} files")
        dropped = list(files_with_dropped_columns(context.table.storage, snapshot, keys))
    plan = plan_optimize(snapshot, options, context.started_ms, earlier.prior_work(), dropped)
    approved = options.approved_digest
    if approved is not None and (len(approved) < _MIN_DIGEST or not plan.digest.startswith(approved)):
        raise PlanChanged(approved, plan.digest)
    require_no_links(plan, context.table.storage)
    return plan


def _dry_run(context: JobContext, snapshot: Snapshot, options: OptimizeOptions) -> dict[str, Any]:
    """Summarise the plan, with a forecast of its time. Write the whole plan to ``output`` if that is given."""
    table = context.table
    output = PlanFile.of(options.output, table.storage_at) if options.output is not None else None
    plan = _plan(context, snapshot, options, EarlierTries())
    expected = forecast(plan.bytes_in, table.history(_HISTORY)) if plan.bins else None
    facts: dict[str, Any] = plan.to_dict() | (expected.to_dict() if expected is not None else {})
    # The run's id and time limit do not matter for what its tasks read.
    facts |= layout_forecast(plan, snapshot)
    facts |= copy_forecast(plan, tasks_of(plan, snapshot, "", table.storage.uri), table.storage)
    if output is not None:
        output.write(plan.lines())
        facts["uri"] = output.uri
    return facts


def _parameters(options: OptimizeOptions, layout: TableLayout | None) -> dict[str, Any]:
    """``operationParameters`` as Spark has them; layouts that Spark does not know have names of their own."""
    predicate = {"predicate": [options.where] if options.where else []}
    if options.purge:
        return {**predicate, "applyPurge": True}
    names = list(layout.names) if layout is not None else []
    clusters = layout is not None and layout.is_clustering
    kind = layout.layout.kind if layout is not None and not clusters else None
    found = {
        **predicate,
        "zOrderBy": names if kind == ZORDER else [],
        "clusterBy": names if clusters else [],
        "auto": False,
    }
    if clusters:
        found["isFull"] = options.full
    if kind not in (None, ZORDER):
        found |= {"layout": kind, "layoutBy": names}
    return found


def _columns(snapshot: Snapshot) -> list[str] | None:
    """The names of the table's columns, for lineage; ``None`` if there are too many for a report."""
    names = [column.name for column in snapshot.schema.fields]
    return names if len(names) <= MAX_COLUMNS else None


def _foreign(plan: OptimizePlan) -> dict[str, Any] | None:
    """Files outside of the table's directory, which no run rewrites."""
    return plan.foreign.to_dict() if plan.foreign.files else None


def _metrics(committed: Sequence[BinManifest]) -> dict[str, int]:
    """The metrics of a report: the metrics of the commits together, and the rows, which Spark does not count."""
    return {**commit_metrics(committed), "numOutputRows": sum(manifest.rows_out for manifest in committed)}


def _left(plan: OptimizePlan, not_done: Sequence[str]) -> dict[str, int] | None:
    """Count what is left for another run.

    :param not_done: ids of planned bins that this run did not get to.
    """
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


class _Work(Struct):
    """Takes the bins of a run as the engine finishes them, and commits them.

    :param skips_broken: ``True``: leave out a bin with an unreadable source, and go on with the others.
    :param earlier: what earlier tries of the run have finished.
    :param partition_columns: logical names, by physical name.
    :param started_ms: time at which the run began; ``planned_ms``: time at which it had its plan.
    """

    plan: OptimizePlan
    batches: Batches
    skips_broken: bool
    earlier: EarlierTries
    partition_columns: Mapping[str, str]
    started_ms: int
    planned_ms: int
    manifests: list[BinManifest] = field(default_factory=list)
    broken: list[TaskFailed] = field(default_factory=list)

    def take(self, tasks: Sequence[RewriteTask], results: Iterator[BinResult]) -> None:
        """
        :param tasks: tasks that the engine was given.
        :raises TaskFailed: a bin's sources cannot be read, or the store refused access.
        :raises BadManifest: a result does not answer a task.
        :raises CommitFailed: the table changed so that the plan does not hold any more.
        """
        expected = len(self.plan.bins)
        numbers = {planned.bin_id: number for number, planned in enumerate(self.plan.bins)}
        for result in results:
            number = numbers.pop(result.bin_id, None)
            if number is None:
                raise BadManifest(f"bin {result.bin_id} was not asked for, or came back twice")
            if isinstance(result, TaskFailed):
                if not result.is_of_its_bin:
                    raise result
                if not self.skips_broken:
                    raise result.naming_the_option()
                self.broken.append(result)
                self.batches.progress.message(f"left out bin {result.bin_id}: {result}")
                continue
            _check_answer(result, tasks[number])
            self.manifests.append(result)
            self.batches.add(result, more_to_come=len(self.manifests) + len(self.broken) < expected)

    def has_gained_on(self, lost: DetachedRewrite | None) -> bool:
        """Tell whether bins of a rewrite are done that the server has lost, so that the next one has less to do."""
        if lost is None:
            return False
        left = len(self.plan.bins) - len(self.manifests) - len(self.broken)
        return lost.bins is None or left < lost.bins

    def require_some(self) -> None:
        """
        :raises BadManifest: there is nothing to commit: the manifests of a rewrite that has ended are not there.
        """
        if not (self.manifests or self.broken or self.batches.has_some):
            raise BadManifest("the rewrite has ended, and no bin has left one")

    def end(self) -> None:
        """
        :raises TaskFailed: every bin is broken.
        :raises CommitFailed: nothing of the run was committed.
        """
        self.batches.finish({planned.bin_id: number for number, planned in enumerate(self.plan.bins)})
        if self.broken and self.batches.version is None:
            raise self.broken[0]

    def planned_facts(self) -> dict[str, Any]:
        """The members of the report that are known when the plan is made."""
        return {"selection": self.plan.selection.to_dict(), "earlier_tries": self.earlier.taken_over()}

    def facts(self, rewrite: DetachedRewrite | None) -> dict[str, Any]:
        """Members of the report.

        :param rewrite: rewrite that another job has begun. For that job, its bins were not bins of an earlier try.
        """
        batches = self.batches
        done = {manifest.bin_id for manifest in self.manifests} | {task.bin_id for task in self.broken}
        dropped = [dropped_bin(manifest, conflict) for manifest, conflict in batches.dropped[:MAX_DROPPED]]
        broken = [task.report.to_dict() for task in self.broken[:MAX_DROPPED]]
        return {
            "version": batches.version,
            "metrics": {} if batches.already_done else _metrics(batches.committed),
            "num_batches": batches.num_batches if batches.is_divided else None,
            "commit_wait": batches.gap.to_dict() if batches.gap is not None else None,
            "dropped_bins": len(batches.dropped),
            "dropped": dropped or None,
            "remapped_bins": batches.remapped,
            "broken_bins": len(self.broken),
            "broken": broken or None,
            "left": _left(self.plan, [b.bin_id for b in self.plan.bins if b.bin_id not in done]),
            "foreign": _foreign(self.plan),
            **self.planned_facts(),
            **(rewrite.facts or {} if rewrite is not None else {}),
            "table_size": self._table_size(),
            "partitions": None
            if batches.already_done
            else partition_changes(batches.committed, self.partition_columns) or None,
            "phases": self._phases(),
        }

    def _phases(self) -> dict[str, int]:
        """How long each part of the run took, by the clock of its machine, which may be set meanwhile."""
        batches = self.batches
        waited_ms = batches.gap.waited_ms if batches.gap is not None else 0
        working_ms = batches.runtime.now_ms() - self.planned_ms - batches.commit_ms - waited_ms
        return {
            "plan_ms": max(0, self.planned_ms - self.started_ms),
            "rewrite_ms": max(0, working_ms),
            "wait_ms": waited_ms,
            "commit_ms": batches.commit_ms,
        }

    def _table_size(self) -> dict[str, int] | None:
        """What the run changed about the whole table; ``None``: nothing, since another try had finished it."""
        if self.batches.already_done:
            return None
        # The planned version holds what earlier tries have committed.
        files, size_bytes = _growth(self.earlier.committed)
        table = self.plan.selection.table
        before = (table.files - files, table.bytes - size_bytes)
        files, size_bytes = _growth(self.batches.committed)
        return {
            "files_before": before[0],
            "bytes_before": before[1],
            "files_after": before[0] + files,
            "bytes_after": before[1] + size_bytes,
        }


def _growth(manifests: Sequence[BinManifest]) -> tuple[int, int]:
    """How many files, and bytes, a table gains by some bins; mostly fewer than none."""
    outputs = [output.size_bytes for manifest in manifests for output in manifest.outputs]
    sources = [source.size_bytes for manifest in manifests for source in manifest.sources]
    return len(outputs) - len(sources), sum(outputs) - sum(sources)
