"""Drivers on a standalone Spark cluster, through the REST server of its master (``spark.master.rest.enabled``, port 6066).

Spark refuses Python programs in this mode, but only in its own client. The master starts any class on a worker; here it is
``SparkSubmit`` itself, which runs the program there in client mode. So the program's path must be valid on every worker.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping
from typing import Any

import requests
from urllib3.exceptions import ConnectTimeoutError, MaxRetryError, NewConnectionError

from airflow_delta.runners.detached import JobHandle
from airflow_delta.runners.drivers.driver import DriverLauncher, DriverPhase, DriverRequest, DriverState
from airflow_delta.runners.job_runner import JobCannotStart, JobLost

_SECONDS = 30
#: A master that has just taken over knows the drivers again after it has heard of the workers.
_ATTEMPTS, _SECONDS_BETWEEN = 3, 2.0
_PHASES = {
    "SUBMITTED": DriverPhase.WAITING,
    "RELAUNCHING": DriverPhase.WAITING,
    "RUNNING": DriverPhase.RUNNING,
    "FINISHED": DriverPhase.SUCCEEDED,
    "UNKNOWN": DriverPhase.UNKNOWN,
    "KILLED": DriverPhase.FAILED,
    "FAILED": DriverPhase.FAILED,
    "ERROR": DriverPhase.FAILED,
    "NOT_FOUND": DriverPhase.GONE,
}
#: What may stand before a path that every worker has.
_ON_WORKERS = re.compile(r"^(local|file):(//)?(?=/)")
_MASTER = re.compile(r"spark://(?P<hosts>[^/]+)")


class StandaloneMaster(DriverLauncher):
    """A :class:`~airflow_delta.runners.drivers.driver.DriverLauncher` on a standalone cluster.

    :param master: ``spark://host:7077``, or several hosts with commas between them.
    :param rest_scheme: ``http`` or ``https``.
    :param rest_port: port of the REST server of each master.
    """

    def __init__(self, master: str, rest_scheme: str = "http", rest_port: int = 6066) -> None:
        found = _MASTER.fullmatch(master)
        if found is None:
            raise JobCannotStart(
                f"{master!r} is not the master of a standalone cluster, such as spark://host:7077."
            )
        self._master, self._scheme, self._port = master, rest_scheme, int(rest_port)
        hosts = [host.rpartition(":")[0] or host for host in found["hosts"].split(",")]
        self._servers = [f"{rest_scheme}://{host}:{self._port}" for host in hosts]
        self.place = f"the Spark cluster {master}"

    def serialize(self) -> tuple[str, dict[str, Any]]:
        kwargs = {"master": self._master, "rest_scheme": self._scheme, "rest_port": self._port}
        return f"{__name__}.{type(self).__name__}", kwargs

    def start(self, request: DriverRequest) -> JobHandle:
        conf = {str(name): str(value) for name, value in request.spark_conf.items()}
        properties = {
            **conf,
            "spark.app.name": request.name,
            "spark.master": self._master,
            "spark.submit.deployMode": "cluster",
        }
        flags = [part for name, value in conf.items() for part in ("--conf", f"{name}={value}")]
        submit = ["--master", self._master, "--deploy-mode", "client", "--name", request.name, *flags]
        # A worker fetches its resource by Hadoop, which does not know Spark's scheme "local".
        application = _ON_WORKERS.sub("", request.application)
        resource = application if "://" in application else f"file:{application}"
        answer = self._post(
            "create",
            {
                "action": "CreateSubmissionRequest",
                "clientSparkVersion": "4.0.0",
                "mainClass": "org.apache.spark.deploy.SparkSubmit",
                "appResource": resource,
                "appArgs": [*submit, application, *request.arguments],
                "sparkProperties": properties,
                # Not properties: the worker puts those into the command line of the driver.
                "environmentVariables": {"SPARK_ENV_LOADED": "1", **request.environment},
            },
        )
        driver = answer.get("submissionId")
        if not answer.get("success") or not isinstance(driver, str):
            raise JobCannotStart(
                f"The master of {self.place} refused the job: {answer.get('message', answer)}. Nothing was started. Check the cluster and "
                "spark_conf."
            )
        return {"driver_id": driver}

    def state(self, handle: JobHandle) -> DriverState:
        try:
            answer = self._request("GET", f"status/{handle['driver_id']}")
        except JobLost as error:
            return DriverState(DriverPhase.UNKNOWN, str(error))
        named = str(answer.get("driverState", "NOT_FOUND"))
        where, message = answer.get("workerHostPort"), answer.get("message")
        text = named + (f" on worker {where}" if where else "") + (f", {message}" if message else "")
        return DriverState(_PHASES.get(named, DriverPhase.UNKNOWN), text)

    def end(self, handle: JobHandle) -> None:
        self._request("POST", f"kill/{handle['driver_id']}")

    def _post(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        return self._request("POST", path, body)

    def _request(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The answer of the active master.

        :raises JobLost: none answers.
        """
        problem = ""
        for attempt in range(_ATTEMPTS):
            if attempt:
                time.sleep(_SECONDS_BETWEEN)
            for server in self._servers:
                try:
                    answer = requests.request(
                        method,
                        f"{server}/v1/submissions/{path}",
                        data=json.dumps(body) if body is not None else None,
                        headers={"Content-Type": "application/json;charset=UTF-8"},
                        timeout=_SECONDS,
                    ).json()
                except (requests.RequestException, ValueError) as error:
                    problem = f"{server}: {type(error).__name__}: {error}"
                    # A request that did not arrive cannot have started a driver.
                    if body is not None and not _is_unreached(error):
                        raise JobLost(
                            f"The REST server of {self.place} gave no answer that can be read ({problem}); it may have started the driver."
                        ) from error
                    continue
                if isinstance(answer, dict) and "STANDBY" not in str(answer.get("message", "")):
                    return answer
                problem = f"{server}: {answer}"
        raise JobLost(
            f"No master of {self.place} answers on its REST server: {problem}. Check that it runs, that spark.master.rest.enabled is true, and "
            "the connection's rest-port (6066) and rest-scheme. Another try may succeed."
        )


def _is_unreached(error: Exception) -> bool:
    """Whether the server cannot have received the request."""
    cause = error.args[0] if error.args else None
    reason = cause.reason if isinstance(cause, MaxRetryError) else cause
    return isinstance(reason, NewConnectionError | ConnectTimeoutError)
