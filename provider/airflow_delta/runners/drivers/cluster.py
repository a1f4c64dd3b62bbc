"""Runs a job as a driver on a cluster (deploy mode ``cluster``), and follows it from here by its status file.

The driver's output stays on the cluster. So the driver keeps its progress and its report in the table's directory
(:mod:`delta_maintenance.status_file`), and this runner reads them there. The process that follows the job must be able to read the table.

The run's key travels in the driver's environment, see :class:`~airflow_delta.runners.drivers.driver.DriverRequest`. Storage credentials do not
travel: drivers use the identity of the cluster's machines. With ``executor_credentials="ambient"`` the settings of the connection
travel that are no part of an identity, such as an endpoint.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

from airflow_delta.hooks.delta_table import DeltaTableHook
from airflow_delta.hooks.watched_store import watched_store
from airflow_delta.runners import spark_settings
from airflow_delta.runners.detached import DetachedRunner, JobHandle, JobState
from airflow_delta.runners.drivers.driver import DriverLauncher, DriverPhase, DriverRequest, DriverState
from airflow_delta.runners.job_output import JobProgress
from airflow_delta.runners.job_runner import JobCannotStart, JobLost
from delta_log.errors import InvalidRequest
from delta_log.printable import printable, printable_logger
from delta_log.storage.ambient_options import ambient_options
from delta_maintenance.contract import JobReport, JobSpec
from delta_maintenance.engine.spark.application import application_name
from delta_maintenance.job_interface import RUN_KEY_VARIABLE, STORAGE_OPTIONS_VARIABLE, ContractError, encoded

if TYPE_CHECKING:
    from delta_maintenance.status_file import StatusFile

log = printable_logger(__name__)

#: Looks at a driver that its cluster does not know before it counts as gone: a cluster may learn of it late.
_LOOKS_UNTIL_GONE = 3


class ClusterJobRunner(DetachedRunner):
    """A :class:`~airflow_delta.runners.detached.DetachedRunner` whose jobs are drivers on a cluster.

    :param launcher: object that starts the drivers.
    :param delta_conn_id: connection with which the worker and the triggerer read the table.
    :param spark_conf: Spark properties, which override our defaults.
    :param application: the job's program, as the cluster's machines find it; ``None``: the program of this installation.
    """

    def __init__(
        self,
        launcher: DriverLauncher,
        *,
        delta_conn_id: str | None = None,
        spark_conf: Mapping[str, Any] | None = None,
        application: str | None = None,
    ) -> None:
        self._launcher = launcher
        self._delta_conn_id = delta_conn_id
        self._spark_conf = dict(spark_conf or {})
        self._application = application
        self._looks_while_gone = 0
        self._told = ""
        self.place = launcher.place

    def serialize(self) -> tuple[str, dict[str, Any]]:
        launcher, launcher_kwargs = self._launcher.serialize()
        return (
            f"{__name__}.runner_of",
            {"launcher": launcher, "launcher_kwargs": launcher_kwargs, "delta_conn_id": self._delta_conn_id},
        )

    def submit(self, spec: JobSpec, run_key: str, submission_id: str) -> JobHandle | JobReport:
        hook = DeltaTableHook(self._delta_conn_id)
        settings = self._settings_that_travel(spec, hook.storage_options)
        refused = _refused(spec, hook)
        if refused is not None:
            return refused
        request = DriverRequest(
            name=application_name(spec),
            submission_id=submission_id,
            application=self._application or spark_settings.application(),
            arguments=["--spec", spec.to_argument(), "--status-id", submission_id],
            environment={RUN_KEY_VARIABLE: run_key, **settings},
            spark_conf={**spark_settings.CLUSTER_DEFAULTS, **self._spark_conf},
        )
        return self._handle(spec, submission_id, self._launcher.start(request))

    def _settings_that_travel(self, spec: JobSpec, storage_options: Mapping[str, Any]) -> dict[str, str]:
        """The variable with the storage options of a driver that uses the identity of its machine.

        :raises JobCannotStart: the connection has options, and may not use another identity there.
        """
        if not storage_options:
            return {}
        if spec.executor_credentials != "ambient":
            raise JobCannotStart(
                f"Connection {self._delta_conn_id!r} holds credentials of the table's storage, and with deploy mode 'cluster' they would have to "
                "be put where others can read them. Nothing was submitted. Give the cluster's machines an identity that may use the table, and "
                "either set executor_credentials='ambient', so that only settings such as the endpoint travel, or leave delta_conn_id out; or use "
                "deploy mode 'client'."
            )
        try:
            settings = ambient_options(spec.table, storage_options).options
        except InvalidRequest as error:
            raise JobCannotStart(str(error)) from error
        return {STORAGE_OPTIONS_VARIABLE: encoded(json.dumps(settings))} if settings else {}

    def prepare(self) -> None:
        self._launcher.prepare()

    def find(self, spec: JobSpec, submission_id: str) -> JobHandle | None:
        driver = self._launcher.find(submission_id)
        return None if driver is None else self._handle(spec, submission_id, driver)

    def poll(self, handle: JobHandle) -> JobState:
        state = self._launcher.state(handle["driver"])
        is_gone = state.phase is DriverPhase.GONE
        self._looks_while_gone = self._looks_while_gone + 1 if is_gone else 0
        is_over = self._looks_while_gone >= _LOOKS_UNTIL_GONE if is_gone else state.phase.is_over
        self._tell(state)
        return JobState(is_over, _described(state), None if is_over else self._progress(handle))

    def collect(self, handle: JobHandle, spec: JobSpec, run_key: str) -> JobReport | JobHandle:
        from delta_log.errors import StorageError
        from delta_maintenance.rewrite.manifest.manifest_file import RunKey

        try:
            report = self._status_file(handle).report(RunKey(run_key))
        except StorageError as error:
            raise JobLost(f"The report of {_shown(handle)} cannot be read: {error}") from error
        if report is not None:
            return report
        state = self._launcher.state(handle["driver"])
        if not state.phase.is_over:
            return handle
        raise JobLost(
            f"{_shown(handle)} ended ({_described(state)}) without a report. It may have committed; another try finds out. What it wrote is in "
            "the logs of the cluster."
        )

    def cancel(self, handle: JobHandle) -> None:
        self._launcher.end(handle["driver"])

    def _handle(self, spec: JobSpec, submission_id: str, driver: JobHandle) -> JobHandle:
        return {"table": spec.table, "run_id": spec.run_id, "submission_id": submission_id, "driver": driver}

    def _tell(self, state: DriverState) -> None:
        text = _described(state)
        if text != self._told:
            self._told = text
            log.info("The driver on %s: %s", self.place, text)

    def _progress(self, handle: JobHandle) -> JobProgress | None:
        from delta_log.errors import StorageError

        try:
            found = self._status_file(handle).progress()
            return None if found is None else JobProgress.from_dict(found)
        except (StorageError, ContractError) as error:
            watched_store(self._delta_conn_id).forget_credentials()
            log.debug("No progress: %s", error)
            return None

    def _status_file(self, handle: JobHandle) -> StatusFile:
        from delta_maintenance.status_file import StatusFile

        # A triggerer follows many jobs, with one client for each connection.
        storage = watched_store(self._delta_conn_id).open(handle["table"])
        return StatusFile(storage, handle["run_id"], handle["submission_id"])


def runner_of(
    launcher: str, launcher_kwargs: Mapping[str, Any], delta_conn_id: str | None
) -> ClusterJobRunner:
    """The runner that :meth:`ClusterJobRunner.serialize` describes, for following jobs."""
    module, _, name = launcher.rpartition(".")
    return ClusterJobRunner(
        getattr(import_module(module), name)(**launcher_kwargs), delta_conn_id=delta_conn_id
    )


def _refused(spec: JobSpec, hook: DeltaTableHook) -> JobReport | None:
    """The report of a job whose table cannot be read from here. Its driver would have no place for a report, so the task could not follow it."""
    from delta_log.errors import DeltaLogError
    from delta_maintenance.errors import error_report

    try:
        hook.get_table(spec.table).snapshot()
    except DeltaLogError as error:
        return JobReport(spec.operation, spec.table, "failed", spec.run_id, error=error_report(error))
    return None


def _described(state: DriverState) -> str:
    return printable(f"{state.phase.value}: {state.text}" if state.text else state.phase.value)


def _shown(handle: JobHandle) -> str:
    return printable("the driver " + json.dumps(handle["driver"], sort_keys=True))
