"""Runs a job on a Spark Connect server.

OPTIMIZE and REORG PURGE run in two jobs beside the task, each of which takes seconds, and one operation on the server between them
(:class:`~delta_maintenance.engine.connect.detached_rewrite.DetachedRewrite`): the first job plans and begins the rewrite, the second commits what
is finished. Meanwhile the task may hold its slot or not; the rewrite is looked at by its id. If the server loses it, the second job begins
another one for the bins that are left.

The other operations run in one job beside the task (:class:`ConnectJobRunner`), since what they do on Spark is a listing in the midst of
their work.

The address of the server with its token is in the environment of these jobs only.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from airflow.providers.apache.spark.hooks.spark_connect import SparkConnectHook
from airflow.sdk.log import mask_secret
from msgspec.structs import replace

from airflow_delta.hooks.delta_table import DeltaTableHook
from airflow_delta.runners.detached import DetachedRunner, JobHandle, JobState
from airflow_delta.runners.job_output import JobProgress
from airflow_delta.runners.job_runner import JobCannotStart, JobLost, TaskLog
from airflow_delta.runners.local import JOB_COMMAND, LocalJobRunner
from airflow_delta.runners.spark_submit import require_connection
from airflow_delta.runners.task_log import ProgressLog
from delta_log.errors import DeltaLogError
from delta_log.printable import printable_logger
from delta_maintenance.contract import JobReport, JobSpec
from delta_maintenance.engine.connect.detached_rewrite import DETACHED_REWRITE_VARIABLE, DetachedRewrite
from delta_maintenance.engine.connect.server import ConnectServer, cancel, import_client
from delta_maintenance.engine.connect.sessions import is_connect_address
from delta_maintenance.engine.spark.session import user_of

if TYPE_CHECKING:
    from airflow.sdk import Connection

log = printable_logger(__name__)

CONNECTION_TYPE = "spark_connect"
#: Operations whose work on Spark one job can begin and another finish.
DETACHED_OPERATIONS = ("optimize", "purge")
#: Extras of the connection that become parameters of the address, besides the parameters that the hook adds.
_EXTRAS = ("token", "user_id")
#: The server tells progress every other second.
_SECONDS_OF_LOOK = 3.0


def is_spark_connect(connection: Connection) -> bool:
    """Tell whether a connection names a Spark Connect server, by its type or by the scheme of its host."""
    return connection.conn_type == CONNECTION_TYPE or is_connect_address(connection.host or "")


def remote_of(spark_conn_id: str) -> str:
    """The address of the server that a connection names, with its token.

    :raises JobCannotStart: there is no such connection, or it names no server.
    """
    connection = require_connection(spark_conn_id)
    if not (connection.host or "").removeprefix("sc://"):
        raise JobCannotStart(
            f"Connection {spark_conn_id!r} names no host, so it is not known where the Spark Connect server is, and nothing was started. Set "
            "its host to the name of the server, for example sc://spark.example.com, and its port."
        )
    try:
        remote = SparkConnectHook(spark_conn_id).get_connection_url()
    except ValueError as error:
        raise JobCannotStart(f"Spark connection {spark_conn_id!r} cannot be used: {error}") from error
    extra = connection.extra_dejson
    for name in _EXTRAS:
        if extra.get(name) and f"{name}=" not in remote:
            remote += f";{name}={quote(str(extra[name]), safe='')}"
    if extra.get("token"):
        mask_secret(extra["token"])
    return remote


class ConnectJobRunner(LocalJobRunner):
    """A :class:`~airflow_delta.runners.job_runner.JobRunner` whose job runs beside the task and uses a Spark Connect server."""

    def __init__(self, spark_conn_id: str, storage_options: Mapping[str, Any], log: TaskLog) -> None:
        super().__init__(storage_options, log, environment={"SPARK_REMOTE": remote_of(spark_conn_id)})
        self.place = _place(spark_conn_id)


class SparkConnectRunner(DetachedRunner):
    """A :class:`~airflow_delta.runners.detached.DetachedRunner` on a Spark Connect server.

    :param spark_conn_id: the Airflow connection that names the server.
    :param delta_conn_id: the Airflow connection with the credentials of the table.
    :param table: the table as its task names it, for credentials that a catalog gives out; default: the address of the job. Who follows
        a job without it, as a trigger does, needs none.
    """

    poll_seconds = 2.0

    def __init__(
        self, spark_conn_id: str, delta_conn_id: str | None = None, table: str | None = None
    ) -> None:
        self._spark_conn_id, self._delta_conn_id, self._table = spark_conn_id, delta_conn_id, table
        self._remote: str | None = None
        self.place = _place(spark_conn_id)

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return (
            f"{__name__}.{type(self).__name__}",
            {"spark_conn_id": self._spark_conn_id, "delta_conn_id": self._delta_conn_id},
        )

    def submit(self, spec: JobSpec, run_key: str, submission_id: str) -> JobHandle | JobReport:
        return self._run("--begin", self._named(submission_id), spec, run_key)

    def prepare(self) -> None:
        try:
            import_client()
        except DeltaLogError as error:
            raise JobCannotStart(str(error)) from error
        self._address  # noqa: B018 - looks it up

    def find(self, spec: JobSpec, submission_id: str) -> JobHandle | None:
        rewrite = self._named(submission_id)
        with ConnectServer(self._address, rewrite) as server:
            return None if server.look(_SECONDS_OF_LOOK).is_lost else rewrite.to_dict()

    def poll(self, handle: JobHandle) -> JobState:
        rewrite = DetachedRewrite.from_dict(handle)
        try:
            with ConnectServer(self._address, rewrite) as server:
                state = server.look(_SECONDS_OF_LOOK)
        except DeltaLogError as error:
            self._remote = None  # the connection may be corrected meanwhile
            raise JobCannotStart(str(error)) from error
        progress = None
        if rewrite.bins is not None and rewrite.bytes_in is not None and state.total_tasks:
            share = (state.done_tasks or 0) / state.total_tasks
            progress = JobProgress(
                int(rewrite.bins * share),
                rewrite.bins,
                int(rewrite.bytes_in * share),
                rewrite.bytes_in,
                "rewriting",
            )
        return JobState(state.is_over, state.text, progress)

    def collect(self, handle: JobHandle, spec: JobSpec, run_key: str) -> JobReport | JobHandle:
        return self._run("--finish", DetachedRewrite.from_dict(handle), spec, run_key)

    def cancel(self, handle: JobHandle) -> None:
        try:
            cancel(self._address, DetachedRewrite.from_dict(handle))
        except DeltaLogError as error:
            raise JobLost(f"The rewrite on {self.place} could not be cancelled: {error}") from error

    @property
    def _address(self) -> str:
        if self._remote is None:
            self._remote = remote_of(self._spark_conn_id)
        return self._remote

    def _named(self, submission_id: str) -> DetachedRewrite:
        return DetachedRewrite.named(submission_id, user_of(self._address))

    def _run(self, flag: str, rewrite: DetachedRewrite, spec: JobSpec, run_key: str) -> JobReport | JobHandle:
        """Run one of the two jobs beside the task; return its report, or the handle of the rewrite that it has begun."""
        runner = LocalJobRunner(
            DeltaTableHook(self._delta_conn_id).opening_options(self._table or spec.table),
            log,
            (*JOB_COMMAND, flag),
            environment={"SPARK_REMOTE": self._address, DETACHED_REWRITE_VARIABLE: rewrite.to_json()},
        )
        report = runner.run(replace(spec, engine="spark"), ProgressLog(log).tell, run_key)
        return dict(report.rewrite) if report.rewrite is not None else report


def _place(spark_conn_id: str) -> str:
    return f"Spark Connect (connection {spark_conn_id})"
