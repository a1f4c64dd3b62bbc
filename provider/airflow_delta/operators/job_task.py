"""Base of the tasks that run jobs: in a process beside the task or on Spark, with or without the task's slot.

A task runs one job at a time. Its state store names the job that it has submitted last (:mod:`airflow_delta.submitted_job`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NoReturn

from airflow.sdk import BaseOperator
from airflow.sdk.configuration import conf
from airflow.sdk.exceptions import AirflowTaskTimeout, TaskDeferralTimeout
from msgspec.structs import replace

from airflow_delta.hooks.delta_table import DeltaTableHook
from airflow_delta.links import SparkApplicationLink
from airflow_delta.operators.arguments import CheckedArguments
from airflow_delta.operators.detached_run import DetachedRun
from airflow_delta.runners.detached import DetachedRunner, JobHandle
from airflow_delta.runners.job_runner import JobCannotStart, JobError, JobRunner, TaskLog
from airflow_delta.runners.task_log import ProgressLog
from airflow_delta.submitted_job import forget_job, submitted_job
from delta_log.printable import printable
from delta_maintenance.contract import JobReport, JobSpec

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_delta.runners.job_output import JobProgress


def chosen_spark_runner(
    storage_options: Mapping[str, Any], log: TaskLog, operation: str, spark_conn_id: str, **choice: Any
) -> JobRunner | DetachedRunner:
    """The runner that fits a Spark connection.

    :param choice: further members of a :class:`~airflow_delta.runners.spark_runner.SparkChoice`.
    :raises JobCannotStart: there is no such connection, or no runner for it.
    """
    # Imported here, since the Spark provider is optional and slows down the parsing of DAG files.
    try:
        from airflow_delta.runners.spark_runner import SparkChoice
    except ImportError as error:
        raise JobCannotStart(
            f"Spark cannot be used here ({error}). Install airflow-provider-delta[airflow,spark]."
        ) from error
    return SparkChoice(operation, spark_conn_id, **choice).runner(storage_options, log)


class JobTask(CheckedArguments, BaseOperator):
    """Base of the tasks that run jobs.

    A subclass says which Spark it uses (:meth:`spark_runner`), and sets ``_instance`` before its first job.
    """

    #: The Spark application of the job, as far as it is known before there is a report.
    spark_application: Mapping[str, Any] | None = None
    _deferrable: bool | None = None
    _instance: Any = None
    _runner: JobRunner | None = None
    _cancel: Callable[[], None] | None = None

    # Without an initializer of its own, Airflow takes the defaults of BaseOperator's for this class's, and inlets of a mapped task are None.
    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)

    def spark_runner(self, storage_options: Mapping[str, Any]) -> JobRunner | DetachedRunner:
        """The Spark of this task.

        :raises JobCannotStart: it cannot be used.
        """
        raise NotImplementedError

    @property
    def must_defer(self) -> bool:
        """Whether the DAG file asks for it, and no setting."""
        return self._deferrable is True

    @property
    def deferrable(self) -> bool:
        """Whether the task gives up its slot while its job runs elsewhere.

        The setting is looked up when it is needed: parsing a DAG of a thousand operators would look it up a thousand times.
        """
        if self._deferrable is None:
            return bool(conf.getboolean("operators", "default_deferrable", fallback=False))
        return self._deferrable

    def run_on_spark(
        self,
        context: Context,
        spec: JobSpec,
        storage_options: Mapping[str, Any],
        run_key: str,
        *,
        is_resumed: bool,
    ) -> JobReport:
        """Run a job on the Spark of this task. A job that outlives its task is followed, or the task is deferred.

        :param is_resumed: the trigger has found that the job is over.
        :raises JobError: there is no report.
        """
        spec = replace(spec, engine="spark")
        runner = self.spark_runner(storage_options)
        if isinstance(runner, DetachedRunner):
            run = self._detached_run(context, runner, spec, run_key)
            return run.go_on() if is_resumed else run.begin()
        if self.must_defer:
            raise JobCannotStart(
                f"The task asks to be deferred (deferrable=True), but with {runner.place} the Spark driver runs beside it. Nothing was "
                "submitted. Use a connection with deploy-mode 'cluster' or Spark Connect, or leave deferrable out."
            )
        return self.run_with(runner, spec, run_key)

    def run_with(self, runner: JobRunner, spec: JobSpec, run_key: str) -> JobReport:
        """Run a job, and wait for it.

        :raises JobError: there is no report.
        """
        self._runner = runner
        self._say_start(spec, runner.place)
        return runner.run(spec, self._show, run_key)

    def resume_execution(self, next_method: str, next_kwargs: dict[str, Any] | None, context: Context) -> Any:
        try:
            return super().resume_execution(next_method, next_kwargs, context)
        except TaskDeferralTimeout:
            try:
                self._cancel_submitted(context)
            except JobError as error:
                self.log.warning("The job could not be cancelled, and may go on: %s", printable(str(error)))
            raise AirflowTaskTimeout(
                f"The job took longer than the task's execution_timeout ({self.execution_timeout}), and was cancelled. What it has committed "
                "stands; another try goes on with the rest."
            ) from None

    def on_kill(self) -> None:
        if self._runner is not None:
            self.log.info("Stopping the job in %s.", self._runner.place)
            self._runner.stop()
        if self._cancel is not None:
            self._cancel()

    def _cancel_submitted(self, context: Context) -> None:
        job = submitted_job(context)
        runner = self.spark_runner(DeltaTableHook(self.value_of("delta_conn_id")).storage_options)
        if job is not None and job.handle is not None and isinstance(runner, DetachedRunner):
            runner.cancel(job.handle)
        forget_job(context)

    def _detached_run(
        self, context: Context, runner: DetachedRunner, spec: JobSpec, run_key: str
    ) -> DetachedRun:
        def defer(handle: JobHandle, seconds: float | None) -> NoReturn:
            from airflow_delta.triggers.deferral import deferral_timeout
            from airflow_delta.triggers.job import DeltaJobTrigger

            self._cancel = None
            self.defer(
                trigger=DeltaJobTrigger(*runner.serialize(), handle),
                method_name="execute_complete",
                timeout=None if seconds is None else deferral_timeout(seconds),
            )

        self._say_start(spec, runner.place)
        run = DetachedRun(
            context,
            runner,
            spec,
            run_key,
            self.log,
            self._show,
            defer if self.deferrable else None,
            self.execution_timeout,
        )
        self._cancel = run.interrupt
        return run

    def _say_start(self, spec: JobSpec, place: str) -> None:
        self._progress_log = ProgressLog(self.log)
        self.log.info(
            "%s of %s in %s, run %s.", spec.operation.upper(), printable(spec.table), place, spec.run_id
        )

    def _show(self, progress: JobProgress) -> None:
        if progress.spark is not None and progress.spark != self.spark_application:
            self.spark_application = progress.spark
            SparkApplicationLink().show(self._instance, progress.spark)
        self._progress_log.tell(progress)
