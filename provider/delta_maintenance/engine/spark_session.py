"""The Spark session of this process, and the files that it sends to other machines."""

from __future__ import annotations

import os
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from delta_log.errors import InvalidRequest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Settings of an embedded session. It serves one short job: no optimising compiler, a serial collector, no web UI, and
#: no port that is open to the network.
_EMBEDDED = {
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "WARN",
}


def is_spark_driver() -> bool:
    """Tell whether spark-submit started this process. It then sets the master and the configuration."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def spark_session(master: str | None, app_name: str) -> SparkSession:
    """Return the session that spark-submit or a notebook made in this process, else a new one.

    :param master: of a new session; ``None``: what Spark's own configuration says, else all processors of this machine.
    :raises InvalidRequest: PySpark is not installed, or Spark cannot start.
    """
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise InvalidRequest(
            "The Spark engine needs PySpark, which is not installed here. Install "
            "airflow-provider-delta[spark], or use --engine local."
        ) from error
    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    builder = SparkSession.builder.appName(app_name)
    remote = os.environ.get("SPARK_REMOTE")
    if remote is not None and remote.startswith("local"):
        _use_this_python()
    if not is_spark_driver() and remote is None:
        master = master or os.environ.get("SPARK_MASTER") or "local[*]"
        builder = builder.master(master)
        if master.startswith("local"):
            for name, value in _EMBEDDED.items():
                builder = builder.config(name, value)
            _use_this_python()
    try:
        return builder.getOrCreate()
    except Exception as error:  # PySpark raises half a dozen unrelated kinds
        raise InvalidRequest(
            f"Spark cannot be started ({type(error).__name__}: {error}). Is there a Java 17 or newer "
            f"(JAVA_HOME), and does master {master or 'of the environment'} exist? --engine local needs none."
        ) from error


def _use_this_python() -> None:
    """Give an embedded Spark's Python workers the interpreter and the module path of this process."""
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(str(Path(p).resolve()) for p in sys.path))


@cache
def _sent_files() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="delta-maintenance-")


def sent_files() -> Path:
    """Return the directory for files that Spark sends to its machines.

    It exists until this process ends: Spark sends a file to a machine when the machine runs its first task, and a machine
    may join the cluster late.
    """
    return Path(_sent_files().name)
