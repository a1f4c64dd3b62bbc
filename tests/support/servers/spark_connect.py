"""A Spark Connect server of two processors, whose tasks a test can hold up."""

from __future__ import annotations

import json
import os
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.servers.process import free_port, running

#: The server refuses clients without it.
TOKEN = "hunter2-connect"

#: In every Python worker: a file of the table is not written while the gate's file holds a word of the file's key.
_GATE = """
import os, time
from contextlib import contextmanager
from pathlib import Path

def make_waiting():
    try:
        from delta_log.storage.local import LocalStorage
    except ImportError:
        return
    gate, waiting = Path(os.environ["GATE"]), Path(os.environ["GATE"] + ".waiting")
    open_write = LocalStorage.open_write

    @contextmanager
    def opening(self, key):
        while any(word in key for word in gate.read_text().split()):
            with waiting.open("a") as file:
                file.write(key + "\\n")
            time.sleep(0.05)
        with open_write(self, key) as file:
            yield file

    LocalStorage.open_write = opening

# Workers are forked from a process that must not have threads, and Arrow has.
if "GATE" in os.environ:
    os.register_at_fork(after_in_child=make_waiting)
"""


@dataclass(frozen=True)
class SparkConnect:
    """
    :param gate: the file that holds tasks up.
    """

    port: int
    ui_port: int
    gate: Path

    @property
    def remote(self) -> str:
        return f"sc://localhost:{self.port}/;token={TOKEN}"

    def hold(self, *words: str) -> None:
        """Let no task write a file whose key has one of these words, from now on."""
        self.gate.with_name("gate.waiting").unlink(missing_ok=True)
        self.gate.write_text(" ".join(words))

    @property
    def holds_some(self) -> bool:
        """Whether a task has been held up since the last :meth:`hold`, and one runs."""
        return self.gate.with_name("gate.waiting").exists() and self.active_tasks() > 0

    def active_tasks(self) -> int:
        """How many tasks the server runs."""
        (application,) = self._ask("applications")
        return sum(
            executor["activeTasks"] for executor in self._ask(f"applications/{application['id']}/executors")
        )

    def _ask(self, what: str) -> list[dict[str, Any]]:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.ui_port}/api/v1/{what}") as answer:
            found: list[dict[str, Any]] = json.load(answer)
        return found


@contextmanager
def running_spark_connect(directory: Path) -> Iterator[SparkConnect]:
    """Run a server that has this installation's library, until the block ends."""
    (directory / "sitecustomize.py").write_text(_GATE)
    gate, ui_port = directory / "gate", free_port()
    gate.write_text("")
    environment = {
        "GATE": str(gate),
        "PYTHONPATH": os.pathsep.join([str(directory), *filter(None, [os.environ.get("PYTHONPATH")])]),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_CONNECT_AUTHENTICATE_TOKEN": TOKEN,
    }

    def command(port: int) -> list[str]:
        properties = {
            "spark.connect.grpc.binding.address": "127.0.0.1",
            "spark.connect.grpc.binding.port": port,
            "spark.ui.enabled": "true",
            "spark.ui.port": ui_port,
            "spark.ui.liveUpdate.period": 0,
        }
        return [
            str(Path(sys.executable).with_name("spark-submit")),
            *("--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "--master", "local[2]"),
            *(word for name, value in properties.items() for word in ("--conf", f"{name}={value}")),
            "spark-internal",
        ]

    with running(command, directory, environment) as port:
        yield SparkConnect(port, ui_port, gate)
