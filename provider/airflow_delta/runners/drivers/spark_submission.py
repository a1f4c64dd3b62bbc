"""Submits a driver to YARN or Kubernetes: a spark-submit that ends as soon as the cluster has accepted the application.

1. Every Spark property goes into a file that only this user can read. Some of them hold secrets, and every user of the machine can read
   command lines. Properties of ``spark-defaults.conf`` hold as well.
2. What Spark's client writes goes to the log at debug level. If it fails, one line of it says why.
3. A refusal by the cluster is final: :class:`~airflow_delta.runners.job_runner.JobCannotStart`. Every other failure may pass:
   :class:`~airflow_delta.runners.job_runner.JobLost`.
"""

from __future__ import annotations

import re
import secrets
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from airflow.sdk.exceptions import AirflowException

from airflow_delta.runners import spark_settings
from airflow_delta.runners.drivers.driver import DriverRequest
from airflow_delta.runners.job_environment import job_environment
from airflow_delta.runners.job_output import JobOutput
from airflow_delta.runners.job_runner import JobCannotStart, JobLost
from airflow_delta.runners.spark_submit import LineSortingHook
from delta_log.printable import printable_logger
from delta_maintenance.process.bundle import build_bundle

log = printable_logger(__name__)

#: With a properties file, spark-submit reads its ``spark-defaults.conf`` only if it is told to.
_ALSO_DEFAULTS = ("--load-spark-defaults",)
NAMESPACE_PROPERTY = "spark.kubernetes.namespace"
_LONGEST_CAUSE = 500
#: A cluster that has no room now says so with the same code as one that forbids the driver.
_PASSING = re.compile(
    r"exceeded quota|maximum.*applications|UnknownHostException|ConnectException|Connection refused|SocketTimeoutException|StandbyException",
    re.IGNORECASE,
)
_REFUSED = re.compile(
    r"\bforbidden\b|\bunauthorized\b|code[ =:]+40[013]\b|code[ =:]+422\b|AccessControlException|AuthorizationException|"
    r"LoginException|cannot be submitted by user|does not have permission|to unknown queue|non-leaf queue|InvalidResourceRequest|"
    r"HADOOP_CONF_DIR or YARN_CONF_DIR must be set|ClassNotFoundException|FileNotFoundException|IllegalArgumentException|"
    r"Unrecognized option",
    re.IGNORECASE,
)
_LEAD = re.compile(r'^(Caused by:|Exception in thread "[^"]*") *')
_CAUSE = re.compile(r"^(Exception in thread|Caused by:|Error:|error:)|\b[A-Za-z.]+(Exception|Error):")


def submit_driver(
    spark_conn_id: str, request: DriverRequest, properties: Mapping[str, str], spark_binary: str | None
) -> None:
    """Run spark-submit, and return when the cluster has accepted the application.

    :param properties: all Spark properties, including the properties that hold the request's environment.
    :raises JobCannotStart: the cluster or this machine refuses; nothing was submitted.
    :raises JobLost: it may have been submitted.
    """
    with tempfile.TemporaryDirectory(prefix="delta-maintenance-") as name:
        directory = Path(name)  # mode 0700
        output, lines = JobOutput(secrets.token_hex(16)), _ClientLines()
        hook = LineSortingHook.of_connection(
            spark_conn_id,
            output=output,
            on_progress=lambda _: None,
            log=lines,
            # The hook would pass on the namespace of the connection, which precedes that in the file.
            conf={name: value for name, value in properties.items() if name == NAMESPACE_PROPERTY},
            name=request.name,
            application_args=list(request.arguments),
            spark_binary=spark_binary,
            deploy_mode="cluster",
            properties_file=str(_written(directory, properties)),
            # Without it, the hook looks for the driver's exit code in what spark-submit writes.
            track_driver_via_k8s_api=True,
            more_arguments=_ALSO_DEFAULTS,
        )
        if is_local_file(request.application):
            hook.set_py_files(str(build_bundle(directory)))
        binary = spark_settings.find_spark_submit(hook.binary)
        environment = job_environment({}, **spark_settings.launcher_environment(binary, hook.master))
        spark_settings.require_java(environment)
        try:
            hook.submit(request.application, env=environment, start_new_session=True, errors="replace")
        except AirflowException:
            raise failed_submission(
                f"spark-submit ended with exit code {hook.exit_code}", lines.seen
            ) from None
        except OSError as error:
            raise JobCannotStart(f"{binary} cannot be started: {error}.") from error
        finally:
            hook.stop()
            hook.close()


def is_local_file(application: str) -> bool:
    """Whether an application is a file of this machine, which Spark's client uploads."""
    return application.startswith(("/", "file:", "./")) or ":" not in application


def failed_submission(problem: str, lines: Sequence[str]) -> JobCannotStart | JobLost:
    """The error for what Spark's client has written.

    :param lines: lines of its output, without the frames of a stack trace.
    """
    cause = _cause(lines)
    text = "\n".join(lines)
    if _REFUSED.search(text) and not _PASSING.search(text):
        return JobCannotStart(
            f"The cluster did not accept the Spark driver: {cause or problem}. Nothing was submitted. Check the Spark connection, its "
            "credentials and permissions, and spark_conf; what Spark's client wrote is in the log at debug level."
        )
    return JobLost(f"{problem} before the cluster had accepted the driver.", (cause,) if cause else ())


def _cause(lines: Sequence[str]) -> str:
    """The line that says most: the innermost cause of the last trace, or the last line."""
    named = [line.strip() for line in lines if _CAUSE.search(line.strip())]
    said = named[-1] if named else next((line.strip() for line in reversed(lines) if line.strip()), "")
    return _LEAD.sub("", said)[:_LONGEST_CAUSE].rstrip(".")


class _ClientLines:
    """The log of Spark's client, see :class:`~airflow_delta.runners.job_runner.TaskLog`; keeps its last lines without frames."""

    _MOST = 200

    def __init__(self) -> None:
        self.seen: list[str] = []

    def info(self, message: str, /, *arguments: Any) -> None:
        line = message % arguments
        log.debug("%s", line)
        if not line.lstrip().startswith("at "):
            self.seen.append(line)
            del self.seen[: -self._MOST]

    debug = warning = error = info


def _written(directory: Path, properties: Mapping[str, str]) -> Path:
    path = directory / "spark.properties"
    path.touch(0o600)
    path.write_text(
        "".join(f"{_escaped(name, ' :=#!')}={_escaped(value, '')}\n" for name, value in properties.items()),
        encoding="utf-8",
    )
    return path


def _escaped(text: str, special: str) -> str:
    """Text as Java reads it from a properties file."""
    text = text.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
    for character in special:
        text = text.replace(character, f"\\{character}")
    return f"\\{text}" if text.startswith((" ", "\t", "\f")) else text
