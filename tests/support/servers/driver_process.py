"""A Spark driver as an emulated cluster runs it: a process of this machine, with an environment of its own."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

_SECONDS_TO_STOP = 10


class DriverProcess:
    """:param environment: what the cluster sets; nothing else of this process reaches the driver but where programs are."""

    def __init__(self, command: Sequence[str], directory: Path, environment: Mapping[str, str]) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._log = directory / "driver.log"
        names = ("PATH", "JAVA_HOME", "HOME", "TMPDIR")
        own = {name: os.environ[name] for name in names if name in os.environ}
        with self._log.open("wb") as output:
            self._process = subprocess.Popen(
                command,
                cwd=directory,
                env={**own, "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable, **environment},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def exit_code(self) -> int | None:
        return self._process.poll()

    @property
    def output(self) -> str:
        return self._log.read_text(errors="replace")

    def end(self) -> None:
        """As clusters do it: SIGTERM, and SIGKILL some seconds later."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_SECONDS_TO_STOP)
                return


def driver_command(
    application: str, arguments: Sequence[str], py_files: str | None, *, with_spark: bool
) -> list[str]:
    """:param with_spark: whether the program gets a Spark of one core, or runs as a plain program, which is quicker."""
    if not with_spark:
        return [sys.executable, application, *arguments]
    import pyspark

    return [
        shutil.which("spark-submit", path=str(Path(pyspark.__file__).parent / "bin")) or "spark-submit",
        *("--master", "local[1]", "--driver-memory", "512m"),
        *("--conf", "spark.ui.enabled=false", "--conf", "spark.driver.bindAddress=127.0.0.1"),
        *("--conf", "spark.driver.host=127.0.0.1"),
        *("--driver-java-options", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"),
        *(("--py-files", py_files) if py_files else ()),
        application,
        *arguments,
    ]
