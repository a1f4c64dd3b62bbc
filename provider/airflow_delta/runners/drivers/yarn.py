"""Drivers on YARN: spark-submit submits them, and the ResourceManager's REST server follows and ends them.

An application is found by its tag, which is the submission id. Several addresses of a ResourceManager with failover are asked in turn; a
standby one redirects to the active one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

import requests

from airflow_delta.runners.detached import JobHandle
from airflow_delta.runners.drivers.driver import DriverLauncher, DriverPhase, DriverRequest, DriverState
from airflow_delta.runners.drivers.spark_submission import submit_driver
from airflow_delta.runners.job_runner import JobCannotStart, JobLost
from airflow_delta.runners.spark_submit import require_connection, yarn_authentication
from delta_log.printable import printable

if TYPE_CHECKING:
    from requests.auth import AuthBase

#: As the Spark provider names it.
ADDRESS_EXTRA = "yarn_resourcemanager_webapp_address"
_SECONDS = (5, 30)
_LONGEST_TEXT = 300
_PHASES = {
    "NEW": DriverPhase.WAITING,
    "NEW_SAVING": DriverPhase.WAITING,
    "SUBMITTED": DriverPhase.WAITING,
    "ACCEPTED": DriverPhase.WAITING,
    "RUNNING": DriverPhase.RUNNING,
    "FINISHED": DriverPhase.FAILED,  # unless its final status is SUCCEEDED
    "FAILED": DriverPhase.FAILED,
    "KILLED": DriverPhase.FAILED,
}
_DATE = re.compile(r"\[[A-Z][a-z]{2} [A-Z][a-z]{2} \d[^\]]*\]")


class YarnResourceManager(DriverLauncher):
    """A :class:`~airflow_delta.runners.drivers.driver.DriverLauncher` on YARN.

    :param spark_conn_id: the connection with master ``yarn`` and, in its extra, ``yarn_resourcemanager_webapp_address``.
    :param spark_binary: the spark-submit to use instead of the connection's.
    """

    def __init__(self, spark_conn_id: str, spark_binary: str | None = None) -> None:
        self._spark_conn_id, self._spark_binary = spark_conn_id, spark_binary
        self.place = f"YARN (connection {spark_conn_id})"

    def serialize(self) -> tuple[str, dict[str, Any]]:
        kwargs = {"spark_conn_id": self._spark_conn_id, "spark_binary": self._spark_binary}
        return f"{__name__}.{type(self).__name__}", kwargs

    def start(self, request: DriverRequest) -> JobHandle:
        # Whether the driver can be followed is found out before it is started.
        found = self._asked_first(request.submission_id)
        if found is not None:
            return _handle(request.submission_id, found)
        try:
            submit_driver(self._spark_conn_id, request, _properties(request), self._spark_binary)
        except JobLost:
            # The answer may be lost, and the application accepted.
            handle = self.find(request.submission_id)
            if handle is None:
                raise
            return handle
        return self.find(request.submission_id) or _handle(request.submission_id, None)

    def find(self, submission_id: str) -> JobHandle | None:
        try:
            found = self._tagged(submission_id)
        except JobLost:
            return None
        return None if found is None else _handle(submission_id, found)

    def prepare(self) -> None:
        self._addresses, self._user  # noqa: B018 - looks them up

    def state(self, handle: JobHandle) -> DriverState:
        try:
            found = self._application(handle)
        except JobLost as error:
            return DriverState(DriverPhase.UNKNOWN, str(error))
        return DriverState(DriverPhase.GONE) if found is None else driver_state(found)

    def end(self, handle: JobHandle) -> None:
        found = self._application(handle)
        if found is None or driver_state(found).phase.is_over:
            return
        answer = self._request("PUT", f"apps/{found['id']}/state", {"state": "KILLED"})
        if answer.status_code in (401, 403):
            raise JobLost(
                f"{self.place} does not let this user end {found['id']} (HTTP {answer.status_code}: {_said(answer)})."
            )

    def _asked_first(self, submission_id: str) -> Mapping[str, Any] | None:
        try:
            return self._tagged(submission_id)
        except _Refused as error:
            raise JobCannotStart(
                f"{self.place} refuses to answer: {error}. Nothing was submitted. Give the connection a principal and a keytab, or another "
                "user as its login."
            ) from error

    def _application(self, handle: JobHandle) -> Mapping[str, Any] | None:
        application_id = handle.get("application_id")
        if application_id is None:
            return self._tagged(handle["submission_id"])
        return self._read(f"apps/{application_id}").get("app")

    def _tagged(self, submission_id: str) -> Mapping[str, Any] | None:
        apps = self._read(f"apps?applicationTags={submission_id}").get("apps") or {}
        found = apps.get("app") or []
        return max(found, key=lambda app: app.get("startedTime", 0), default=None)

    def _read(self, path: str) -> dict[str, Any]:
        """The answer; empty if there is no such application.

        :raises JobLost: there is no answer that can be read.
        """
        answer = self._request("GET", path)
        if answer.status_code == 404:
            return {}
        if answer.status_code in (401, 403):
            raise _Refused(f"HTTP {answer.status_code}: {_said(answer)}")
        try:
            found = answer.json() if answer.ok else None
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise JobLost(f"{self.place} answers with HTTP {answer.status_code}: {_said(answer)}.")
        return found

    def _request(self, method: str, path: str, body: Mapping[str, str] | None = None) -> requests.Response:
        """
        :raises JobLost: no ResourceManager answers.
        """
        problem = ""
        for address in self._addresses:
            try:
                answer = requests.request(
                    method,
                    f"{address}/ws/v1/cluster/{path}",
                    json=body,
                    params={"user.name": self._user} if self._user else None,
                    auth=self._authentication,
                    timeout=_SECONDS,
                )
            except requests.RequestException as error:
                problem = f"{address}: {type(error).__name__}: {error}"
                continue
            if answer.status_code < 500:
                return answer
            problem = f"{address}: HTTP {answer.status_code}: {_said(answer)}"
        raise JobLost(
            f"No ResourceManager of {self.place} answers: {problem}. Check that it runs, and {ADDRESS_EXTRA} in the connection's extra. "
            "Another try may succeed."
        )

    @cached_property
    def _addresses(self) -> list[str]:
        extra = require_connection(self._spark_conn_id).extra_dejson
        found = [address.strip().rstrip("/") for address in str(extra.get(ADDRESS_EXTRA) or "").split(",")]
        if not any(found):
            raise JobCannotStart(
                f"Connection {self._spark_conn_id!r} names YARN and deploy mode 'cluster', but not where the ResourceManager's web server is, so "
                f"a driver could not be followed. Nothing was submitted. Set {ADDRESS_EXTRA} in its extra, such as http://rm.example.com:8088; "
                "several addresses with commas between them."
            )
        return [address if "://" in address else f"http://{address}" for address in found if address]

    @cached_property
    def _authentication(self) -> AuthBase | None:
        return yarn_authentication(self._spark_conn_id)

    @cached_property
    def _user(self) -> str | None:
        """The user of a cluster without Kerberos, who may see and end applications."""
        return require_connection(self._spark_conn_id).login if self._authentication is None else None


class _Refused(JobLost):
    """The ResourceManager refuses the credentials."""

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.args = (problem,)


def driver_state(application: Mapping[str, Any]) -> DriverState:
    """The state of an application as the ResourceManager describes it."""
    named, final = str(application.get("state")), str(application.get("finalStatus"))
    phase = _PHASES.get(named, DriverPhase.UNKNOWN)
    if named == "FINISHED" and final == "SUCCEEDED":
        phase = DriverPhase.SUCCEEDED
    # The dates in it change from look to look.
    diagnostics = " ".join(_DATE.sub("", str(application.get("diagnostics") or "")).split())
    what = f"{named}, final status {final}" if phase is DriverPhase.FAILED and final != named else named
    said = f": {printable(diagnostics)[:_LONGEST_TEXT]}" if diagnostics else ""
    return DriverState(phase, f"{what}{said}")


def _handle(submission_id: str, application: Mapping[str, Any] | None) -> JobHandle:
    """The application's id is absent if the ResourceManager has not answered since it was submitted."""
    return {
        "submission_id": submission_id,
        **({"application_id": application["id"]} if application is not None else {}),
    }


def _properties(request: DriverRequest) -> dict[str, str]:
    given = {str(name): str(value) for name, value in request.spark_conf.items()}
    tags = ",".join(filter(None, (given.get("spark.yarn.tags"), request.submission_id)))
    return {
        # A driver that fails has left its report, and Airflow decides on another try.
        "spark.yarn.maxAppAttempts": "1",
        **given,
        "spark.master": "yarn",
        "spark.yarn.tags": tags,
        "spark.yarn.submit.waitAppCompletion": "false",
        **{f"spark.yarn.appMasterEnv.{name}": value for name, value in request.environment.items()},
    }


def _said(answer: requests.Response) -> str:
    return printable(" ".join(answer.text.split()))[:_LONGEST_TEXT]
