"""What the operators share that work on tables of a fleet: how their jobs run, in the process of the task or on Spark."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.sdk.log import mask_secret
from msgspec.structs import replace

from airflow_delta.fleet.arguments import STATE
from airflow_delta.fleet.fleet_task import FleetTask, TaskKilled
from airflow_delta.links import SparkApplicationLink
from airflow_delta.named_table import located
from airflow_delta.operators.arguments import DELTA_CONN_ID, SPARK_CONF
from airflow_delta.operators.job_task import JobTask, chosen_spark_runner
from airflow_delta.run_identity import recall_or_begin
from airflow_delta.runners.job_runner import JobError
from airflow_delta.submitted_job import submitted_job
from delta_log.catalog.lookup import opening_options
from delta_maintenance.contract import JobReport, JobSpec
from delta_maintenance.errors import error_report, refusal_report
from delta_maintenance.options import (
    EXECUTOR_CREDENTIALS,
    MEMORY_LIMIT,
    PARALLELISM,
    SPARK_ABOVE,
    Option,
    Text,
)

if TYPE_CHECKING:
    from airflow.sdk import BaseOperatorLink, Context

    from airflow_delta.runners.detached import DetachedRunner
    from airflow_delta.runners.job_runner import JobRunner
    from delta_maintenance.fleet.run import FleetJob, RunJob
    from delta_maintenance.job import JobSite
    from delta_maintenance.progress import ProgressReporter

SPARK_CONN_ID = Option(
    "spark_conn_id",
    Text(),
    "connection that names the Spark master for large rewrites",
    otherwise="a Spark session of its own beside the task, with all processors of the machine",
)
WORK_ARGUMENTS = (
    STATE,
    DELTA_CONN_ID,
    MEMORY_LIMIT,
    PARALLELISM,
    SPARK_ABOVE,
    SPARK_CONN_ID,
    SPARK_CONF,
    EXECUTOR_CREDENTIALS,
)


class FleetWorkOperator(FleetTask, JobTask):
    """Base of the operators that maintain tables of a fleet.

    :param state: directory in which the fleet keeps its memory. (templated)
    :param delta_conn_id: connection with the credentials of the stores; default: the identity of the machine. (templated)
    :param memory_limit: ceiling for the memory of a rewrite in the process of the task. (templated)
    :param parallelism: threads of a rewrite, or Spark tasks, at a time; default: what the machine or cluster has. (templated)
    :param spark_above: size above which a rewrite runs on Spark; default: all work is done in the process of the task. (templated)
    :param spark_conn_id: connection that names the Spark master for these rewrites; default: a Spark session of its own beside the
        task, with all processors of the machine. (templated)
    :param spark_conf: properties of a Spark job, such as ``spark.executor.memory``; they need ``spark_conn_id``. (its values templated)
    :param executor_credentials: credentials of Spark's executors: ``job``: the credentials of the job are sent to them;
        ``ambient``: each executor uses the identity of its machine. (templated)
    """

    template_fields: Sequence[str] = (
        "state",
        "delta_conn_id",
        "memory_limit",
        "parallelism",
        "spark_above",
        "spark_conn_id",
        "spark_conf",
        "executor_credentials",
    )
    template_fields_renderers: ClassVar[dict[str, str]] = {"spark_conf": "json"}
    ui_color = "#e3f4f7"
    operator_extra_links: Collection[BaseOperatorLink] = (SparkApplicationLink(),)

    #: The run of the job that is over, in a try that goes on after a deferral.
    _ended_run: str | None = None
    #: The table of the job that runs on Spark, as its spec names it.
    _table_on_spark: str | None = None
    _is_killed = False

    def __init__(
        self,
        *,
        state: str,
        delta_conn_id: str | None = None,
        memory_limit: int | str = "1GiB",
        parallelism: int | str | None = None,
        spark_above: int | str | None = None,
        spark_conn_id: str | None = None,
        spark_conf: dict[str, Any] | None = None,
        executor_credentials: str = "job",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if spark_conf and spark_conn_id is None:
            raise ValueError(
                "spark_conf is for the Spark that spark_conn_id names, and none is named. Name a connection, or leave spark_conf out."
            )
        self.state = state
        self.delta_conn_id = delta_conn_id
        self.memory_limit = memory_limit
        self.parallelism = parallelism
        self.spark_above = spark_above
        self.spark_conn_id = spark_conn_id
        self.spark_conf = spark_conf
        self.executor_credentials = executor_credentials

    def fleet_job(self) -> FleetJob:
        # Imported here, since it loads pyarrow, and a DAG file imports this module.
        from delta_maintenance.fleet.run import FleetJob

        return FleetJob(
            memory_limit_bytes=self.value_of("memory_limit"),
            parallelism=self.value_of("parallelism"),
            spark_above_bytes=self.value_of("spark_above"),
            executor_credentials=self.value_of("executor_credentials"),
            allowed_roots=self.hook.allowed_roots,
        )

    def job_runner(self, context: Context) -> RunJob:
        """The function that does each job of the task: in this process, or on Spark where its spec says so."""
        from delta_maintenance.job import run_job

        self._instance = context["ti"]

        def run(spec: JobSpec, site: JobSite, progress: ProgressReporter) -> JobReport:
            if spec.engine != "spark":
                return run_job(spec, site, progress)
            return self._job_on_spark(context, spec, site)

        return run

    def _job_on_spark(self, context: Context, spec: JobSpec, site: JobSite) -> JobReport:
        """A report in any case. A job that has left none has failed."""
        started_ms, is_resumed = site.runtime.now_ms(), spec.run_id == self._ended_run
        self._ended_run, self._table_on_spark = None, spec.table
        options = opening_options(spec.table, site.storage_options)
        try:
            place = located(context, self.hook, spec.table, self.log, is_resumed=is_resumed)
            identity = recall_or_begin(context, spec.operation, spec.table, time.time_ns() // 1000)
            mask_secret(identity.secret)
            report = self.run_on_spark(
                context, replace(spec, table=place), options, identity.secret, is_resumed=is_resumed
            )
        except Exception as error:  # noqa: BLE001 - it becomes the report, and the other tables have their turn
            if self._is_killed:
                raise TaskKilled("Airflow ends the task.") from None
            is_refused = isinstance(error, JobError) and not error.retryable
            return JobReport(
                operation=spec.operation,
                table=spec.table,
                status="failed",
                run_id=spec.run_id,
                transaction=spec.transaction,
                error=refusal_report(error) if is_refused else error_report(error),
                started_ms=started_ms,
                finished_ms=site.runtime.now_ms(),
            )
        return report.given_as(spec.table)

    def spark_runner(self, storage_options: Mapping[str, Any]) -> JobRunner | DetachedRunner:
        spark_conn_id = self.value_of("spark_conn_id")
        if spark_conn_id is None:
            from airflow_delta.runners.local import LocalJobRunner

            return LocalJobRunner(storage_options, self.log)
        return chosen_spark_runner(
            storage_options,
            self.log,
            "optimize",
            spark_conn_id,
            spark_conf=self.value_of("spark_conf") or {},
            delta_conn_id=self.value_of("delta_conn_id"),
            table=self._table_on_spark,
        )

    def execute_complete(self, context: Context, event: Mapping[str, Any]) -> Any:
        """Go on when the trigger says that a job is over.

        :param event: event of :class:`~airflow_delta.triggers.job.DeltaJobTrigger`.
        """
        job = submitted_job(context)
        self._ended_run = None if job is None else job.run_id
        return self.execute(context)

    def on_kill(self) -> None:
        self._is_killed = True
        JobTask.on_kill(self)
        FleetTask.on_kill(self)
