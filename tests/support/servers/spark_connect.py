"""A Spark Connect server, whose tasks gates hold up."""

from __future__ import annotations

import json
import sys
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.servers.gate import gated_environment
from tests.support.servers.process import free_port, running

#: The server refuses clients without it.
TOKEN = "hunter2-connect"


@dataclass(frozen=True)
class SparkConnect:
    """
    :param log: what the server writes.
    """

    port: int
    ui_port: int
    log: Path

    @property
    def remote(self) -> str:
        return f"sc://localhost:{self.port}/;token={TOKEN}"

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
def running_spark_connect(
    directory: Path, slots: int = 2, environment: Mapping[str, str] | None = None
) -> Iterator[SparkConnect]:
    """Run a server that has this installation's library, until the block ends. Gates hold its tasks up.

    :param slots: tasks that it runs at the same time.
    :param environment: further variables of the server, which win.
    """
    ui_port = free_port()
    variables = {
        **gated_environment(directory / "gated"),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_CONNECT_AUTHENTICATE_TOKEN": TOKEN,
        **(environment or {}),
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
            *(
                "--class",
                "org.apache.spark.sql.connect.service.SparkConnectServer",
                "--master",
                f"local[{slots}]",
            ),
            *(word for name, value in properties.items() for word in ("--conf", f"{name}={value}")),
            "spark-internal",
        ]

    with running(command, directory, variables) as port:
        yield SparkConnect(port, ui_port, directory / "server.log")
