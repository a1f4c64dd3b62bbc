"""Running a job in this process: from the spec to the report, with the engines that this process can use.

Whoever starts it (:mod:`delta_maintenance.entrypoint.run_job`, :mod:`delta_maintenance.cli`) gets a report
whatever happens: an error becomes part of it.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from delta_log.errors import DeltaLogError, InvalidRequest
from delta_log.printable import print_traceback
from delta_log.runtime import Runtime
from delta_log.table import Table
from delta_maintenance.contract import ContractError, JobReport, JobSpec
from delta_maintenance.engine.engine import (
    Engine,
    EngineChoice,
    choose_engine,
    choose_lister,
    describe_error,
)
from delta_maintenance.engine.local import LocalEngine
from delta_maintenance.operations import (
    checkpoint,
    log_cleanup,
    log_compaction,
    optimize,
    restore_quarantine,
    vacuum,
)
from delta_maintenance.progress import ProgressReporter

if TYPE_CHECKING:
    from delta_maintenance.engine.spark import SparkEngine


@dataclass(frozen=True, slots=True)
class JobSite:
    """Where a job runs, and with what.

    :param storage_options: of the table; never part of a spec, a report or a log.
    :param spark_master: where ``engine="auto"`` may send heavy work; ``None``: not known here.
    :param can_use_spark: this process is a Spark driver, or may become one.
    """

    storage_options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    spark_master: str | None = None
    can_use_spark: bool = False
    runtime: Runtime = field(default_factory=Runtime)


_OPERATIONS = {
    "optimize": optimize.run,
    "purge": optimize.run,
    # These need no engine.
    "checkpoint": lambda spec, table, _choose, _make, *rest: checkpoint.run(spec, table, *rest),
    "cleanup-log": lambda spec, table, _choose, _make, *rest: log_cleanup.run(spec, table, *rest),
    "restore-quarantine": lambda spec, table, _choose, _make, *rest: restore_quarantine.run(
        spec, table, *rest
    ),
    "compact-log": lambda spec, table, _choose, _make, *rest: log_compaction.run(spec, table, *rest),
}


def run_job(spec: JobSpec, site: JobSite, progress: ProgressReporter) -> JobReport:
    """Do what the spec asks, and report; raises nothing but what ends the process."""
    started_ms = site.runtime.now_ms()
    try:
        table = Table(spec.table, dict(site.storage_options))
        if spec.operation == "vacuum":
            return vacuum.run(
                spec,
                table,
                lambda asked, count_files: _choose_lister(asked, count_files, site),
                lambda: _spark_engine(spec, site),
                progress,
                site.runtime,
            )
        return _OPERATIONS[spec.operation](
            spec,
            table,
            lambda asked, planned_bytes: _choose(asked, planned_bytes, site),
            lambda name: _engine(name, spec, site),
            progress,
            site.runtime,
        )
    except Exception as error:  # noqa: BLE001 - it becomes part of the report
        return failure(spec, error, started_ms, site.runtime.now_ms())


def failure(spec: JobSpec, error: BaseException, started_ms: int, finished_ms: int) -> JobReport:
    """The report of a job that failed; where nobody foresaw the error, its traceback goes to standard
    error."""
    if not isinstance(error, DeltaLogError):
        print_traceback(error)
    description = describe_error(error)
    if isinstance(error, ContractError):
        description |= {"kind": "refused", "retryable": False}
    return JobReport(
        operation=spec.operation,
        table=spec.table,
        status="failed",
        run_id=spec.run_id,
        transaction=spec.transaction,
        error=description,
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
    from delta_maintenance.engine.spark import SparkEngine, spark_session

    return SparkEngine(
        lambda: spark_session(site.spark_master, f"delta-maintenance {spec.operation} {spec.run_id}"),
        site.storage_options,
        parallelism=spec.parallelism,
    )
