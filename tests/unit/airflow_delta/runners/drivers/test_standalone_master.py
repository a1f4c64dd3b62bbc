from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from airflow_delta.runners.drivers.driver import DriverPhase, DriverRequest
from airflow_delta.runners.drivers.standalone_master import StandaloneMaster
from airflow_delta.runners.job_runner import JobCannotStart, JobLost


class Server(HTTPServer):
    """Answers as a master's REST server would; the test says what."""

    answer: Any
    requests: list[Any]


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_POST(self) -> None:
        self.server.requests.append(
            json.loads(self.rfile.read(int(self.headers["Content-Length"] or 0)) or b"{}")
        )
        self.do_GET()

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(self.server.answer).encode())

    def log_message(self, *arguments: Any) -> None: ...


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server(("127.0.0.1", 0), Handler)
    server.requests, server.answer = [], {"success": True, "submissionId": "driver-1"}
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def master_of(server: Server) -> StandaloneMaster:
    return StandaloneMaster("spark://127.0.0.1:7077", rest_port=server.server_port)


@pytest.mark.parametrize(
    ("application", "path", "resource"),
    [
        ("/opt/run_job.py", "/opt/run_job.py", "file:/opt/run_job.py"),
        ("local:///opt/run_job.py", "/opt/run_job.py", "file:/opt/run_job.py"),
        ("file:/opt/run_job.py", "/opt/run_job.py", "file:/opt/run_job.py"),
        ("s3a://code/run_job.py", "s3a://code/run_job.py", "s3a://code/run_job.py"),
    ],
)
def test_the_program_is_named_as_a_worker_finds_it(
    server: Server, application: str, path: str, resource: str
) -> None:
    request = DriverRequest("n", "ab" * 16, application, ["--spec", "s"], {"SECRET": "x"}, {"spark.a": "1"})
    assert master_of(server).start(request) == {"driver_id": "driver-1"}
    (sent,) = server.requests
    assert sent["appResource"] == resource
    assert sent["appArgs"][-3:] == [path, "--spec", "s"]
    assert sent["environmentVariables"]["SECRET"] == "x"
    assert "x" not in sent["sparkProperties"].values()


def test_a_refusal_is_final_and_silence_is_not(server: Server) -> None:
    server.answer = {"success": False, "message": "no such class"}
    request = DriverRequest("n", "ab" * 16, "/opt/run_job.py", [])
    with pytest.raises(JobCannotStart, match="no such class"):
        master_of(server).start(request)
    server.answer = "what?"
    with pytest.raises(JobLost, match="rest-port"):
        master_of(server).end({"driver_id": "d"})


@pytest.mark.parametrize(
    ("state", "phase"),
    [("RUNNING", DriverPhase.RUNNING), ("NOT_FOUND", DriverPhase.GONE), ("NEW", DriverPhase.UNKNOWN)],
)
def test_states_of_a_driver(server: Server, state: str, phase: DriverPhase) -> None:
    server.answer = {"success": True, "driverState": state, "workerHostPort": "w:1"}
    found = master_of(server).state({"driver_id": "d"})
    assert (found.phase, found.text) == (phase, f"{state} on worker w:1")


def test_a_name_that_is_no_master_of_a_standalone_cluster_is_refused() -> None:
    with pytest.raises(JobCannotStart, match="spark://host:7077"):
        StandaloneMaster("yarn")
