"""The Spark session of this process, and the files that it sends to other machines."""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
import uuid
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

from delta_log.errors import InvalidRequest
from delta_maintenance.contract import SparkApplication
from delta_maintenance.engine.connect.detached_rewrite import DetachedRewrite
from delta_maintenance.engine.connect.server import ConnectServer
from delta_maintenance.engine.connect.sessions import is_connect_address, note_session
from delta_maintenance.engine.spark.application import EMBEDDED_JAVA_OPTIONS, is_spark_driver
from delta_maintenance.engine.spark.failure import spark_errors
from delta_maintenance.engine.spark.rewriting_task import Secrets
from delta_maintenance.process.fast_start import OWN_WORKERS_VARIABLE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Settings of an embedded session. It serves one short job: no web UI, and no port that is open to the network.
_EMBEDDED = {
    "spark.driver.extraJavaOptions": EMBEDDED_JAVA_OPTIONS,
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "WARN",
}

_PROCESSORS_OF_A_SERVER = 16


def connect_session(remote: str, rewrite: DetachedRewrite) -> SparkSession:
    """Open a session on a Spark Connect server.

    :param remote: the address of the server, as ``SPARK_REMOTE`` has it.
    :param rewrite: rewrite that names the session.
    :raises SparkUnreachable: the server does not answer.
    :raises InvalidRequest: the server refuses this client.
    """
    from pyspark.sql import SparkSession

    # PySpark would try for ten minutes, and not say at what.
    with ConnectServer(remote, rewrite) as server:
        server.require_answer()
    return SparkSession.builder.remote(_with_ids(remote, rewrite)).create()


def user_of(remote: str) -> str:
    """The user of a session, whom PySpark's client takes from the address, else from the environment."""
    _, _, parameters = remote.partition(";")
    given = dict(item.partition("=")[::2] for item in parameters.split(";"))
    named = unquote(given.get("user_id", ""))
    return named or os.environ.get("SPARK_USER") or os.environ.get("USER") or "delta-maintenance"


def _with_ids(remote: str, rewrite: DetachedRewrite) -> str:
    address, _, parameters = remote.partition(";")
    ids = f"user_id={quote(rewrite.user_id)};session_id={rewrite.session_id}"
    return f"{address.rstrip('/')}/;{parameters}{';' if parameters else ''}{ids}"


def spark_session(master: str | None, app_name: str) -> SparkSession:
    """Return the session that spark-submit or a notebook made in this process, else a new one.

    The environment may name a Spark Connect server (``SPARK_REMOTE=sc://host:port``).

    :param master: master of a new session; ``None``: what Spark's own configuration says, else all processors of this machine.
    :raises InvalidRequest: PySpark is not installed.
    :raises SparkMisconfigured: Spark cannot start as it is configured.
    :raises SparkUnavailable: the master does not answer.
    :raises SparkUnreachable: the Spark Connect server does not answer.
    :raises SparkFailed: Spark does not start for another reason.
    """
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise InvalidRequest(
            "The Spark engine needs PySpark, which is not installed here. Install "
            "airflow-provider-delta[spark], or use the local engine."
        ) from error
    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    remote = os.environ.get("SPARK_REMOTE")
    if remote is not None and is_connect_address(remote):
        ids = DetachedRewrite.named(uuid.uuid4().hex, user_of(remote))
        session = connect_session(remote, ids)
        note_session(remote, ids, session)
        return session
    # Nobody else uses the workers of an application that begins here.
    builder = SparkSession.builder.appName(app_name).config(f"spark.executorEnv.{OWN_WORKERS_VARIABLE}", "1")
    if remote is not None and remote.startswith("local"):
        _use_this_python()
    if not is_spark_driver() and remote is None:
        master = master or os.environ.get("SPARK_MASTER") or "local[*]"
        builder = builder.master(master)
        if master.startswith("local"):
            for name, value in _EMBEDDED.items():
                builder = builder.config(name, value)
            _use_this_python()
    with spark_errors(at_start=True):
        return builder.getOrCreate()


def application_of(session: SparkSession) -> SparkApplication:
    """Return what a report says of a session's Spark application (`spark` of a :class:`~delta_maintenance.contract.JobReport`)."""
    # A Spark Connect client has no context, and the server does not tell it the address of its UI.
    context = getattr(session, "sparkContext", None)
    return {
        "application_id": session.conf.get("spark.app.id", None),
        "ui_url": None if context is None else context.uiWebUrl,
        "version": session.version,
    }


def own_processors(spark: SparkSession) -> int | None:
    """Return how many tasks the driver runs at a time by itself; ``None``: executors do, or a server that does not tell."""
    try:
        context = spark.sparkContext
        is_local = re.fullmatch(r"local(?:\[.*\])?", context.master or "") is not None
        return context.defaultParallelism if is_local else None
    except Exception:  # noqa: BLE001 - Spark Connect has no context
        return None


def processors_of(spark: SparkSession) -> int:
    """Return how many tasks the cluster runs at a time. A Spark Connect server does not tell, and counts as one of some size."""
    try:
        return spark.sparkContext.defaultParallelism
    except Exception:  # noqa: BLE001 - Spark Connect has no such property
        return _PROCESSORS_OF_A_SERVER


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


def sent_secrets(spark: SparkSession, secrets: Mapping[str, Any]) -> Secrets:
    """Prepare secrets for the closure of a task: themselves, or the name of the file in which Spark sends them.

    A Spark Connect server writes the plan of an operation, closures included, to its log when it drops the operation. So they
    travel to it beside the plan. The file is one of this session, and is deleted with it.
    """
    from pyspark.sql.utils import is_remote

    if not is_remote():
        return dict(secrets)
    path = (
        sent_files() / f"delta-maintenance-{uuid.uuid4().hex}.json"
    )  # in a directory that only this user may read
    path.write_text(json.dumps(dict(secrets)), encoding="utf-8")
    spark.addArtifacts(str(path), file=True)
    path.unlink()
    return path.name
