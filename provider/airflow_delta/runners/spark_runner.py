"""Chooses the runner for ``engine="spark"``, from the Airflow connection that names the Spark."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from airflow_delta.runners.drivers.cluster import ClusterJobRunner
from airflow_delta.runners.drivers.driver import DriverLauncher
from airflow_delta.runners.job_environment import CLIENT, CLUSTER
from airflow_delta.runners.job_runner import JobCannotStart, JobRunner, TaskLog
from airflow_delta.runners.spark_connect import (
    DETACHED_OPERATIONS,
    ConnectJobRunner,
    SparkConnectRunner,
    is_spark_connect,
)
from airflow_delta.runners.spark_submit import (
    SparkSubmitRunner,
    master_of,
    require_connection,
    require_kubernetes_client,
)

if TYPE_CHECKING:
    from airflow_delta.runners.detached import DetachedRunner


class SparkChoice(Struct, frozen=True):
    """What an operator says about its Spark.

    :param operation: name of the operation.
    :param deploy_mode: ``client`` or ``cluster``; ``None``: the deploy mode of the connection.
    :param launcher: object that starts drivers in the user's own way, instead of the connection.
    :param application: the job's program, as the cluster's machines find it.
    :param table: the table as its task names it.
    """

    operation: str
    spark_conn_id: str
    deploy_mode: str | None = None
    spark_conf: Mapping[str, Any] = {}
    spark_binary: str | None = None
    delta_conn_id: str | None = None
    launcher: DriverLauncher | None = None
    application: str | None = None
    table: str | None = None

    def runner(self, storage_options: Mapping[str, Any], log: TaskLog) -> JobRunner | DetachedRunner:
        """
        :raises JobCannotStart: there is no such connection, or no runner for it.
        """
        if self.launcher is not None:
            return self._on_cluster(self.launcher, storage_options)
        connection = require_connection(self.spark_conn_id)
        if is_spark_connect(connection):
            return self._on_connect_server(storage_options, log)
        extra = connection.extra_dejson
        mode = self.deploy_mode or extra.get("deploy-mode") or self.spark_conf.get("spark.submit.deployMode")
        if mode in (None, CLIENT):
            return SparkSubmitRunner(
                self.spark_conn_id,
                spark_conf=self.spark_conf,
                spark_binary=self.spark_binary,
                storage_options=storage_options,
                log=log,
                deploy_mode=self.deploy_mode,
            )
        if mode != CLUSTER:
            raise JobCannotStart(
                f"Connection {self.spark_conn_id!r} has deploy-mode {mode!r}, which is neither 'client' nor 'cluster'. Nothing was submitted."
            )
        require_kubernetes_client(self.spark_conn_id)
        return self._on_cluster(self._launcher(master_of(self.spark_conn_id) or "", extra), storage_options)

    def _on_connect_server(
        self, storage_options: Mapping[str, Any], log: TaskLog
    ) -> JobRunner | DetachedRunner:
        if self.spark_conf:
            log.info(
                "The Spark properties %s are left out: the Spark Connect server of connection %r has its own.",
                ", ".join(sorted(self.spark_conf)),
                self.spark_conn_id,
            )
        if self.operation in DETACHED_OPERATIONS:
            return SparkConnectRunner(self.spark_conn_id, self.delta_conn_id, self.table)
        return ConnectJobRunner(self.spark_conn_id, storage_options, log)

    def _on_cluster(self, launcher: DriverLauncher, storage_options: Mapping[str, Any]) -> ClusterJobRunner:
        if "vended" in storage_options:
            raise JobCannotStart(
                f"{self.table} is opened with credentials that its catalog gives out, and with deploy mode 'cluster' the token for the catalog "
                "would have to be put where others can read it. Nothing was submitted. Use deploy mode 'client', or set vended_credentials of "
                "the catalog's option to false and give the cluster's machines an identity that may use the table."
            )
        return ClusterJobRunner(
            launcher,
            delta_conn_id=self.delta_conn_id,
            spark_conf=self.spark_conf,
            application=self.application,
        )

    def _launcher(self, master: str, extra: Mapping[str, Any]) -> DriverLauncher:
        """The launcher for a master in deploy mode ``cluster``."""
        if master.startswith("spark://"):
            from airflow_delta.runners.drivers.standalone_master import StandaloneMaster

            return StandaloneMaster(master, extra.get("rest-scheme", "http"), extra.get("rest-port", 6066))
        if master == "yarn":
            from airflow_delta.runners.drivers.yarn import YarnResourceManager

            return YarnResourceManager(self.spark_conn_id, self.spark_binary)
        if master.startswith("k8s://"):
            from airflow_delta.runners.drivers.kubernetes import KubernetesDriver
            from airflow_delta.runners.drivers.spark_submission import NAMESPACE_PROPERTY

            return KubernetesDriver(
                self.spark_conn_id, self.spark_conf.get(NAMESPACE_PROPERTY), self.spark_binary
            )
        raise JobCannotStart(
            f"Connection {self.spark_conn_id!r} names the Spark master {master!r} and deploy mode 'cluster', and no job can be started there. "
            "Nothing was submitted. Use a standalone cluster (spark://host:7077), YARN (yarn) or Kubernetes (k8s://https://host:443), or deploy "
            "mode 'client'."
        )
