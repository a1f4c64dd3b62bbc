"""Starts drivers through Apache Livy."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import requests
from airflow.sdk import BaseHook, Connection

from airflow_delta.runners.drivers.driver import DriverLauncher, DriverPhase, DriverRequest, DriverState
from airflow_delta.runners.job_runner import JobCannotStart, JobLost

_PHASES = {
    "not_started": DriverPhase.WAITING,
    "starting": DriverPhase.WAITING,
    "running": DriverPhase.RUNNING,
    "success": DriverPhase.SUCCEEDED,
    "error": DriverPhase.FAILED,
    "dead": DriverPhase.FAILED,
    "killed": DriverPhase.FAILED,
}


class LivyLauncher(DriverLauncher):
    def __init__(self, livy_conn_id: str) -> None:
        self._conn_id = livy_conn_id
        self.place = f"Livy (connection {livy_conn_id})"

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return f"{__name__}.LivyLauncher", {"livy_conn_id": self._conn_id}

    def start(self, request: DriverRequest) -> dict[str, Any]:
        secrets = {f"spark.yarn.appMasterEnv.{name}": value for name, value in request.environment.items()}
        batch = {
            "name": request.submission_id,  # Livy refuses a second batch of this name
            "file": request.application,
            "args": list(request.arguments),
            "conf": {**request.spark_conf, "spark.app.name": request.name, **secrets},
        }
        answer = self._call("POST", "", batch)
        if not answer.ok:
            raise JobCannotStart(f"{self.place} refused the job: {answer.text[:300]}. Nothing was started.")
        return {"batch": answer.json()["id"]}

    def find(self, submission_id: str) -> dict[str, Any] | None:
        try:
            batches = self._call("GET", "?from=0&size=10000").json()["sessions"]
        except JobLost:
            return None
        return next(({"batch": b["id"]} for b in batches if b.get("name") == submission_id), None)

    def state(self, handle: dict[str, Any]) -> DriverState:
        try:
            answer = self._call("GET", f"/{handle['batch']}/state")
        except JobLost as error:
            return DriverState(DriverPhase.UNKNOWN, str(error))
        if answer.status_code == 404:
            return DriverState(DriverPhase.GONE)
        named = answer.json().get("state", "?") if answer.ok else f"HTTP {answer.status_code}"
        return DriverState(_PHASES.get(named, DriverPhase.UNKNOWN), named)

    def end(self, handle: dict[str, Any]) -> None:
        self._call("DELETE", f"/{handle['batch']}")

    def prepare(self) -> None:
        self._connection  # noqa: B018 - a task that is being killed may look up no connection

    @cached_property
    def _connection(self) -> Connection:
        return BaseHook.get_connection(self._conn_id)

    def _call(self, method: str, path: str, body: Any = None) -> requests.Response:
        connection = self._connection
        address = f"{connection.schema or 'http'}://{connection.host}:{connection.port or 8998}/batches{path}"
        login = (connection.login, connection.password or "") if connection.login else None
        headers = {"X-Requested-By": "airflow"}
        try:
            answer = requests.request(method, address, json=body, headers=headers, auth=login, timeout=30)
        except requests.RequestException as error:
            raise JobLost(f"{self.place} does not answer: {error}.") from error
        if answer.status_code >= 500:
            raise JobLost(f"{self.place} answers with HTTP {answer.status_code}: {answer.text[:300]}.")
        return answer
