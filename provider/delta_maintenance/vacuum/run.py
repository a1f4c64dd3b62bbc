"""The VACUUM job, from its spec to its report.

The steps are in :mod:`delta_maintenance.vacuum`. Before the first of them, the job refuses a table that it does not
support, and ends if an earlier try of the same piece of work has committed.
"""

from __future__ import annotations

from typing import Any

from delta_log.snapshot.snapshot import Snapshot
from delta_log.table import Table
from delta_log.table_config import features as table_features
from delta_log.table_config.features import Operation
from delta_log.transaction.conflict import RUN_TAG
from delta_maintenance.contract import JobReport, JobSpec
from delta_maintenance.engine.choice import EngineChoice
from delta_maintenance.job_context import JobContext
from delta_maintenance.listing.distributed import DistributedListing
from delta_maintenance.plan_file import PlanFile
from delta_maintenance.progress import ProgressReporter
from delta_maintenance.text.plan import vacuum_lines
from delta_maintenance.vacuum.candidates import PlannedVacuum, find_candidates
from delta_maintenance.vacuum.execution import execute_plan, refuse_missing_files
from delta_maintenance.vacuum.housekeeping import Housekeeping, keep_house
from delta_maintenance.vacuum.options import VacuumOptions
from delta_maintenance.vacuum.proof import prove


def run(spec: JobSpec, context: JobContext) -> JobReport:
    """Plan a vacuum, and execute the plan unless the spec asks for a dry run.

    :raises DeltaLogError: see :func:`~delta_maintenance.vacuum.candidates.find_candidates` and
        :func:`~delta_maintenance.vacuum.execution.execute_plan`.
    """
    table = context.table
    options = VacuumOptions.from_mapping(spec.options)
    snapshot = table.snapshot()
    context.saw(snapshot)

    def report(status: str, read_version: int = snapshot.version, **facts: Any) -> JobReport:
        return context.report(spec, status, read_version, transaction=spec.transaction, **facts)

    table_features.require(snapshot.protocol, Operation.VACUUM)
    if not spec.dry_run:
        table.storage.require_writable()
        done = context.version_of_an_earlier_try(spec, snapshot)
        if done is not None:
            return report("already_done", version=done)
    choice = _choose_engine(options, snapshot, context)
    engine: dict[str, Any] = {"engine": choice.engine, "engine_reason": choice.reason}
    if choice.engine is None:
        return report("needs_spark", **engine)
    planned = _plan(context, snapshot, options, distributed=choice.engine == "spark")
    if spec.dry_run:
        plan = _dry_run_plan(table, planned, context.progress)
        return report("planned", planned.plan.read_version, plan=plan, **engine)
    status, facts = _execute(spec, context, planned)
    return report(status, planned.plan.read_version, **facts, **engine)


def _choose_engine(options: VacuumOptions, snapshot: Snapshot, context: JobContext) -> EngineChoice:
    if options.mode != "full":
        return EngineChoice("local", "nothing is listed")
    return context.engines.choose_lister(
        lambda: snapshot.num_files + int(snapshot.tombstones(["key"]).num_rows)
    )


def _plan(
    context: JobContext, snapshot: Snapshot, options: VacuumOptions, *, distributed: bool
) -> PlannedVacuum:
    """Plan the vacuum. Write the whole plan to ``output`` if that is given."""
    table, progress = context.table, context.progress
    plan_file = PlanFile.of(options.output, table.storage_at) if options.output is not None else None
    listing = None
    if distributed:
        spark = context.engines.spark().listing(progress)
        listing = DistributedListing(table.storage, spark.run, spark.parallelism, context.runtime.new_id)
    planned = find_candidates(
        table.storage, table.storage_at, snapshot, options, context.started_ms, progress, listing
    )
    if plan_file is not None:
        plan_file.write(planned.plan.lines())
    return planned


def _dry_run_plan(table: Table, planned: PlannedVacuum, progress: ProgressReporter) -> dict[str, Any]:
    """Summarise the plan.

    :raises VacuumRefused: a run would refuse the plan.
    """
    refuse_missing_files(table.storage, planned)
    options = planned.basis.options
    plan = planned.plan.to_dict()
    if options.quarantine:
        plan["quarantine"] = True
    plan |= keep_house(table.storage, planned, progress, dry_run=True).planned()
    if options.require_proof and not planned.plan.is_empty:
        plan["proof"] = prove(table.storage, planned.basis, planned.plan).strength
    return plan


def _execute(spec: JobSpec, context: JobContext, planned: PlannedVacuum) -> tuple[str, dict[str, Any]]:
    """Execute the plan.

    :return: the status of the report, and further members of it.
    """
    storage, progress = context.table.storage, context.progress
    tags = {**spec.tags, RUN_TAG: spec.run_id}
    if not planned.plan.is_empty:
        for line in vacuum_lines(planned.plan.to_dict()):
            progress.message(line)
    outcome = execute_plan(storage, planned, progress, context.runtime, tags, spec.piece_of_work)
    is_committed = outcome.version is not None
    if outcome.ended is not None:
        context.saw(outcome.ended.snapshot, outcome.ended.checkpointed)
    housekeeping = keep_house(storage, planned, progress, dry_run=False, is_committed=is_committed)
    facts = {**outcome.facts, **housekeeping.facts()}
    if housekeeping.warning is not None:
        facts["warnings"] = [*facts.get("warnings", planned.plan.warnings), housekeeping.warning]
    return _status(housekeeping, is_committed=is_committed), {
        "version": outcome.version,
        "metrics": {**outcome.metrics, **housekeeping.metrics()},
        "plan": {**planned.plan.to_dict(), **facts},
    }


def _status(housekeeping: Housekeeping, *, is_committed: bool) -> str:
    if is_committed:
        return "committed"
    return "cleaned" if housekeeping.has_deleted else "nothing_to_do"
