"""A standalone Spark cluster: a master with its REST server, and two workers, as processes of this machine."""

from __future__ import annotations

import json
import os
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.environment.patience import PATIENCE_SECONDS
from tests.support.servers.process import free_port, running

_WORKERS = 2
#: More than there are, since most of what runs on them waits.
_CORES_EACH, _MEMORY_EACH = 8, "6g"


@dataclass(frozen=True, slots=True)
class SparkCluster:
    """:param master: its URL, ``spark://…``."""

    master: str
    rest_port: int
    ui_port: int

    #: A driver and executors that start soon, with the Python of the tests.
    conf = {  # noqa: RUF012 - never changed
        "spark.driver.memory": "512m",
        "spark.executor.memory": "512m",
        "spark.cores.max": "1",
        "spark.pyspark.python": sys.executable,
        "spark.pyspark.driver.python": sys.executable,
        **dict.fromkeys(
            ("spark.driver.extraJavaOptions", "spark.executor.extraJavaOptions"),
            "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        ),
    }

    @property
    def connection(self) -> str:
        """An Airflow connection of it in deploy mode ``cluster``."""
        extra = {"deploy-mode": "cluster", "rest-port": self.rest_port}
        return json.dumps({"conn_type": "spark", "host": self.master, "extra": extra})

    def state(self) -> dict[str, Any]:
        """What the master says of its workers, applications and drivers."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.ui_port}/json/", timeout=10) as answer:
            found: dict[str, Any] = json.loads(answer.read())
            return found

    def drivers(self) -> dict[str, str]:
        """The states of all drivers so far, by id."""
        state = self.state()
        return {
            driver["id"]: driver["state"] for driver in (*state["activedrivers"], *state["completeddrivers"])
        }


@contextmanager
def running_spark_cluster(
    directory: Path, environment: Mapping[str, str] | None = None
) -> Iterator[SparkCluster]:
    """Starts a cluster, and yields it when its workers have registered.

    :param environment: further variables of drivers and executors.
    """
    rest_port, ui_port = free_port(), free_port()
    with ExitStack() as stack:

        def master(port: int) -> Sequence[str]:
            return _spark_class(
                "-Dspark.master.rest.enabled=true",
                "-Dspark.master.rest.host=127.0.0.1",
                f"-Dspark.master.rest.port={rest_port}",
                "org.apache.spark.deploy.master.Master",
                *("--host", "127.0.0.1", "--port", str(port), "--webui-port", str(ui_port)),
            )

        home = _made(directory / "master")
        port = stack.enter_context(running(master, home, _environment(home)))
        cluster = SparkCluster(f"spark://127.0.0.1:{port}", rest_port, ui_port)
        for number in range(_WORKERS):

            def worker(port: int) -> Sequence[str]:
                return _spark_class(
                    "org.apache.spark.deploy.worker.Worker",
                    *("--host", "127.0.0.1", "--webui-port", str(port), "--cores", str(_CORES_EACH)),
                    *("--memory", _MEMORY_EACH, cluster.master),
                )

            home = _made(directory / f"worker-{number}")
            stack.enter_context(running(worker, home, {**_environment(home), **(environment or {})}))
        deadline = time.monotonic() + PATIENCE_SECONDS
        while cluster.state()["aliveworkers"] < _WORKERS:
            assert time.monotonic() < deadline, cluster.state()
            time.sleep(0.2)
        yield cluster


def _made(directory: Path) -> Path:
    directory.mkdir(parents=True)
    return directory


def _spark_class(*arguments: str) -> Sequence[str]:
    import pyspark

    return (str(Path(pyspark.__file__).parent / "bin" / "spark-class"), *arguments)


def _environment(home: Path) -> dict[str, str]:
    import pyspark

    return {
        "SPARK_HOME": str(Path(pyspark.__file__).parent),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_PUBLIC_DNS": "127.0.0.1",
        "SPARK_WORKER_DIR": str(home / "work"),
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "PATH": os.environ["PATH"],
        # An embedded Spark in this process, started by another test, leaves its module path there for its own workers.
        "PYTHONPATH": "",
    }
