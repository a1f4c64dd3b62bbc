"""Runs a job as a PySpark application, through the Apache Spark provider's spark-submit hook.

What is wrong is refused before anything is submitted, as far as it can be known: an absent connection (the hook would use a
YARN cluster that no connection names), an unknown master, a missing spark-submit or Java, and the cluster deploy mode, in which
neither the job's output nor its environment passes through this machine.

The master, queue, spark-submit binary and the like come from the Spark connection, as for ``SparkSubmitOperator``.
"""

from __future__ import annotations

import importlib.util
import secrets
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from airflow.sdk import BaseHook
from airflow.sdk.exceptions import AirflowException, AirflowNotFoundException

from airflow_delta.runners import spark_settings
from airflow_delta.runners.job_environment import job_environment
from airflow_delta.runners.job_output import JobOutput, JobProgress, bounded_lines
from airflow_delta.runners.job_runner import JobCannotStart, JobError, JobLost, ProgressListener, TaskLog
from airflow_delta.runners.local import end_process_group, what_ended
from delta_log.printable import printable
from delta_maintenance.contract import JobReport, JobSpec
from delta_maintenance.engine.spark.application import application_name
from delta_maintenance.process.bundle import build_bundle

if TYPE_CHECKING:
    from airflow.sdk import Connection
    from requests.auth import AuthBase


_MAY_HAVE_COMMITTED = "It may have committed; another try finds that out, and takes over finished bins."


class SparkSubmitRunner:
    """A :class:`~airflow_delta.runners.job_runner.JobRunner` on Spark, in client deploy mode.

    :param spark_conn_id: the Airflow connection that names the master.
    :param spark_conf: Spark properties, which override our defaults.
    :param spark_binary: the spark-submit to use instead of the connection's.
    :param storage_options: credentials for the table; they go into the driver's environment.
    :param log: log that receives what Spark and the job write, live.
    :param deploy_mode: deploy mode to use instead of the connection's.
    """

    def __init__(
        self,
        spark_conn_id: str,
        *,
        spark_conf: Mapping[str, Any],
        spark_binary: str | None,
        storage_options: Mapping[str, Any],
        log: TaskLog,
        deploy_mode: str | None = None,
    ) -> None:
        self._spark_conn_id = spark_conn_id
        self._spark_conf = spark_conf
        self._spark_binary = spark_binary
        self._storage_options = storage_options
        self._log = log
        self._deploy_mode = deploy_mode
        self._hook: LineSortingHook | None = None
        self._is_stopped = False
        self.place = f"Spark (connection {spark_conn_id})"

    def run(self, spec: JobSpec, on_progress: ProgressListener, run_key: str | None = None) -> JobReport:
        nonce = secrets.token_hex(16)
        output = JobOutput(nonce, spark_settings.chatter_level(self._spark_conf))
        self._is_stopped = False
        with tempfile.TemporaryDirectory(prefix="delta-maintenance-") as directory:
            hook = self._prepared_hook(spec, output, on_progress, directory)
            binary = spark_settings.find_spark_submit(hook.binary)
            environment = job_environment(
                self._storage_options,
                run_key=run_key,
                output_nonce=nonce,
                **spark_settings.launcher_environment(binary, hook.master),
            )
            spark_settings.require_java(environment)
            self._log.info(
                "Submitting %s of %s to master %s.", spec.operation, printable(spec.table), hook.master
            )
            self._hook = hook
            if self._is_stopped:
                hook.stop()
            try:
                # Not the hook's env_vars: on YARN and Kubernetes those become arguments, readable by everyone.
                hook.submit(
                    spark_settings.application(),
                    env=environment,
                    start_new_session=True,
                    errors="replace",
                )
            except AirflowException:
                # If there is a report, it says more than the exit code.
                if output.report is None:
                    raise _lost(hook, output) from None
            except OSError as error:
                raise JobCannotStart(f"{binary} cannot be started: {error}.") from error
            finally:
                self.stop()
                hook.close()
        if output.report is None:
            raise _lost(hook, output)
        return output.report

    def stop(self) -> None:
        self._is_stopped = True
        hook, self._hook = self._hook, None
        if hook is not None:
            hook.stop()

    def _prepared_hook(
        self, spec: JobSpec, output: JobOutput, on_progress: ProgressListener, directory: str
    ) -> LineSortingHook:
        hook = LineSortingHook.of_connection(
            self._spark_conn_id,
            output=output,
            on_progress=on_progress,
            log=self._log,
            conf=dict(self._spark_conf),
            name=application_name(spec),
            application_args=["--spec", spec.to_json()],
            spark_binary=self._spark_binary,
            deploy_mode=self._deploy_mode,
        )
        spark_settings.require_known_master(hook.master, self._spark_conn_id)
        spark_settings.require_client_mode(hook.deploy_mode, self._spark_conn_id, bool(self._storage_options))
        hook.set_conf({**spark_settings.defaults_for(hook.master), **self._spark_conf})
        hook.set_py_files(str(build_bundle(Path(directory))))
        return hook


def require_connection(spark_conn_id: str) -> Connection:
    """
    :raises JobCannotStart: there is no such connection.
    """
    try:
        return BaseHook.get_connection(spark_conn_id)
    except AirflowNotFoundException as error:
        raise JobCannotStart(
            f"There is no Airflow connection {spark_conn_id!r}, so it is not known which Spark to use. "
            "Create it with type 'spark' and the master as its host, for example "
            "local[*], yarn or spark://host:7077; or use engine='local'."
        ) from error


