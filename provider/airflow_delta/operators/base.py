"""Base of the maintenance operators: from arguments to a job, and from its report to Airflow.

Errors become Airflow's once, here. An error that a repetition cannot cure fails the task for good (``AirflowFailException``): the
table or the request was refused, a connection or a program is missing, or the report says that the error is not retryable. Every
other error is a plain failure, and the user's `retries` decide.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowException, AirflowFailException
from airflow.sdk.log import mask_secret

from airflow_delta.assets import MAINTENANCE_ALIAS, maintenance_asset
from airflow_delta.hooks.delta_table import DeltaTableHook
from airflow_delta.operators.arguments import DELTA_CONN_ID, TABLE, CheckedArguments, Members
from airflow_delta.run_identity import RunIdentity, mark_succeeded, recall_or_begin
from airflow_delta.runners.job_runner import JobCannotStart, JobLost, JobRunner
from delta_log.printable import printable
from delta_maintenance.contract import ContractError, ErrorReport, JobReport, JobSpec
from delta_maintenance.options import DRY_RUN, ENGINE, MEMORY_LIMIT, PARALLELISM, Operation, Option, Text

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_delta.runners.job_output import JobProgress

_DONE = ("committed", "written", "cleaned", "already_done")


class DeltaJobOperator(CheckedArguments, BaseOperator):
    """Runs one maintenance job on one Delta table.

    A subclass names its operation; its arguments follow from the options of that.
    """

    operation: ClassVar[Operation]

    own_arguments: ClassVar[Sequence[Option]] = (
        TABLE,
        DELTA_CONN_ID,
        Option(
            "spark_conn_id",
            Text(),
            "connection that names the Spark master",
            default="spark_default",
            argument_default="spark_default",
        ),
        ENGINE,
        DRY_RUN,
        MEMORY_LIMIT,
        PARALLELISM,
        Option(
            "spark_conf",
            Members(),
            "Spark properties of the job, such as spark.executor.memory",
            templates="members",
        ),
        Option(
            "spark_binary",
            Text(),
            "the spark-submit to use, a name or a path",
            otherwise="that of the connection",
            templates="none",
        ),
    )
    ui_color = "#e3f4f7"

    table: str

    def __init_subclass__(cls, **kwargs: Any) -> None:
        if "operation" in vars(cls):
            # A job that needs no engine has no use for Spark.
            engine = () if ENGINE in cls.operation.settings else (replace(ENGINE, argument_default="local"),)
            cls.own_arguments = (*engine, *cls.operation.options)
        super().__init_subclass__(**kwargs)

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if MAINTENANCE_ALIAS not in self.outlets:
            self.outlets.append(MAINTENANCE_ALIAS)
        self._runner: JobRunner | None = None

    def options(self) -> dict[str, Any]:
        """The options of the job spec.

        :raises ValueError: one of them makes no sense.
        """
        return self.operation.spec_options(
            {row.name: self.value_of(row.attribute) for row in self.operation.options}
        )

    def local_runner(self, storage_options: Mapping[str, Any]) -> JobRunner:
        from airflow_delta.runners.local import LocalJobRunner

        return LocalJobRunner(storage_options, self.log, spark_master=self._spark_master())

    def spark_runner(self, storage_options: Mapping[str, Any]) -> JobRunner:
        # Imported here, since the Spark provider is optional and slows down the parsing of DAG files.
        try:
            from airflow_delta.runners.spark_submit import SparkSubmitRunner
        except ImportError as error:
            raise JobCannotStart(
                f"Spark cannot be used here ({error}). Install airflow-provider-delta[airflow,spark]."
            ) from error
        return SparkSubmitRunner(
            self.value_of("spark_conn_id"),
            spark_conf=self.value_of("spark_conf") or {},
            spark_binary=self.value_of("spark_binary"),
            storage_options=storage_options,
            log=self.log,
        )

    def _spark_master(self) -> str | None:
        """The master that a local job may hand its work over to; only ``engine="auto"`` does."""
        if self.value_of("engine") != "auto":
            return None
        try:
            from airflow_delta.runners.spark_submit import master_of
        except ImportError:
            return None
        return master_of(self.value_of("spark_conn_id"))

    def execute(self, context: Context) -> dict[str, Any]:
        self.check_all()
        hook = DeltaTableHook(self.value_of("delta_conn_id"))
        hook.require_allowed(self.table, *self.operation.places(self.options()))
        storage_options = hook.storage_options
        try:
            identity = recall_or_begin(context, self.operation.name, self.table, time.time_ns() // 1000)
            mask_secret(identity.secret)
            spec = self._spec(context, identity, hook.allowed_roots)
            report = self._run(spec, storage_options, identity.secret)
        except JobCannotStart as error:
            # The message is complete; a chain of tracebacks would bury it in the task log.
            raise AirflowFailException(str(error)) from None
        except (JobLost, ContractError) as error:
            raise AirflowException(str(error)) from None
        self._raise_for(report)
        self._tell(report)
        self._emit(context, report)
        mark_succeeded(context, identity)
        return report.to_dict()

    def on_kill(self) -> None:
        if self._runner is not None:
            self.log.info("Stopping the job in %s.", self._runner.place)
            self._runner.stop()

    def _spec(
        self, context: Context, identity: RunIdentity, allowed_roots: Mapping[str, Sequence[str]]
    ) -> JobSpec:
        instance = context["ti"]
        return JobSpec(
            operation=self.operation.name,
            table=self.table,
            run_id=identity.run_id,
            options=self.options(),
            engine=self.value_of("engine"),
            transaction=identity.transaction,
            memory_limit_bytes=self.value_of("memory_limit"),
            parallelism=self.value_of("parallelism"),
            dry_run=self.value_of("plans_only"),
            allowed_roots=allowed_roots,
            tags={
                "airflow.dag_id": instance.dag_id,
                "airflow.task_id": instance.task_id,
                "airflow.run_id": instance.run_id,
            },
        )

    def _run(self, spec: JobSpec, storage_options: Mapping[str, Any], run_key: str) -> JobReport:
        if spec.engine == "spark":
            return self._run_with(self.spark_runner(storage_options), spec, run_key)
        report = self._run_with(self.local_runner(storage_options), spec, run_key)
        if report.status != "needs_spark":
            return report
        self.log.info(
            "Going over to Spark: %s",
            printable(report.engine_reason or "the work is too large for a local process."),
        )
        return self._run_with(self.spark_runner(storage_options), replace(spec, engine="spark"), run_key)

    def _run_with(self, runner: JobRunner, spec: JobSpec, run_key: str) -> JobReport:
        self._runner = runner
        self.log.info(
            "%s of %s in %s, run %s.",
            spec.operation.upper(),
            printable(spec.table),
            runner.place,
            spec.run_id,
        )
        return runner.run(spec, self._show, run_key)

    def _show(self, progress: JobProgress) -> None:
        self.log.info("%s", progress)

    def _raise_for(self, report: JobReport) -> None:
        error = report.error
        if error is None and report.status != "failed":
            return
        error = error or ErrorReport()
        problem = (
            f"{self.operation.name.upper()} of {self.table}: {error.message or 'failed without saying why.'}"
        )
        if error.type:
            problem = f"{problem} [{error.type}]"
        problem = printable(problem)
        if error.kind == "refused" or not error.retryable:
            raise AirflowFailException(problem)
        raise AirflowException(problem)

    def _tell(self, report: JobReport) -> None:
        what = {
            "committed": f"Committed version {report.version}.",
            "already_done": f"An earlier try of this task had committed version {report.version}; nothing to do again.",
            "written": f"Written for version {report.version}.",
            "cleaned": "Nothing was committed; old files of the log or of a quarantine were deleted.",
            "nothing_to_do": "Nothing to do; nothing was written.",
            "planned": "Planned only; nothing was written. The plan is this task's XCom.",
        }.get(report.status, report.status)
        self.log.info("%s", what)
        for name, value in sorted(report.metrics.items()):
            self.log.info("    %s: %s", printable(name), value)

    def _emit(self, context: Context, report: JobReport) -> None:
        """Emit an event for the maintenance asset.

        It is emitted for ``already_done``, too: the try that committed may have ended before it could.
        """
        if report.status not in _DONE:
            return
        extra: dict[str, Any] = {
            "operation": report.operation,
            "table": self.table,
            "version": report.version,
            "status": report.status,
            "run_id": report.run_id,
            "metrics": dict(report.metrics),
        }
        context["outlet_events"][MAINTENANCE_ALIAS].add(maintenance_asset(self.table), extra=extra)
