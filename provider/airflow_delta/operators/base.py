"""Base of the maintenance operators: from arguments to a job, and from its report to Airflow.

What an error becomes is decided in :mod:`~airflow_delta.operators.reporting.failure`, what the task's log says in
:mod:`~airflow_delta.runners.task_log`, and which events are emitted in :mod:`~airflow_delta.operators.reporting.results`.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.sdk.log import mask_secret
from msgspec.structs import replace

from airflow_delta.hooks.delta_table import DeltaTableHook
from airflow_delta.links import SparkApplicationLink, TableLink, TablePageLink, leading_links
from airflow_delta.named_table import located
from airflow_delta.notifications.failures import forget_failures
from airflow_delta.operators.arguments import DELTA_CONN_ID, SPARK_CONF, TABLE, by_attribute
from airflow_delta.operators.job_task import JobTask, chosen_spark_runner
from airflow_delta.operators.monitoring import report_failure, report_run
from airflow_delta.operators.reporting.failure import (
    airflow_exception,
    is_of_spark,
    raise_for,
    raise_for_error,
    with_connection,
    with_spark_connection,
)
from airflow_delta.operators.reporting.lineage import lineage_at_end, lineage_at_start
from airflow_delta.operators.reporting.results import ARGUMENTS as RESULT_ARGUMENTS
from airflow_delta.operators.reporting.results import add_outlets, aliases_of, emit, which_events
from airflow_delta.operators.reporting.stats import count
from airflow_delta.operators.reporting.table_stats import gauge_failure, gauge_report
from airflow_delta.run_identity import RunIdentity, mark_succeeded, recall_or_begin
from airflow_delta.runners.job_environment import CLIENT, DEPLOY_MODES
from airflow_delta.runners.job_runner import JobError, JobRunner
from airflow_delta.runners.task_log import tell_report
from delta_log.errors import DeltaLogError
from delta_log.printable import printable
from delta_maintenance.contract import ErrorReport, JobReport, JobSpec
from delta_maintenance.errors import error_report
from delta_maintenance.job_interface import ContractError
from delta_maintenance.options import (
    DRY_RUN,
    ENGINE,
    EXECUTOR_CREDENTIALS,
    MEMORY_LIMIT,
    PARALLELISM,
    Choice,
    Operation,
    Option,
    Text,
)

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_delta.runners.detached import DetachedRunner
    from airflow_delta.runners.drivers.driver import DriverLauncher


#: The arguments of every operator that runs a job.
JOB_ARGUMENTS = (
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
    EXECUTOR_CREDENTIALS,
    SPARK_CONF,
    Option(
        "spark_binary",
        Text(),
        "the spark-submit to use, a name or a path",
        otherwise="the program of the connection",
        templates="none",
    ),
    Option(
        "deploy_mode",
        Choice(DEPLOY_MODES),
        "where the Spark driver runs: beside the task, or on the cluster",
        otherwise="the mode of the connection",
    ),
    Option(
        "cluster_application",
        Text(),
        "with deploy mode cluster: path or URI of the job's program as the cluster finds it",
        otherwise="the path on this worker",
        templates="none",
    ),
    *RESULT_ARGUMENTS,
)

#: The same, for operators whose jobs have no use for Spark.
LOCAL_JOB_ARGUMENTS = (*JOB_ARGUMENTS, replace(ENGINE, default="local", argument_default="local"))


class DeltaJobOperator(JobTask):
    """Runs one maintenance job on one Delta table. A subclass names its operation, and takes its options as arguments.

    :param table: address of the table: an absolute path, a URI such as ``s3://lake/events``, or a name in a catalog,
        ``glue://sales.events`` or ``uc://prod.sales.events``. (templated)
    :param delta_conn_id: connection with the credentials of the table's storage, of type delta, aws, google_cloud_platform,
        wasb, adls, azure_data_lake or azure, or of a catalog; default: the identity of the machine. (templated)
    :param spark_conn_id: connection that names the Spark master. (templated)
    :param engine: program that does the work: ``local`` processes, ``spark``, or ``auto``: Spark where the work is too much for
        one machine. (templated)
    :param dry_run: switch to plan only and write nothing; the plan is the result. (templated)
    :param memory_limit: ceiling for the memory of the local engine. (templated)
    :param parallelism: threads of the local engine, or Spark tasks, at a time; default: what the machine or cluster has.
        (templated)
    :param executor_credentials: credentials of Spark's executors: ``job``: the credentials of the job are sent to them;
        ``ambient``: each executor uses the identity of its machine. (templated)
    :param spark_conf: properties of the Spark job, such as ``spark.executor.memory``. (its values templated)
    :param spark_binary: name or path of the spark-submit to use; default: the program of the connection.
    :param deploy_mode: place of the Spark driver: ``client`` or ``cluster``; default: the mode of the connection. (templated)
    :param cluster_application: path or URI of the job's program as the cluster finds it, with deploy mode ``cluster``; default:
        the path on this worker.
    :param emit_events: runs that emit an event of the maintenance asset: ``all`` that end well, those with ``changes``, or
        ``none``; default: the setting ``emit_events``. (templated)
    :param asset_alias: name of an alias whose one asset gets the events of all tables, instead of an asset for each table.
        (templated)
    :param emit_data_asset: switch to let a commit be an event of the table's data asset, too, which runs the DAGs that are
        scheduled on it. (templated)
    :param deferrable: switch to give up the worker slot while the job runs elsewhere; default:
        ``[operators] default_deferrable``.
    :param launcher: object that starts drivers on the cluster; default: the launcher that fits the connection.
    """

    operation: ClassVar[Operation]

    arguments = by_attribute(*JOB_ARGUMENTS)
    template_fields: Sequence[str] = (
        "table",
        "delta_conn_id",
        "spark_conn_id",
        "engine",
        "dry_run",
        "memory_limit",
        "parallelism",
        "executor_credentials",
        "spark_conf",
        "deploy_mode",
        "emit_events",
        "asset_alias",
        "emit_data_asset",
    )
    template_fields_renderers: ClassVar[dict[str, str]] = {"spark_conf": "json"}
    ui_color = "#e3f4f7"
    operator_extra_links = (SparkApplicationLink(), TableLink(), TablePageLink())

    #: The argument. On a task it hides a method of Airflow's base class, which logs the template fields and which nothing calls.
    dry_run: bool | str  # type: ignore[assignment]
    #: The report of the job, once it has ended.
    report: JobReport | None = None

    # OpenLineage calls them by these names.
    get_openlineage_facets_on_start = lineage_at_start
    get_openlineage_facets_on_complete = lineage_at_end
    get_openlineage_facets_on_failure = lineage_at_end

    def __init__(
        self,
        *,
        table: str,
        delta_conn_id: str | None = None,
        spark_conn_id: str = "spark_default",
        engine: str = "auto",
        dry_run: bool | str = False,
        memory_limit: int | str = "1GiB",
        parallelism: int | str | None = None,
        executor_credentials: str = "job",
        spark_conf: dict[str, Any] | None = None,
        spark_binary: str | None = None,
        deploy_mode: str | None = None,
        cluster_application: str | None = None,
        emit_events: str | None = None,
        asset_alias: str | None = None,
        emit_data_asset: bool | str = False,
        deferrable: bool | None = None,
        launcher: DriverLauncher | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.table = table
        self.delta_conn_id = delta_conn_id
        self.spark_conn_id = spark_conn_id
        self.engine = engine
        self.dry_run = dry_run
        self.memory_limit = memory_limit
        self.parallelism = parallelism
        self.executor_credentials = executor_credentials
        self.spark_conf = spark_conf
        self.spark_binary = spark_binary
        self.deploy_mode = deploy_mode
        self.cluster_application = cluster_application
        self.emit_events = emit_events
        self.asset_alias = asset_alias
        self.emit_data_asset = emit_data_asset
        self.launcher = launcher
        self._deferrable = deferrable
        add_outlets(self)

    @classmethod
    def partial(cls, **kwargs: Any) -> Any:
        """Declare the aliases of mapped tasks in the DAG, as the aliases of other tasks are.

        Airflow makes the row of a declared alias when it reads the DAG. Otherwise the first event makes it, and of several tasks that
        end at that moment Airflow marks all but one as failed.
        """
        tasks = super().partial(**kwargs)
        aliases = aliases_of(kwargs.get("asset_alias"), kwargs.get("emit_data_asset", False))
        given = tasks.kwargs.get("outlets") or []
        outlets = list(given) if isinstance(given, Collection) else [given]
        tasks.kwargs["outlets"] = [*outlets, *(alias for alias in aliases if alias not in outlets)]
        return tasks

    def check_known(self) -> None:
        super().check_known()
        if self.must_defer:
            self._require_deferrable_place()

    def _require_deferrable_place(self) -> None:
        """
        :raises ValueError: the job runs beside the task, so that the task must hold its slot.
        """
        if self.engine == "local":
            problem = "engine='local' runs the job beside the task"
        elif self.deploy_mode == CLIENT and self.launcher is None:
            problem = "deploy_mode='client' runs the Spark driver beside the task"
        else:
            return
        raise ValueError(
            f"deferrable: {problem}, so the task has to hold its slot. Use engine='spark' with a cluster (deploy mode 'cluster') or Spark "
            "Connect, or leave deferrable out."
        )

    def check_all(self) -> None:
        super().check_all()
        which_events(self)

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

    def spark_runner(self, storage_options: Mapping[str, Any]) -> JobRunner | DetachedRunner:
        return chosen_spark_runner(
            storage_options,
            self.log,
            self.operation.name,
            self.value_of("spark_conn_id"),
            deploy_mode=self.value_of("deploy_mode"),
            spark_conf=self.value_of("spark_conf") or {},
            spark_binary=self.value_of("spark_binary"),
            delta_conn_id=self.value_of("delta_conn_id"),
            launcher=self.launcher,
            application=self.value_of("cluster_application"),
            table=self.table,
        )

    def _spark_master(self) -> str | None:
        """The master that a local job may hand its work over to; only ``engine="auto"`` does."""
        if self.value_of("engine") != "auto" or self.launcher is not None:
            return None
        # Imported here, since a DAG file that is parsed needs no runner.
        from airflow_delta.runners.spark_fallback import master_for_large_work

        return master_for_large_work(
            self.value_of("spark_conn_id"), self.log, rewrites=self.operation.is_resumable
        )

    def execute(self, context: Context) -> dict[str, Any]:
        with leading_links(self):
            return self._carry_out(context, is_resumed=False)

    def execute_complete(self, context: Context, event: Mapping[str, Any]) -> dict[str, Any]:
        """Go on when the trigger says that the job is over.

        :param event: event of :class:`~airflow_delta.triggers.job.DeltaJobTrigger`.
        """
        self.log.info("The job is over: %s", printable(str(event.get("text", ""))))
        with leading_links(self):
            return self._carry_out(context, is_resumed=True)

    def _carry_out(self, context: Context, *, is_resumed: bool) -> dict[str, Any]:
        self._instance = context["ti"]
        self.check_all()
        hook = DeltaTableHook(self.value_of("delta_conn_id"))
        hook.require_allowed(*self.operation.places(self.options()))
        location = self._located(context, hook, is_resumed)
        try:
            identity = recall_or_begin(context, self.operation.name, self.table, time.time_ns() // 1000)
            mask_secret(identity.secret)
            spec = self._spec(context, identity, location, hook.allowed_roots)
            report = self._run(context, spec, hook.opening_options(self.table), identity.secret, is_resumed)
        except (JobError, ContractError) as error:
            report_failure(context, self.operation.name, self.table, error, self)
            gauge_failure(context, self.operation.name, self.table)
            # The message is complete; a chain of tracebacks would bury it in the task log.
            raise airflow_exception(error) from None
        if location != self.table:
            report = replace(report, table=self.table, location=location)
        if report.error is not None:
            report = replace(report, error=self._with_connections(report.error))
        self.report = report
        count(context, report)
        gauge_report(context, report)
        if report.status == "failed":
            report_failure(context, self.operation.name, self.table, report.error or ErrorReport(), self)
        raise_for(report, self.operation.name, self.table)
        tell_report(self.log, report)
        emit(context, report, self)
        report_run(context, report, self)
        forget_failures(context, self)
        mark_succeeded(context, identity)
        return report.to_dict()

    def _located(self, context: Context, hook: DeltaTableHook, is_resumed: bool) -> str:
        """
        :raises AirflowException: the name of the table leads to no place that the task may open.
        """
        try:
            return located(context, hook, self.table, self.log, is_resumed=is_resumed)
        except DeltaLogError as error:
            told = self._with_connections(error_report(error))
            report_failure(context, self.operation.name, self.table, told, self)
            gauge_failure(context, self.operation.name, self.table)
            raise_for_error(told, self.operation.name, self.table)

    def _with_connections(self, error: ErrorReport) -> ErrorReport:
        error = replace(error, message=with_connection(error.message, self.value_of("delta_conn_id")))
        if not is_of_spark(error) or self.launcher is not None:
            return error
        # Imported here, since the Spark provider is optional and slows down the parsing of DAG files.
        from airflow_delta.runners.spark_submit import master_of

        spark_conn_id = self.value_of("spark_conn_id")
        return with_spark_connection(error, spark_conn_id, master_of(spark_conn_id))

    def _spec(
        self,
        context: Context,
        identity: RunIdentity,
        location: str,
        allowed_roots: Mapping[str, Sequence[str]],
    ) -> JobSpec:
        instance = context["ti"]
        return JobSpec(
            operation=self.operation.name,
            table=location,
            run_id=identity.run_id,
            options=self.options(),
            engine=self.value_of("engine"),
            transaction=identity.transaction,
            memory_limit_bytes=self.value_of("memory_limit"),
            parallelism=self.value_of("parallelism"),
            executor_credentials=self.value_of("executor_credentials"),
            dry_run=self.value_of("dry_run"),
            allowed_roots=allowed_roots,
            tags={
                "airflow.dag_id": instance.dag_id,
                "airflow.task_id": instance.task_id,
                "airflow.run_id": instance.run_id,
            },
        )

    def _run(
        self,
        context: Context,
        spec: JobSpec,
        storage_options: Mapping[str, Any],
        run_key: str,
        is_resumed: bool,
    ) -> JobReport:
        if spec.engine != "spark" and not is_resumed:
            report = self.run_with(self.local_runner(storage_options), spec, run_key)
            if report.status != "needs_spark":
                return report
            self.log.info(
                "Going over to Spark: %s",
                printable(report.engine_reason or "the work is too large for a local process."),
            )
        return self.run_on_spark(context, spec, storage_options, run_key, is_resumed=is_resumed)
