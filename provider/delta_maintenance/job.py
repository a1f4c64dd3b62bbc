"""Runs a job in this process: from a spec to a report.

The entry point of a job (:mod:`delta_maintenance.entrypoint.run_job`) and the command line
(:mod:`delta_maintenance.cli.main`) call :func:`run_job`. It returns a report in any case: an error becomes part of it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from delta_log.catalog.lookup import locate, opening_options
from delta_log.errors import DeltaLogError, StorageError
from delta_log.redaction import redact
from delta_log.runtime import Runtime
from delta_log.snapshot.table_identity import noticing_a_drop
from delta_log.storage.managed.maintenance import (
    DATA_CLEANUP,
    DATA_REORGANIZATION,
    METADATA_CLEANUP,
    require_permission,
)
from delta_log.storage.storage import REQUESTS
from delta_log.storage.table_uri import require_within
from delta_log.table import Table
from delta_maintenance.contract import JobReport, JobSpec
from delta_maintenance.engine.engines import EngineFactory
from delta_maintenance.errors import error_report, log_failure
from delta_maintenance.job_context import JobContext
from delta_maintenance.job_interface import ContractError
from delta_maintenance.operations import OPERATIONS
from delta_maintenance.progress import ProgressReporter
from delta_maintenance.rewrite.manifest.manifest_file import RunKey

if TYPE_CHECKING:
    from delta_maintenance.engine.connect.detached_rewrite import DetachedRewrite


@dataclasses.dataclass(frozen=True, slots=True)
class JobSite:
    """Where a job runs.

    :param storage_options: storage options of the table; never part of a spec, a report or a log.
    :param spark_master: the master to which ``engine="auto"`` may send heavy work; ``None``: not known here.
    :param can_use_spark: ``True``: this process is a Spark driver, or may become one.
    :param run_key: the secret that the tries of one run share; ``None``: draw one, and take over nothing that an earlier
        process has finished.
    :param begins: a rewrite that the job begins on a Spark Connect server and does not wait for; ``finishes``: one that an earlier
        job has begun. Only ``optimize`` and ``purge`` have such rewrites.
    :param ends_with_reading: ``True``: say in the report what the table needs after the run, as far as the job knows it.
    """

    storage_options: Mapping[str, Any] = dataclasses.field(default_factory=dict, repr=False)
    spark_master: str | None = None
    can_use_spark: bool = False
    runtime: Runtime = dataclasses.field(default_factory=Runtime)
    run_key: RunKey | None = None
    begins: DetachedRewrite | None = None
    finishes: DetachedRewrite | None = None
    ends_with_reading: bool = False

    def engines(self, spec: JobSpec) -> EngineFactory:
        begun_by = None if self.finishes is None else self.finishes.spark
        return EngineFactory(
            spec,
            self.storage_options,
            self.spark_master,
            self.can_use_spark,
            self.begins,
            self.finishes,
            applications=[] if begun_by is None else [begun_by],
        )


#: The module whose ``run`` carries out each operation of :data:`~delta_maintenance.operations.OPERATIONS`. A job loads the
#: one that it needs.
RUN: dict[str, str] = {
    "optimize": "delta_maintenance.optimize.run",
    "purge": "delta_maintenance.optimize.run",
    "checkpoint": "delta_maintenance.log_upkeep.checkpoint",
    "vacuum": "delta_maintenance.vacuum.run",
    "restore": "delta_maintenance.restore.run",
    "drop-feature": "delta_maintenance.drop_feature.run",
    "expire": "delta_maintenance.expire.run",
    "restore-quarantine": "delta_maintenance.vacuum.quarantine.restoration",
    "analyze": "delta_maintenance.analyze.run",
    "repair": "delta_maintenance.repair.run",
    "generate": "delta_maintenance.generate.run",
    "cleanup-log": "delta_maintenance.log_upkeep.log_cleanup",
    "compact-log": "delta_maintenance.log_upkeep.log_compaction",
}


#: The maintenance that the catalog of a managed table has to permit for an operation. Others are ordinary commits, or permitted always.
_PERMISSIONS: dict[str, str] = {
    "optimize": DATA_REORGANIZATION,
    "purge": DATA_REORGANIZATION,
    "analyze": DATA_REORGANIZATION,
    "generate": DATA_REORGANIZATION,
    "vacuum": DATA_CLEANUP,
    "cleanup-log": METADATA_CLEANUP,
}


def run_job(spec: JobSpec, site: JobSite, progress: ProgressReporter) -> JobReport:
    """Open the table and do what the spec asks. Only an exception that ends the process is raised.

    A table that is given by its name is looked up once. All that follows, the check of the allowed roots included, goes by the
    address that this has found.
    """
    started_ms, given = site.runtime.now_ms(), spec.table
    try:
        spec = replace(spec, table=locate(given, site.storage_options))
        site = dataclasses.replace(site, storage_options=opening_options(given, site.storage_options))
        if spec.table != given:
            progress.message(f"{given} is at {spec.table}")
        # The operator has checked the addresses, too, but earlier, and perhaps on another machine.
        for address in places(spec):
            require_within(address, spec.allowed_roots)
        table = Table(spec.table, site.storage_options)
    except Exception as error:  # noqa: BLE001 - it becomes part of the report
        return failure(spec, error, started_ms, site.runtime.now_ms()).given_as(redact(given))
    before = REQUESTS.total
    report = run_on(table, spec, site, progress).given_as(given)
    made = REQUESTS.total - before
    return report if report.spark is not None or not made else replace(report, requests=made)


def places(spec: JobSpec) -> tuple[str, ...]:
    """Every address that a job reads or writes because its caller named it.

    :raises ContractError: this release does not know the operation.
    """
    operation = OPERATIONS.get(spec.operation)
    if operation is None:
        raise ContractError(f"operation {spec.operation!r} is not one of {', '.join(OPERATIONS)}.")
    return (spec.table, *operation.places(spec.options))


def run_on(table: Table, spec: JobSpec, site: JobSite, progress: ProgressReporter) -> JobReport:
    """Do what the spec asks on an open table. Only an exception that ends the process is raised."""
    started_ms = site.runtime.now_ms()
    if site.finishes is not None and site.finishes.started_ms is not None:
        started_ms = site.finishes.started_ms
    context = JobContext(
        table,
        progress,
        site.runtime,
        site.engines(spec),
        site.run_key or RunKey(site.runtime.new_secret()),
        started_ms,
    )

    def failed(error: BaseException) -> JobReport:
        report = failure(spec, error, started_ms, site.runtime.now_ms())
        return replace(report, spark=context.engines.application)

    try:
        run: Callable[[JobSpec, JobContext], JobReport] = import_module(RUN[spec.operation]).run
        if spec.operation in _PERMISSIONS:
            require_permission(table.storage, _PERMISSIONS[spec.operation])
        with noticing_a_drop(table.storage, lambda: table.has_been_read):
            report = run(spec, context)
        return _with_reading(report, context) if site.ends_with_reading else report
    except OSError as error:
        # Libraries raise errors without a number for much that no system call refused.
        return failed(_storage_error(error, table) if error.errno else error)
    except Exception as error:  # noqa: BLE001 - it becomes part of the report
        return failed(error)
    finally:
        try:
            context.engines.end()
        except DeltaLogError as error:
            progress.message(f"the session on the Spark Connect server is left to its time limit: {error}")


#: Reports with these statuses end with a reading: the table was looked at, and nothing is left to do.
_ENDED = ("committed", "nothing_to_do", "written", "cleaned")


def _with_reading(report: JobReport, context: JobContext) -> JobReport:
    """Add what the table needs now, as far as the job knows it without another request."""
    if report.status not in _ENDED or not context.seen:
        return report
    # Imported here: most jobs plan no health.
    from delta_maintenance.health.document import reading_of

    seen = context.seen[-1]
    try:
        reading = reading_of(seen.snapshot, context.runtime.now_ms(), seen.checkpointed, report.table)
    except Exception as error:  # noqa: BLE001 - what the run did stands, and its caller must learn that
        context.progress.message(f"the table's health was not read after the run: {error}")
        return report
    return replace(report, reading=reading)


def _storage_error(error: OSError, table: Table) -> StorageError:
    """Wrap an error of a library that reached the store."""
    # Imported here: a job on an object store does not load the local disk's module.
    from delta_log.storage.local.local_storage import local_failure

    path = str(error.filename or table.uri)
    wrapped = local_failure(error, path)
    wrapped.__cause__ = error
    return wrapped


def failure(spec: JobSpec, error: BaseException, started_ms: int, finished_ms: int) -> JobReport:
    """The report of a failed job."""
    log_failure(error)
    return JobReport(
        operation=spec.operation,
        table=redact(spec.table),
        status="failed",
        run_id=spec.run_id,
        transaction=spec.transaction,
        error=error_report(error),
        started_ms=started_ms,
        finished_ms=finished_ms,
    )
