"""An emulator of YARN: the routes of the ResourceManager's REST server that follow and end applications, and a spark-submit.

Spark's client speaks Hadoop's RPC with YARN, which is not emulated. Instead, a program that stands for spark-submit takes the same arguments and
hands the application over by HTTP. The emulator runs its driver as a process, in a directory with copies of the files, as in a container.
"""

from __future__ import annotations

import re
import shutil
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.servers.driver_process import DriverProcess, driver_command
from tests.support.servers.json_api import Request, serving

_SUBMIT = """#!{python}
import json, os, sys, urllib.request
with open(sys.argv[sys.argv.index("--properties-file") + 1], encoding="utf-8") as file:
    properties = dict(line.rstrip("\\n").replace("\\\\:", ":").split("=", 1) for line in file)
assert os.environ["HADOOP_CONF_DIR"]
body = json.dumps({{"argv": sys.argv[1:], "properties": properties}}).encode()
request = urllib.request.Request("http://127.0.0.1:{port}/submit", body)
print("INFO Client: Requesting a new application")
with urllib.request.urlopen(request) as answer:
    said = json.load(answer)
if said:
    print(said, flush=True)
    sys.exit(1)
"""
_FLAGS_WITHOUT_VALUE = ("--load-spark-defaults", "--verbose")


@dataclass
class _Application:
    number: int
    name: str
    tags: set[str]
    driver: DriverProcess
    is_killed: bool = False

    def described(self) -> dict[str, Any]:
        code = self.driver.exit_code
        state, final, diagnostics = "RUNNING", "UNDEFINED", ""
        if self.is_killed:
            state, final, diagnostics = "KILLED", "KILLED", "Application was killed by user airflow"
        elif code is not None:
            state, final = "FINISHED", "SUCCEEDED" if code == 0 else "FAILED"
            diagnostics = "" if code == 0 else f"User application exited with status {code}"
        return {
            "id": f"application_1700000000000_{self.number:04}",
            "name": self.name,
            "state": state,
            "finalStatus": final,
            "diagnostics": diagnostics,
            "applicationTags": ",".join(sorted(self.tags)),
            "startedTime": self.number,
        }


@dataclass
class Yarn:
    """
    :param answer_of_submit: written by the next spark-submits, which fail then; they have submitted if :attr:`loses_answers`.
    :param seconds_to_accept: how long a spark-submit takes.
    :param status: HTTP status with which the REST server refuses everything, if it is not 200.
    :param is_with_spark: whether drivers get a Spark.
    :param environment: further variables of drivers, as an image may set them.
    """

    directory: Path
    port: int = 0
    answer_of_submit: str = ""
    loses_answers: bool = False
    status: int = 200
    seconds_to_accept: float = 0.0
    is_with_spark: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)
    submissions: list[dict[str, Any]] = field(default_factory=list)
    applications: list[_Application] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _is_closed: threading.Event = field(default_factory=threading.Event)

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def spark_submit(self) -> str:
        """The program that stands for spark-submit."""
        return self.spark_submit_through(self.port)

    def spark_submit_through(self, port: int) -> str:
        """The same, which reaches this cluster through another port."""
        path = self.directory / "spark-submit"
        path.write_text(_SUBMIT.format(python=sys.executable, port=port))
        path.chmod(0o755)
        return str(path)

    def close(self) -> None:
        """Accept nothing more."""
        self._is_closed.set()

    def answer(self, request: Request) -> tuple[int, Any]:
        if request.path == "/submit":
            with self._lock:
                return 200, self._submit(request.body)
        if self.status != 200:
            return self.status, {"RemoteException": {"message": "not you"}}
        apps = [app.described() for app in self.applications]
        if request.path == "/ws/v1/cluster/apps":
            tag = request.query["applicationTags"]
            found = [app for app in apps if tag in app["applicationTags"].split(",")]
            return 200, {"apps": {"app": found} if found else None}
        path = re.fullmatch(r"/ws/v1/cluster/apps/(application_\d+_(\d+))(/state)?", request.path)
        if path is None or not 0 < int(path[2]) <= len(apps):
            return 404, {"RemoteException": {"exception": "NotFoundException"}}
        if path[3] and request.method == "PUT":
            assert request.body == {"state": "KILLED"}
            application = self.applications[int(path[2]) - 1]
            if application.driver.exit_code is None:
                application.is_killed = True
                application.driver.end()
            return 202, {"state": application.described()["state"]}
        return 200, {"app": apps[int(path[2]) - 1]}

    def _submit(self, submission: dict[str, Any]) -> str:
        self.submissions.append(submission)
        if self._is_closed.wait(self.seconds_to_accept):
            return "closed"
        if self.answer_of_submit and not self.loses_answers:
            return self.answer_of_submit
        flags, program, arguments = _parsed(submission["argv"])
        properties = submission["properties"]
        assert flags["--deploy-mode"] == "cluster"
        assert properties["spark.yarn.submit.waitAppCompletion"] == "false"
        number = len(self.applications) + 1
        container = self.directory / f"container-{number}"
        container.mkdir()
        prefix = "spark.yarn.appMasterEnv."
        environment = {
            name.removeprefix(prefix): value for name, value in properties.items() if name.startswith(prefix)
        }
        uploaded = [str(shutil.copy(path, container)) for path in (program, flags.get("--py-files")) if path]
        command = driver_command(uploaded[0], arguments, (*uploaded, None)[1], with_spark=self.is_with_spark)
        driver = DriverProcess(command, container, {**self.environment, **environment})
        tags = set(properties["spark.yarn.tags"].lower().split(","))
        self.applications.append(_Application(number, flags["--name"], tags, driver))
        return self.answer_of_submit


def _parsed(argv: list[str]) -> tuple[dict[str, str], str, list[str]]:
    """The flags, the program and its arguments."""
    flags, rest = {}, list(argv)
    while rest[0].startswith("--"):
        flag = rest.pop(0)
        flags[flag] = "" if flag in _FLAGS_WITHOUT_VALUE else rest.pop(0)
    return flags, rest[0], rest[1:]


@contextmanager
def running_yarn(directory: Path) -> Iterator[Yarn]:
    yarn = Yarn(directory)
    with serving(yarn.answer) as yarn.port:
        try:
            yield yarn
        finally:
            yarn.close()
            for application in yarn.applications:
                application.driver.end()
