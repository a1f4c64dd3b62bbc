"""The doctor: whether jobs could do their work with the connections of a task."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowException

from airflow_delta.hooks.delta_table import DeltaTableHook
from airflow_delta.links import TableLink, leading_links
from airflow_delta.operators.arguments import DELTA_CONN_ID, TABLE, CheckedArguments, by_attribute
from airflow_delta.operators.reporting.failure import airflow_exception, raise_for_error
from airflow_delta.runners.job_environment import job_environment
from airflow_delta.runners.job_runner import JobCannotStart, JobError, JobLost
from airflow_delta.runners.local import end_process_group, what_ended
from delta_log.errors import DeltaLogError
from delta_log.printable import printable
from delta_maintenance.errors import error_report
from delta_maintenance.options import EXECUTOR_CREDENTIALS, Option, Text

if TYPE_CHECKING:
    from airflow.sdk import Context

_COMMAND = (sys.executable, "-P", "-m", "delta_maintenance", "doctor", "--json")
_LAST_LINES = 20


class DeltaDoctorOperator(CheckedArguments, BaseOperator):
    """Examines whether jobs could do their work: libraries, the rights on the table's store, clocks and, if asked for, Spark.

    ``delta-maintenance doctor`` makes the examination, in a process beside the task. The XCom is its document, also when a
    check has failed and the task fails.

    :param table: address of the table: an absolute path, a URI such as ``s3://lake/events``, or a name in a catalog,
        ``glue://sales.events`` or ``uc://prod.sales.events``. (templated)
    :param delta_conn_id: connection with the credentials of the table's storage, of type delta, aws, google_cloud_platform,
        wasb, adls, azure_data_lake or azure, or of a catalog; default: the identity of the machine. (templated)
    :param spark_conn_id: connection of a Spark whose machines are examined, too; the session is opened beside the task. Default: no
        Spark is looked at. (templated)
    :param executor_credentials: credentials of Spark's executors: ``job``: the credentials of the task are sent to them;
        ``ambient``: each executor uses the identity of its machine. (templated)
    """

    arguments = by_attribute(
        TABLE,
        DELTA_CONN_ID,
        Option(
            "spark_conn_id",
            Text(),
            "connection of a Spark whose machines are examined, too; the session is opened beside the task",
            otherwise="no Spark is looked at",
        ),
        EXECUTOR_CREDENTIALS,
    )
    template_fields = ("table", "delta_conn_id", "spark_conn_id", "executor_credentials")
    ui_color = "#e3f4f7"
    operator_extra_links = (TableLink(),)

    _process: subprocess.Popen[str] | None = None

    def __init__(
        self,
        *,
        table: str,
        delta_conn_id: str | None = None,
        spark_conn_id: str | None = None,
        executor_credentials: str = "job",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.table = table
        self.delta_conn_id = delta_conn_id
        self.spark_conn_id = spark_conn_id
        self.executor_credentials = executor_credentials
        self.check_known()

    def execute(self, context: Context) -> dict[str, Any]:
        with leading_links(self):
            return self._carry_out(context)

    def _carry_out(self, context: Context) -> dict[str, Any]:
        self.check_all()
        hook = DeltaTableHook(self.value_of("delta_conn_id"))
        try:
            location = hook.locate(self.table)
        except DeltaLogError as error:
            raise_for_error(error_report(error), "doctor", self.table)
        if location != self.table:
            self.log.info("%s is at %s.", printable(self.table), printable(location))
        try:
            document = self._examine(location, hook.opening_options(self.table))
        except JobError as error:
            raise airflow_exception(error) from None
        self._tell(document)
        failed = [check for check in document["checks"] if check["status"] == "failure"]
        if failed:
            context["ti"].xcom_push(key="return_value", value=document)
            raise AirflowException(printable(_shown(self.table, failed)))
        return document

    def on_kill(self) -> None:
        if self._process is not None:
            end_process_group(self._process)

    def _examine(self, location: str, storage_options: Mapping[str, Any]) -> dict[str, Any]:
        """
        :raises JobCannotStart: the Spark connection cannot be used.
        :raises JobLost: the process ended without a document.
        """
        spark, variables = self._spark()
        command = [*_COMMAND, "--table", location, *spark]
        command += ["--executor-credentials", self.value_of("executor_credentials")]
        process = self._process = subprocess.Popen(
            command,
            env=job_environment(storage_options, **variables),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        try:
            output, said = process.communicate()
        finally:
            end_process_group(process)
            self._process = None
        try:
            document = json.loads(output)
        except ValueError:
            document = {}
        for line in said.splitlines():
            self.log.debug("%s", printable(line))
        if "checks" in document:
            return dict(document)
        error = document.get("error", {}).get("message") if isinstance(document, dict) else None
        raise JobLost(
            error or what_ended("The doctor", process.returncode),
            tuple(printable(line) for line in said.splitlines()[-_LAST_LINES:]),
        )

    def _spark(self) -> tuple[list[str], dict[str, str]]:
        """The arguments of the command about Spark, and variables, which may hold a token."""
        spark_conn_id = self.value_of("spark_conn_id")
        if spark_conn_id is None:
            return [], {}
        # Imported here, since the Spark provider is optional and slows down the parsing of DAG files.
        try:
            from airflow_delta.runners.spark_connect import is_spark_connect, remote_of
            from airflow_delta.runners.spark_submit import master_of, require_connection
        except ImportError as error:
            raise JobCannotStart(
                f"Spark cannot be examined here ({error}). Install airflow-provider-delta[airflow,spark]."
            ) from error
        if is_spark_connect(require_connection(spark_conn_id)):
            return ["--spark"], {"SPARK_REMOTE": remote_of(spark_conn_id)}
        master = master_of(spark_conn_id)
        if master is None:
            raise JobCannotStart(
                f"Spark connection {spark_conn_id!r} cannot be used. Set its type to 'spark' and the master as its host, for example "
                "local[*], yarn or spark://host:7077."
            )
        return ["--spark", "--master", master], {}

    def _tell(self, document: Mapping[str, Any]) -> None:
        # Imported here: a DAG file imports this module.
        from delta_maintenance.text.doctor import remark

        levels = {"warning": self.log.warning, "failure": self.log.error}
        for check in document["checks"]:
            levels.get(check["status"], self.log.info)("%s", printable(remark(check)))


def _shown(table: str, failed: Sequence[Mapping[str, Any]]) -> str:
    checks = "; ".join(
        f"{check['name']}: {check['message']} {check.get('remedy', '')}".rstrip() for check in failed
    )
    number = "1 check" if len(failed) == 1 else f"{len(failed)} checks"
    return f"The doctor of {table}: {number} failed. {checks}"