def master_of(spark_conn_id: str) -> str | None:
    """The master that a connection names; ``None`` where there is no such connection."""
    try:
        BaseHook.get_connection(spark_conn_id)
        return str(SparkSubmitHook(conn_id=spark_conn_id)._connection["master"])
    except (AirflowNotFoundException, ValueError, RuntimeError, NameError):
        # A NameError is the hook's if the package for Kubernetes is missing.
        return None


def require_kubernetes_client(spark_conn_id: str) -> None:
    """Look for the package that the Spark provider's hook needs if the connection names a master on Kubernetes.

    :raises JobCannotStart: there is no such package, or no such connection.
    """
    connection = require_connection(spark_conn_id)
    if "k8s" not in f"{connection.conn_type}://{connection.host}":
        return
    try:
        found = importlib.util.find_spec("airflow.providers.cncf.kubernetes")
    except ModuleNotFoundError:
        found = None
    if found is None:
        raise JobCannotStart(
            f"Connection {spark_conn_id!r} names a master on Kubernetes, and the package for it is missing. Nothing was submitted. Install "
            "airflow-provider-delta[kubernetes]."
        )


def yarn_authentication(spark_conn_id: str) -> AuthBase | None:
    """How the Spark provider's hook authenticates with YARN's ResourceManager: by Kerberos where the connection has a keytab and a
    principal.

    :raises JobCannotStart: the package for Kerberos is missing.
    """
    require_connection(spark_conn_id)
    try:
        found: AuthBase | None = SparkSubmitHook(conn_id=spark_conn_id)._resolved_yarn_rm_auth
    except (ValueError, RuntimeError) as error:
        raise JobCannotStart(f"Spark connection {spark_conn_id!r} cannot be used: {error}") from error
    return found


class LineSortingHook(SparkSubmitHook):
    """The provider's hook, which takes the job's own lines out of the stream. No other class uses private names of the hook."""

    def __init__(
        self,
        *,
        output: JobOutput,
        on_progress: ProgressListener,
        log: TaskLog,
        more_arguments: Sequence[str] = (),
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self._output = output
        self._on_progress = on_progress
        self._task_log = log
        self._more_arguments = more_arguments
        self._is_stopped = False

    @classmethod
    def of_connection(cls, spark_conn_id: str, **kwargs: Any) -> LineSortingHook:
        """
        :raises JobCannotStart: the connection cannot be used.
        """
        require_kubernetes_client(spark_conn_id)
        try:
            return cls(conn_id=spark_conn_id, **kwargs)
        except (ValueError, RuntimeError) as error:
            raise JobCannotStart(f"Spark connection {spark_conn_id!r} cannot be used: {error}") from error

    @property
    def master(self) -> str:
        return str(self._connection["master"])

    @property
    def binary(self) -> str:
        return str(self._connection["spark_binary"])

    @property
    def deploy_mode(self) -> str:
        return str(self._connection["deploy_mode"] or self._conf.get("spark.submit.deployMode") or "client")

    @property
    def exit_code(self) -> int | None:
        process: subprocess.Popen[str] | None = self._submit_sp
        return None if process is None else process.poll()

    def _build_spark_common_args(self) -> list[str]:
        arguments: list[str] = super()._build_spark_common_args()
        return [*arguments, *self._more_arguments]

    def set_conf(self, conf: Mapping[str, Any]) -> None:
        self._conf = dict(conf)

    def set_py_files(self, py_files: str) -> None:
        self._py_files = py_files

    def stop(self) -> None:
        """End spark-submit, and one that is only about to be started as soon as it is there."""
        self._is_stopped = True
        process: subprocess.Popen[str] | None = self._submit_sp
        if process is None:
            return
        if process.poll() is None:
            self.on_kill()  # knows how to end an application on YARN or Kubernetes
        end_process_group(process)

    def close(self) -> None:
        """Close what spark-submit's output came through, when it has ended."""
        process: subprocess.Popen[str] | None = self._submit_sp
        if process is not None and process.stdout is not None:
            process.stdout.close()

    def _process_spark_submit_log(self, itr: Iterator[Any]) -> None:
        # The provider's own would look for the names of drivers and pods to kill in lines that quote the table. They are
        # needed in cluster mode alone.
        process: subprocess.Popen[str] | None = self._submit_sp
        assert process is not None
        assert process.stdout is not None
        if self._is_stopped:
            self.stop()
        for item in self._output.sort(bounded_lines(process.stdout)):
            if isinstance(item, JobProgress):
                self._on_progress(item)
            else:
                item.tell(self._task_log)


def _lost(hook: LineSortingHook, output: JobOutput) -> JobError:
    """The error of a spark-submit that left no report of the job."""
    refusal = None if output.has_begun else spark_settings.launcher_refusal(output.last_lines)
    if refusal is not None:
        return JobCannotStart(refusal)
    ended = what_ended(*spark_settings.ended_process(hook.exit_code))
    return JobLost(f"{ended} {_MAY_HAVE_COMMITTED}" if output.has_begun else ended, output.last_lines)
