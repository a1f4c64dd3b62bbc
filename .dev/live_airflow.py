"""A real Airflow for a while: scheduler, DAG processor, triggerer and API server, in a private AIRFLOW_HOME.

For `demo.py` and the integration tests. What it promises:

1. Nothing of the user's Airflow is used or touched: its own home, database, ports, and none of the AIRFLOW* variables.
2. Two of them at once do not meet: the one port it needs is chosen by the system.
3. :meth:`LiveAirflow.stop` leaves no process behind, also of jobs that tasks have started.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

_COMPONENTS = {
    "api-server": ("api-server", "--workers", "1"),
    "scheduler": ("scheduler", "--skip-serve-logs"),
    "dag-processor": ("dag-processor",),
    "triggerer": ("triggerer", "--skip-serve-logs"),
}
_FINAL_STATES = frozenset({"success", "failed"})
#: Airflow answers so when it has done nothing because its database was busy: SQLite has one writer at a time.
_BUSY = 503
#: Airflow answers so when it has been asked already.
_CONFLICT = 409
#: Long enough for a machine on which everything else runs, too; a component that has died refuses the connection at once.
_REQUEST_SECONDS = 180
_BUSY_PAUSES_SECONDS = (0.1, 0.2, 0.5, 1.0, 2.0, 4.0, 8.0)


class LiveAirflowError(Exception):
    """Airflow did not start, or did not answer as it should. The message holds what its log says.

    :ivar status: the HTTP status of an answer that is an error.
    """

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class LiveAirflow:
    """One installation, started by :meth:`start` and ended by :meth:`stop`.

    :param home: an empty or new directory; everything goes there.
    :param dags: the folder with the DAG files.
    :param environment: further variables, such as connections and settings.
    """

    user = "admin"

    def __init__(self, home: Path, dags: Path, environment: Mapping[str, str] | None = None) -> None:
        self.home = home
        self.password = secrets.token_urlsafe(9)
        self.port = 0
        self._dags = dags
        self._more = dict(environment or {})
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._token = ""
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def logs(self) -> Path:
        return self.home / "process-logs"

    def start(self, seconds: float = 900) -> None:
        """Returns when all four components are healthy and the DAG files have been read once."""
        self.logs.mkdir(parents=True, exist_ok=True)
        passwords = self.home / "passwords.json"
        passwords.write_text(json.dumps({self.user: self.password}))
        passwords.chmod(0o600)
        self._secrets = {name: secrets.token_hex(32) for name in ("JWT", "SECRET")}
        self._run("db", "migrate")
        for attempts_left in (2, 1, 0):
            self.port = _free_port()
            for name in _COMPONENTS:
                self._start_component(name)
            try:
                self._wait_until_healthy(seconds)
                break
            except LiveAirflowError:
                # Another process may take the port between the question and the server's binding it.
                taken = "address already in use" in self.log_tail("api-server", 200).lower()
                self.stop()
                if not attempts_left or not taken:
                    raise
        self._log_in()

    def stop(self) -> None:
        for process in self._processes.values():
            _signal_group(process, signal.SIGTERM)
        deadline = time.monotonic() + 4
        for process in self._processes.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.1, deadline - time.monotonic()))
        for process in self._processes.values():
            _signal_group(process, signal.SIGKILL)
            process.wait()
        self._processes.clear()
        self._end_leftovers()

    def kill(self, component: str, number: int = signal.SIGKILL) -> None:
        """End a component, by default as a machine that loses its power would: with its tasks and their jobs.

        A task's process is in a group of its own. It has inherited the scheduler's connection to the database: as long as it lives, the
        database takes the transaction that the scheduler was in for open, and the next scheduler waits for its locks.
        """
        process = self._processes.pop(component)
        descendants = _descendants(process) if number == signal.SIGKILL else []
        _signal_group(process, number)
        for pid in descendants:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)
        # A scheduler may wait for its workers for ever.
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(20)
        # The group's other processes end a moment later; a signal to none is no error.
        _signal_group(process, signal.SIGKILL)
        process.wait()

    def start_component(self, component: str) -> None:
        """Again, after :meth:`kill`; does not wait until it is healthy."""
        self._start_component(component)

    def command(self, *arguments: str) -> str:
        """What ``airflow ARGUMENTS`` prints."""
        return self._run(*arguments)

    def call(self, method: str, path: str, body: Any = None) -> Any:
        """Send a request to the REST API; one that Airflow refuses for the moment is sent again.

        :raises LiveAirflowError: there is no answer, or it is an error.
        """
        for pause in _BUSY_PAUSES_SECONDS:
            try:
                return self._send(method, path, body)
            except LiveAirflowError as error:
                if error.status != _BUSY:
                    raise
            time.sleep(pause)
        return self._send(method, path, body)

    def _send(self, method: str, path: str, body: Any) -> Any:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        request = urllib.request.Request(f"{self.url}{path}", data, headers, method=method)  # noqa: S310
        try:
            with self._opener.open(request, timeout=_REQUEST_SECONDS) as response:
                text = response.read().decode()
        except urllib.error.HTTPError as error:
            detail = error.read().decode(errors="replace")[:500]
            raise LiveAirflowError(f"{method} {path} answered {error.code}: {detail}", error.code) from error
        except OSError as error:
            raise LiveAirflowError(f"{method} {path}: {error}") from error
        return json.loads(text) if text else None

    def wait_for_dag(self, dag_id: str, seconds: float = 900) -> None:
        deadline = time.monotonic() + seconds
        while True:
            with contextlib.suppress(LiveAirflowError):
                self.call("GET", f"/api/v2/dags/{dag_id}")
                return
            if time.monotonic() > deadline:
                errors = self.call("GET", "/api/v2/importErrors")["import_errors"]
                detail = "".join(error["stack_trace"] for error in errors) or self.log_tail("dag-processor")
                raise LiveAirflowError(f"DAG {dag_id} did not appear.\n{detail}")
            time.sleep(0.5)

    def add_pool(self, name: str, slots: int) -> None:
        """Make a pool, unless there is one of this name, which is left as it is."""
        try:
            self.call("POST", "/api/v2/pools", {"name": name, "slots": slots})
        except LiveAirflowError as error:
            if error.status != _CONFLICT:
                raise

    def trigger(self, dag_id: str, **body: Any) -> str:
        """Start a run, with a null logical date unless `body` says another; its run id. A DAG that is not read yet is waited for."""
        self.wait_for_dag(dag_id)
        self.call("PATCH", f"/api/v2/dags/{dag_id}", {"is_paused": False})
        run = self.call("POST", f"/api/v2/dags/{dag_id}/dagRuns", {"logical_date": None, **body})
        return str(run["dag_run_id"])

    def set_paused(self, dag_id: str, is_paused: bool, seconds: float = 900) -> None:
        """Pause or unpause a DAG that has watchers; return when Airflow has started or stopped these.

        Airflow does so when it reads the DAG's file the next time. It is asked to read it now, and asked again, since a request is
        lost while the file is being read.
        """
        dag = self.call("PATCH", f"/api/v2/dags/{dag_id}", {"is_paused": is_paused})
        changed = datetime.now(UTC)
        deadline = time.monotonic() + seconds
        while dag["last_parsed_time"] is None or datetime.fromisoformat(dag["last_parsed_time"]) < changed:
            if time.monotonic() > deadline:
                raise LiveAirflowError(
                    f"The file of DAG {dag_id} was not read again within {seconds:.0f} s.\n{self.log_tail('dag-processor')}"
                )
            try:
                self.call("PUT", f"/api/v2/parseDagFile/{dag['file_token']}")
            except LiveAirflowError as error:
                if error.status != _CONFLICT:
                    raise
            time.sleep(1)
            dag = self.call("GET", f"/api/v2/dags/{dag_id}")

    def run_state(self, dag_id: str, run_id: str) -> str:
        return str(self.call("GET", _run_path(dag_id, run_id))["state"])

    def wait_for_run(self, dag_id: str, run_id: str, seconds: float = 900) -> str:
        """The final state of a run."""
        deadline = time.monotonic() + seconds
        while (state := self.run_state(dag_id, run_id)) not in _FINAL_STATES:
            if time.monotonic() > deadline:
                raise LiveAirflowError(f"Run {run_id} of {dag_id} is still {state} after {seconds:.0f} s.")
            time.sleep(1)
        return state

    def task(self, dag_id: str, run_id: str, task_id: str) -> dict[str, Any]:
        return dict(self.call("GET", f"{_run_path(dag_id, run_id)}/taskInstances/{task_id}"))

    def tries(self, dag_id: str, run_id: str) -> set[int]:
        """The numbers of the last tries of a run's tasks."""
        return {int(task["try_number"]) for task in self._tasks(dag_id, run_id)}

    def _tasks(self, dag_id: str, run_id: str) -> list[dict[str, Any]]:
        return list(
            self.call("GET", f"{_run_path(dag_id, run_id)}/taskInstances?limit=100")["task_instances"]
        )

    def xcom(self, dag_id: str, run_id: str, task_id: str) -> Any:
        path = (
            f"{_run_path(dag_id, run_id)}/taskInstances/{task_id}/xcomEntries/return_value?deserialize=true"
        )
        return self.call("GET", path)["value"]

    def task_log(
        self, dag_id: str, run_id: str, task_id: str, try_number: int, map_index: int = -1
    ) -> list[str]:
        """The lines of a task's log, with the exceptions in them; empty while there is none.

        :param map_index: as Airflow tells it: -1 for a task that is not mapped.
        """
        path = f"{_run_path(dag_id, run_id)}/taskInstances/{task_id}/logs/{try_number}?full_content=true&map_index={map_index}"
        try:
            content = self.call("GET", path)["content"]
        except LiveAirflowError:
            return []
        return [line for entry in content for line in _log_lines(entry)]

    def story(self, dag_id: str, run_id: str) -> str:
        """The states of a run's tasks, their logs, and the scheduler's last words: what to look at where it ended otherwise
        than it should. A try that ended before its task began has no log; the scheduler's says why."""
        lines = []
        with contextlib.suppress(LiveAirflowError):
            for task in self._tasks(dag_id, run_id):
                for number in range(1, task["try_number"] + 1):
                    lines.append(
                        f"--- {task['task_id']} {task['map_index']}, try {number} of {task['try_number']}: {task['state']}"
                    )
                    lines += self.task_log(dag_id, run_id, task["task_id"], number, task["map_index"])
        lines += ["--- scheduler", self.log_tail("scheduler", 200)]
        return "\n".join(lines)

    def log_tail(self, component: str, lines: int = 15) -> str:
        with contextlib.suppress(OSError):
            text = (self.logs / f"{component}.log").read_text(errors="replace")
            return "\n".join(text.splitlines()[-lines:])
        return ""

    def environment(self) -> dict[str, str]:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW")}
        settings = {
            "AIRFLOW_HOME": str(self.home),
            "AIRFLOW__CORE__DAGS_FOLDER": str(self._dags),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__CORE__EXECUTOR": "LocalExecutor",
            "AIRFLOW__CORE__PARALLELISM": "4",
            "AIRFLOW__CORE__AUTH_MANAGER": (
                "airflow.api_fastapi.auth.managers.simple.simple_auth_manager.SimpleAuthManager"
            ),
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": f"{self.user}:admin",
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(self.home / "passwords.json"),
            "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"{self.url}/execution/",
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{self.home / 'airflow.db'}",
            "AIRFLOW__API__HOST": "127.0.0.1",
            "AIRFLOW__API__PORT": str(self.port),
            "AIRFLOW__API__BASE_URL": self.url,
            "AIRFLOW__API__SECRET_KEY": self._secrets["SECRET"],
            "AIRFLOW__API_AUTH__JWT_SECRET": self._secrets["JWT"],
            "AIRFLOW__USAGE_DATA_COLLECTION__ENABLED": "False",
            # A task asks its API server to be started, five times and at most 5 s each by default, and its try is lost without an
            # answer. The first request to a new server takes it some seconds, and on a busy machine many.
            "AIRFLOW__WORKERS__EXECUTION_API_TIMEOUT": str(_REQUEST_SECONDS),
            # Reading a file takes half a second, and on a machine that is busy with other things a minute.
            "AIRFLOW__CORE__DAGBAG_IMPORT_TIMEOUT": "120",
            "AIRFLOW__DAG_PROCESSOR__DAG_FILE_PROCESSOR_TIMEOUT": "180",
            # Otherwise a folder beside the user's DAGs would fill with compiled files.
            "PYTHONDONTWRITEBYTECODE": "1",
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
            "NO_PROXY": "127.0.0.1,localhost",
            "no_proxy": "127.0.0.1,localhost",
        }
        return {**inherited, **settings, **self._more}

    def _run(self, *arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "airflow", *arguments],
            env=self.environment(),
            cwd=self.home,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise LiveAirflowError(
                f"airflow {' '.join(arguments)} failed:\n{done.stdout}{done.stderr}"[-4000:]
            )
        return done.stdout

    def _start_component(self, name: str) -> None:
        with (self.logs / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(
                [sys.executable, "-m", "airflow", *_COMPONENTS[name]],
                env=self.environment(),
                cwd=self.home,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def _wait_until_healthy(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        missing: list[str] = list(_COMPONENTS)
        while missing:
            for name, process in self._processes.items():
                if process.poll() is not None:
                    raise LiveAirflowError(f"Airflow's {name} ended:\n{self.log_tail(name)}")
            if time.monotonic() > deadline:
                raise LiveAirflowError(
                    f"Airflow's {missing[0]} was not healthy after {seconds:.0f} s:\n{self.log_tail(missing[0])}"
                )
            time.sleep(0.3)
            with contextlib.suppress(LiveAirflowError, ValueError):
                health = self.call("GET", "/api/v2/monitor/health")
                states = {
                    "scheduler": health["scheduler"]["status"],
                    "dag-processor": health["dag_processor"]["status"],
                    "triggerer": health["triggerer"]["status"],
                }
                missing = [name for name, state in states.items() if state != "healthy"]

    def _log_in(self) -> None:
        self._token = ""
        answer = self.call("POST", "/auth/token", {"username": self.user, "password": self.password})
        self._token = answer["access_token"]

    def _end_leftovers(self) -> None:
        """Jobs run in sessions of their own; what still has our AIRFLOW_HOME in its environment is ours."""
        for process in _processes_with("AIRFLOW_HOME", str(self.home)):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(process, signal.SIGKILL)


def _log_lines(entry: Any) -> Iterator[str]:
    if not isinstance(entry, dict):
        yield str(entry)
        return
    yield str(entry["event"])
    for error in entry.get("error_detail") or ():
        yield from f"{error['exc_type']}: {error['exc_value']}".splitlines()


def _run_path(dag_id: str, run_id: str) -> str:
    return f"/api/v2/dags/{dag_id}/dagRuns/{urllib.parse.quote(run_id, safe='')}"


def _free_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _signal_group(process: subprocess.Popen[bytes], number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


def _descendants(process: subprocess.Popen[bytes]) -> list[int]:
    import psutil  # type: ignore[import-untyped]  # Airflow needs it, so it is there

    with contextlib.suppress(psutil.Error):
        return [child.pid for child in psutil.Process(process.pid).children(recursive=True)]
    return []


def _processes_with(variable: str, value: str) -> Iterator[int]:
    import psutil

    for process in psutil.process_iter(["pid"]):
        with contextlib.suppress(psutil.Error, OSError):
            if process.pid != os.getpid() and process.environ().get(variable) == value:
                yield process.pid
