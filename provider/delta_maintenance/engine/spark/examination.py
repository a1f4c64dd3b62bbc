"""Opens a session for a look at a Spark, without a job."""

from __future__ import annotations

import os

from msgspec import Struct

from delta_maintenance.engine.connect.sessions import end_connect_sessions, is_connect_address
from delta_maintenance.engine.spark.cluster_check import ClusterVersions, check_cluster
from delta_maintenance.engine.spark.executors import TIMEOUT_PROPERTY, with_executors
from delta_maintenance.engine.spark.failure import spark_errors
from delta_maintenance.engine.spark.session import (
    application_of,
    spark_session,
)
from delta_maintenance.progress import ProgressReporter

#: A job waits longer for a full cluster; a person who looks does not.
_EXECUTOR_TIMEOUT = "60s"
_ENCRYPTION = ("spark.network.crypto.enabled", "spark.ssl.enabled", "spark.ssl.rpc.enabled")


class SparkFacts(Struct):
    """What is known of a Spark so far; each is ``None`` until it is known."""

    version: str | None = None
    master: str | None = None
    application_id: str | None = None
    is_local: bool = False
    is_encrypted: bool = False
    machines: ClusterVersions | None = None


def examine_session(master: str | None, facts: SparkFacts, progress: ProgressReporter) -> None:
    """Open a session, and look at the driver and some executors.

    :param facts: facts, which are filled in as they are found, also before an error.
    :raises DeltaLogError: Spark does not answer, gives no executor, or a machine lacks something.
    """
    spark = spark_session(master, "delta-maintenance doctor")
    try:
        from pyspark.sql.functions import udf

        found = application_of(spark)
        facts.application_id, facts.version = found["application_id"], spark.version
        facts.master = spark.conf.get("spark.master", None) or master or "the server of SPARK_REMOTE"
        remote = os.environ.get("SPARK_REMOTE", "")
        if is_connect_address(remote):
            # The server's machine is another one, though its master may be called local.
            facts.is_encrypted = "use_ssl=true" in remote.lower()
        else:
            facts.is_local = facts.master.startswith("local")
            facts.is_encrypted = any(spark.conf.get(name, "false") == "true" for name in _ENCRYPTION)
        spark.conf.set(TIMEOUT_PROPERTY, spark.conf.get(TIMEOUT_PROPERTY, None) or _EXECUTOR_TIMEOUT)
        with spark_errors():
            facts.machines = with_executors(spark, progress, lambda: check_cluster(spark, udf))
    finally:
        if not end_connect_sessions():
            spark.stop()
