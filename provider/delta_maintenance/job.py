"""Running a job in this process: from the spec to the report, with the engines that this process can use.

Whoever starts it (:mod:`delta_maintenance.entrypoint.run_job`, :mod:`delta_maintenance.cli.main`) gets a report
whatever happens: an error becomes part of it.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from delta_log.errors import DeltaLogError, InvalidRequest, StorageError
from delta_log.printable import print_traceback
from delta_log.redaction import redact
from delta_log.runtime import Runtime
from delta_log.storage.table_uri import require_within
from delta_log.table import Table
from delta_maintenance.contract import JobReport, JobSpec, places
from delta_maintenance.engine.choice import EngineChoice, choose_engine, choose_lister
from delta_maintenance.engine.engine import Engine
from delta_maintenance.engine.local import LocalEngine
from delta_maintenance.errors import error_report
from delta_maintenance.log_upkeep import checkpoint, log_cleanup, log_compaction
from delta_maintenance.optimize import run as optimize
from delta_maintenance.progress import ProgressReporter
from delta_maintenance.rewrite.manifest_file import RunKey
from delta_maintenance.vacuum import restore as restore_quarantine
from delta_maintenance.vacuum import run as vacuum

if TYPE_CHECKING:
    from delta_maintenance.engine.spark import SparkEngine


@dataclass(frozen=True, slots=True)
class JobSite:
    """Where a job runs, and with what.

    :param storage_options: of the table; never part of a spec, a report or a log.
    :param spark_master: where ``engine="auto"`` may send heavy work; ``None``: not known here.
    :param can_use_spark: this process is a Spark driver, or may become one.
    :param run_key: the secret that the tries of one run share; ``None``: a fresh one, so that what an earlier process has
        finished is not taken over.
    """

    storage_options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    spark_master: str | None = None
    can_use_spark: bool = False
    runtime: Runtime = field(default_factory=Runtime)
    run_key: RunKey | None = None


#: Of those that need no engine.
_OPERATIONS = {
    "checkpoint": checkpoint.run,
    "cleanup-log": log_cleanup.run,
    "restore-quarantine": restore_quarantine.run,
    "compact-log": log_compaction.run,
}


def run_job(spec: JobSpec, site: JobSite, progress: ProgressReporter) -> JobReport:
    """Do what the spec asks, and report; raises nothing but what ends the process."""
    started_ms = site.runtime.now_ms()
    try:
        # Again, and here: the operator looked at another time, and perhaps on another machine.
        for address in places(spec.table, spec.options):
            require_within(address, spec.allowed_roots)
        table = Table(spec.table, dict(site.storage_options))
    except Exception as error:  # noqa: BLE001 - it becomes part of the report
        return failure(spec, error, started_ms, site.runtime.now_ms())
    return run_on(table, spec, site, progress)


def run_on(table: Table, spec: JobSpec, site: JobSite, progress: ProgressReporter) -> JobReport:
    """The same, on a table that is opened already."""
    started_ms = site.runtime.now_ms()
    try:
        if spec.operation == "vacuum":
            return vacuum.run(
                spec,
                table,
                lambda asked, count_files: _choose_lister(asked, count_files, site),
                lambda: _spark_engine(spec, site),
                progress,
                site.runtime,
            )
        if spec.operation in ("optimize", "purge"):
            return optimize.run(
                spec,
                table,
                lambda asked, planned_bytes: _choose(asked, planned_bytes, site),
                lambda name: _engine(name, spec, site),
                progress,
                site.runtime,
                site.run_key or RunKey(site.runtime.new_secret()),
            )
        return _OPERATIONS[spec.operation](spec, table, progress, site.runtime)
    except OSError as error:
        return failure(spec, _of_the_store(error, table), started_ms, site.runtime.now_ms())
    except Exception as error:  # noqa: BLE001 - it becomes part of the report
        return failure(spec, error, started_ms, site.runtime.now_ms())


def _of_the_store(error: OSError, table: Table) -> StorageError:
    """A failure that some library told in its own words, as one of ours."""
    path = str(error.filename or table.uri)
    wrapped = StorageError(f"{path}: {error.strerror or error}. Run again.", path)
    wrapped.__cause__ = error
    return wrapped


def failure(spec: JobSpec, error: BaseException, started_ms: int, finished_ms: int) -> JobReport:
    """The report of a job that failed; where nobody foresaw the error, its traceback goes to standard
    error."""
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


def _choose(spec: JobSpec, planned_bytes: int, site: JobSite) -> EngineChoice:
    return choose_engine(
        spec, planned_bytes, spark_master=site.spark_master, can_use_spark=site.can_use_spark
    )


def _choose_lister(spec: JobSpec, count_files: Callable[[], int], site: JobSite) -> EngineChoice:
    return choose_lister(spec, count_files, spark_master=site.spark_master, can_use_spark=site.can_use_spark)


def _engine(name: str, spec: JobSpec, site: JobSite) -> Engine:
    if name == "local":
        return LocalEngine(
            site.storage_options, memory_limit_bytes=spec.memory_limit_bytes, parallelism=spec.parallelism
        )
    return _spark_engine(spec, site)


def _spark_engine(spec: JobSpec, site: JobSite) -> SparkEngine:
    if importlib.util.find_spec("pyspark") is None:
        raise InvalidRequest(
            "The Spark engine needs PySpark, which is not installed here. Install "
            "airflow-provider-delta[spark], or use the local engine."
        )
    # Only here may PySpark be imported: most jobs do not need it.
    from delta_maintenance.engine.spark import SparkEngine
    from delta_maintenance.engine.spark_session import spark_session

    return SparkEngine(
        lambda: spark_session(site.spark_master, f"delta-maintenance {spec.operation} {spec.run_id}"),
        site.storage_options,
        parallelism=spec.parallelism,
    )
