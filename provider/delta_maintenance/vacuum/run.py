"""The VACUUM job, from its spec to its report.

The steps are in :mod:`delta_maintenance.vacuum`. Before the first of them, the job refuses a table that it does not
support, and ends if an earlier try of the same piece of work has committed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from delta_log.runtime import Runtime
from delta_log.snapshot.snapshot import Snapshot
from delta_log.table import Table
from delta_log.table_config import features as table_features
from delta_log.table_config.features import Operation
from delta_log.transaction.transaction import find_transaction
from delta_maintenance.contract import JobReport, JobSpec
from delta_maintenance.engine.choice import ChooseLister, EngineChoice
from delta_maintenance.listing.distributed import DistributedListing
from delta_maintenance.plan_file import PlanFile
from delta_maintenance.progress import ProgressReporter
from delta_maintenance.vacuum.candidates import PlannedVacuum, find_candidates
from delta_maintenance.vacuum.execution import execute_plan
from delta_maintenance.vacuum.housekeeping import Housekeeping, keep_house
from delta_maintenance.vacuum.options import VacuumOptions
from delta_maintenance.vacuum.proof import prove

if TYPE_CHECKING:
    from delta_maintenance.engine.spark import SparkEngine


def run(
    spec: JobSpec,
    table: Table,
    choose_lister: ChooseLister,
    make_spark_engine: Callable[[], SparkEngine],
    progress: ProgressReporter,
    runtime: Runtime,
) -> JobReport:
    """Plan a vacuum, and execute the plan unless the spec asks for a dry run.

    :raises DeltaLogError: see :func:`~delta_maintenance.vacuum.candidates.find_candidates` and
        :func:`~delta_maintenance.vacuum.execution.execute_plan`.
    """
    started_ms = runtime.now_ms()
    options = VacuumOptions.from_mapping(spec.options)
    snapshot = table.snapshot()
    report = JobReport(
        operation=spec.operation,
        table=spec.table,
        status="planned",
        run_id=spec.run_id,
        read_version=snapshot.version,
        transaction=spec.transaction,
        started_ms=started_ms,
    )
    table_features.require(snapshot.protocol, Operation.VACUUM)
    if not spec.dry_run:
        table.storage.require_writable()
        done = _version_of_an_earlier_try(spec, snapshot, table)
        if done is not None:
            return replace(report, status="already_done", version=done, finished_ms=runtime.now_ms())
    choice = _choose_engine(spec, options, snapshot, choose_lister)
    report = replace(report, engine=choice.engine, engine_reason=choice.reason)
    if choice.engine is None:
        return replace(report, status="needs_spark", finished_ms=runtime.now_ms())
    plan_file = PlanFile.of(options.output, table.storage_at) if options.output is not None else None
    distributed = None
    if choice.engine == "spark":
        spark = make_spark_engine().listing(progress)
        distributed = DistributedListing(table.storage, spark.run, spark.parallelism, runtime.new_id)
    planned = find_candidates(
        table.storage, table.storage_at, snapshot, options, started_ms, progress, distributed
    )
    if plan_file is not None:
        plan_file.write(planned.plan.lines())
    report = replace(report, read_version=planned.plan.read_version)
    if spec.dry_run:
        report = replace(report, plan=_dry_run_plan(table, planned, progress))
    else:
        report = _executed(spec, report, table, planned, progress, runtime)
    return replace(report, finished_ms=runtime.now_ms())


def _version_of_an_earlier_try(spec: JobSpec, snapshot: Snapshot, table: Table) -> int | None:
    if spec.transaction is None:
        return None
    return find_transaction(snapshot, table.storage, spec.transaction.app_id, spec.transaction.version)


def _choose_engine(
    spec: JobSpec, options: VacuumOptions, snapshot: Snapshot, choose_lister: ChooseLister
) -> EngineChoice:
    if options.mode != "full":
        return EngineChoice("local", "nothing is listed")
    return choose_lister(spec, lambda: snapshot.num_files + int(snapshot.tombstones(["key"]).num_rows))


def _dry_run_plan(table: Table, planned: PlannedVacuum, progress: ProgressReporter) -> dict[str, Any]:
    options = planned.basis.options
    plan = planned.plan.to_dict()
    if options.quarantine:
        plan["quarantine"] = True
    plan |= keep_house(table.storage, planned, progress, dry_run=True).planned()
    if options.require_proof:
        plan["proof"] = prove(table.storage, planned.basis, planned.plan).strength
    return plan


def _executed(
    spec: JobSpec,
    report: JobReport,
    table: Table,
    planned: PlannedVacuum,
    progress: ProgressReporter,
    runtime: Runtime,
) -> JobReport:
    identity = spec.transaction
    transaction = (identity.app_id, identity.version) if identity is not None else None
    tags = {**spec.tags, "delta-maintenance.run": spec.run_id}
    outcome = execute_plan(table.storage, planned, progress, runtime, tags, transaction)
    is_committed = outcome.version is not None
    housekeeping = keep_house(table.storage, planned, progress, dry_run=False, is_committed=is_committed)
    facts = {**outcome.facts, **housekeeping.facts()}
    if housekeeping.warning is not None:
        facts["warnings"] = [*facts.get("warnings", planned.plan.warnings), housekeeping.warning]
    return replace(
        report,
        status=_status(housekeeping, is_committed=is_committed),
        version=outcome.version,
        metrics={**outcome.metrics, **housekeeping.metrics()},
        plan={**planned.plan.to_dict(), **facts},
    )


def _status(housekeeping: Housekeeping, *, is_committed: bool) -> str:
    if is_committed:
        return "committed"
    return "cleaned" if housekeeping.has_deleted else "nothing_to_do"
