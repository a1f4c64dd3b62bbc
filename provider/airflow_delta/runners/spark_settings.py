"""Settings of a spark-submit call: the program, its environment, and defaults by master.

A master on this machine (``local[…]``) is an embedded Spark for one job. It starts with little (no optimising compiler, serial
collector, no web UI: 7.4 instead of 8.6 s for an empty job), listens on the loopback address only, and its workers use this
interpreter. On a cluster, only what the job itself needs is set.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from airflow_delta.runners.job_environment import python_programs
from airflow_delta.runners.job_runner import JobCannotStart
from delta_maintenance.engine.spark.application import EMBEDDED_JAVA_OPTIONS
from delta_maintenance.job_interface import LogLevel

_KNOWN_MASTER = re.compile(r"local(\[.+\])?|local-cluster\[.+\]|yarn|(spark|k8s|mesos)://.+")

_EMBEDDED = {
    "spark.driver.extraJavaOptions": EMBEDDED_JAVA_OPTIONS,
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.pyspark.python": sys.executable,
}
_EVERYWHERE = {
    "spark.pyspark.driver.python": sys.executable,
    # The task log is for the job's lines; Spark's INFO would bury them.
    "spark.log.level": "WARN",
}
#: In cluster mode the driver runs with the cluster's Python. The run's key is among the driver's variables, and where these are Spark
#: properties, Spark's UI and logs must not show them.
CLUSTER_DEFAULTS = {
    "spark.log.level": "WARN",
    "spark.redaction.regex": "(?i)secret|password|token|access[.]?key|delta_maintenance",
}


#: What Spark's launcher says of a setting or a program that is wrong, and the remedy.
_LAUNCHER_REFUSALS = (
    (
        r'(Cannot run program "[^"]*"): .*error=(?:2|13)\b',
        "Set spark.pyspark.driver.python to a Python of this machine.",
    ),
    (r"(.*UnsupportedClassVersionError.*)", "Point JAVA_HOME to a Java 17 or newer."),
    (
        r'^Exception in thread "main" org\.apache\.spark\.SparkException: (.+)',
        "Correct the Spark connection, spark_conf, or this worker's Spark configuration.",
    ),
)
#: A process that a signal ended has this exit code and the signal's number, as shells and Spark's launcher count.
_SHELL_SIGNAL = 128


def is_embedded(master: str) -> bool:
    return master.startswith("local")


def defaults_for(master: str) -> dict[str, str]:
    return {**_EVERYWHERE, **_EMBEDDED} if is_embedded(master) else dict(_EVERYWHERE)


def application() -> str:
    """The path of the job's program in the installed package, found without importing pyspark."""
    found = importlib.util.find_spec("delta_maintenance.entrypoint.run_job")
    if found is None or found.origin is None:
        raise JobCannotStart(
            "delta_maintenance.entrypoint.run_job is not installed. Reinstall airflow-provider-delta."
        )
    return found.origin


def require_known_master(master: str, spark_conn_id: str) -> None:
    if not _KNOWN_MASTER.fullmatch(master):
        raise JobCannotStart(
            f"Connection {spark_conn_id!r} gives the Spark master {master!r}, which no Spark knows, and nothing was "
            "submitted. Set its type to 'spark' and its host to local[*], yarn, spark://host:7077 or k8s://https://host."
        )


def require_client_mode(deploy_mode: str, spark_conn_id: str, has_credentials: bool) -> None:
    if deploy_mode == "client":
        return
    raise JobCannotStart(
        f"Connection {spark_conn_id!r} asks for deploy mode {deploy_mode!r}, in which the job's report does not come "
        "back to this task"
        + (
            ", and the credentials of delta_conn_id would have to be put where others can read them"
            if has_credentials
            else ""
        )
        + ". Nothing was submitted. Use a Spark connection with deploy-mode 'client'."
    )


def find_spark_submit(binary: str) -> str:
    """The full path of `binary`: on the PATH, or where pip puts it for this interpreter."""
    found = shutil.which(binary) or shutil.which(binary, path=python_programs())
    if found is None:
        raise JobCannotStart(
            f"{binary!r} is not on this worker's PATH, so Spark cannot be used. Install airflow-provider-delta[spark], "
            "or name another one in the connection's spark-binary or the operator's spark_binary."
        )
    return found


def launcher_environment(binary: str, master: str) -> dict[str, str]:
    """The variables by which `binary` finds its Spark and the driver's Python, beyond the worker's environment."""
    path = os.environ.get("PATH", os.defpath)
    if python_programs() not in path.split(os.pathsep):
        path = f"{path}{os.pathsep}{python_programs()}"
    environment = {"PATH": path}
    if is_embedded(master):
        environment["SPARK_LOCAL_IP"] = "127.0.0.1"
    if Path(binary).parent == Path(python_programs()) and "SPARK_HOME" not in os.environ:
        # pip's script asks the first python3 on the PATH, which may be another one, without PySpark.
        pyspark = importlib.util.find_spec("pyspark")
        if pyspark is not None and pyspark.origin is not None:
            environment["SPARK_HOME"] = str(Path(pyspark.origin).parent)
    return environment


def require_java(environment: Mapping[str, str]) -> None:
    """Look for Java as Spark's launcher does, so that the first try says in words that it is missing.

    :raises JobCannotStart: there is no Java.
    """
    if _has_spark_env(environment):
        return  # it may set JAVA_HOME
    home = environment.get("JAVA_HOME")
    if home and not os.access(Path(home, "bin", "java"), os.X_OK):
        raise JobCannotStart(
            f"JAVA_HOME is {home}, but there is no Java in it, so Spark cannot start. Point it to a Java 17 or newer."
        )
    if not home and shutil.which("java", path=environment.get("PATH")) is None:
        raise JobCannotStart(
            "There is no Java on this worker (JAVA_HOME is not set, and no java on the PATH), so Spark cannot start. "
            "Install Java 17 or newer, or use engine='local'."
        )


def _has_spark_env(environment: Mapping[str, str]) -> bool:
    configured = environment.get("SPARK_CONF_DIR")
    home = environment.get("SPARK_HOME")
    directories = [configured] if configured else [str(Path(home, "conf"))] if home else []
    return any(Path(directory, "spark-env.sh").exists() for directory in directories)


def chatter_level(spark_conf: Mapping[str, object]) -> LogLevel:
    """The level in the task's log of what Spark writes. A user who sets Spark's log level wants to read it."""
    return "info" if "spark.log.level" in spark_conf else "debug"


def launcher_refusal(last_lines: Sequence[str]) -> str | None:
    """Say why Spark's launcher refused, in a way that another try would meet, too; ``None``: it may pass.

    :param last_lines: lines that spark-submit wrote before the job began, so that no text of a table is among them.
    """
    for line in last_lines:
        for pattern, remedy in _LAUNCHER_REFUSALS:
            found = re.search(pattern, line)
            if found is not None:
                return f"Spark cannot start the job: {found[1].rstrip('.')}. {remedy}"
    return None


def ended_process(exit_code: int | None) -> tuple[str, int | None]:
    """Tell to which process an exit code of spark-submit belongs: to itself, or to the driver's Python, which a signal ended."""
    if exit_code is not None and _SHELL_SIGNAL < exit_code <= _SHELL_SIGNAL + max(signal.valid_signals()):
        return "The Spark driver", _SHELL_SIGNAL - exit_code
    return "spark-submit", exit_code
