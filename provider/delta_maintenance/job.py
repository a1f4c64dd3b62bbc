"""Runs a job in this process: from a spec to a report.

The entry point of a job (:mod:`delta_maintenance.entrypoint.run_job`) and the command line
(:mod:`delta_maintenance.cli.main`) call :func:`run_job`. It returns a report in any case: an error becomes part of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from delta_log.errors import DeltaLogError, StorageError
from delta_log.printable import print_traceback
from delta_log.redaction import redact
from delta_log.runtime import Runtime
from delta_log.storage.table_uri import require_within
from delta_log.table import Table
from delta_maintenance.contract import ContractError, JobReport, JobSpec
from delta_maintenance.engine.engines import Engines
from delta_maintenance.errors import error_report
from delta_maintenance.job_context import JobContext
from delta_maintenance.operations import OPERATIONS
from delta_maintenance.progress import ProgressReporter
from delta_maintenance.rewrite.manifest_file import RunKey


@dataclass(frozen=True, slots=True)
class JobSite:
    """Where a job runs.

    :param storage_options: of the table; never part of a spec, a report or a log.
    :param spark_master: where ``engine="auto"`` may send heavy work; ``None``: not known here.
    :param can_use_spark: this process is a Spark driver, or may become one.
    :param run_key: the secret that the tries of one run share; ``None``: draw one, and take over nothing that an earlier
        process has finished.
    """

    storage_options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    spark_master: str | None = None
    can_use_spark: bool = False
    runtime: Runtime = field(default_factory=Runtime)
    run_key: RunKey | None = None


#: The module whose ``run`` carries out each operation of :data:`~delta_maintenance.operations.OPERATIONS`. A job loads the
#: one that it needs.
RUN: dict[str, str] = {
    "optimize": "delta_maintenance.optimize.run",
    "purge": "delta_maintenance.optimize.run",
    "checkpoint": "delta_maintenance.log_upkeep.checkpoint",
    "vacuum": "delta_maintenance.vacuum.run",
    "restore-quarantine": "delta_maintenance.vacuum.restore",
    "cleanup-log": "delta_maintenance.log_upkeep.log_cleanup",
    "compact-log": "delta_maintenance.log_upkeep.log_compaction",
}


def run_job(spec: JobSpec, site: JobSite, progress: ProgressReporter) -> JobReport:
    """Open the table and do what the spec asks. Only an exception that ends the process is raised."""
    started_ms = site.runtime.now_ms()
    try:
        # The operator has checked the addresses, too, but earlier, and perhaps on another machine.
        for address in places(spec):
            require_within(address, spec.allowed_roots)
        table = Table(spec.table, dict(site.storage_options))
    except Exception as error:  # noqa: BLE001 - it becomes part of the report
        return failure(spec, error, started_ms, site.runtime.now_ms())
    return run_on(table, spec, site, progress)


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
    context = JobContext(
        table,
        progress,
        site.runtime,
        Engines(spec, site.storage_options, site.spark_master, site.can_use_spark),
        site.run_key or RunKey(site.runtime.new_secret()),
        started_ms,
    )
    try:
        run: Callable[[JobSpec, JobContext], JobReport] = import_module(RUN[spec.operation]).run
        return run(spec, context)
    except OSError as error:
        return failure(spec, _storage_error(error, table), started_ms, site.runtime.now_ms())
    except Exception as error:  # noqa: BLE001 - it becomes part of the report
        return failure(spec, error, started_ms, site.runtime.now_ms())


def _storage_error(error: OSError, table: Table) -> StorageError:
    """Wrap an error of a library that reached the store."""
    path = str(error.filename or table.uri)
    wrapped = StorageError(f"{path}: {error.strerror or error}. Run again.", path)
    wrapped.__cause__ = error
    return wrapped


def failure(spec: JobSpec, error: BaseException, started_ms: int, finished_ms: int) -> JobReport:
    """The report of a failed job. The traceback of an unforeseen error goes to standard error."""
    if not isinstance(error, DeltaLogError):
        print_traceback(error)
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
