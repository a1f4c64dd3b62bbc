"""Drivers on Kubernetes, on YARN and on a standalone cluster.

Kubernetes and YARN are emulated. Spark's own client submits to the emulated Kubernetes; a stand-in submits to YARN. The standalone cluster is real.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from tests.support.checks.command_lines import command_lines_with
from tests.support.environment.prerequisites import require
from tests.support.servers.kubernetes import Kubernetes, running_kubernetes
from tests.support.servers.spark_standalone import SparkCluster
from tests.support.servers.yarn import running_yarn
from tests.support.tables.small_tables import write_days, write_parts

from airflow_delta.operators import DeltaOptimizeOperator
from airflow_delta.runners.detached import JobHandle
from airflow_delta.runners.drivers.driver import DriverRequest
from airflow_delta.runners.drivers.kubernetes import KubernetesDriver
from airflow_delta.runners.drivers.standalone_master import StandaloneMaster
from airflow_delta.runners.drivers.yarn import YarnResourceManager
from airflow_delta.runners.job_runner import JobCannotStart
from airflow_delta.testing import DriverLauncherContract

pytestmark = pytest.mark.spark

MakeContext = Callable[..., dict[str, Any]]
_IMAGE = {"spark.kubernetes.container.image": "spark:4.2"}


@pytest.fixture(scope="module", autouse=True)
def _java() -> None:
    if "JAVA_HOME" not in os.environ:
        require("java", "to run Spark")


@pytest.fixture
def kubernetes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Kubernetes]:
    (tmp_path / "kubernetes").mkdir()
    with running_kubernetes(tmp_path / "kubernetes") as kubernetes:
        extra = {"deploy-mode": "cluster", "namespace": "lake"}
        value = {"conn_type": "spark", "host": kubernetes.master, "extra": extra}
        monkeypatch.setenv("AIRFLOW_CONN_LAKE", json.dumps(value))
        monkeypatch.setenv("AIRFLOW__KUBERNETES_EXECUTOR__IN_CLUSTER", "False")
        monkeypatch.setenv("AIRFLOW__KUBERNETES_EXECUTOR__CONFIG_FILE", kubernetes.kubeconfig)
        monkeypatch.delenv("PYTHONPATH", raising=False)
        yield kubernetes


class TestKubernetesDriver(DriverLauncherContract):
    spark_conf = _IMAGE

    @pytest.fixture
    def launcher(self, kubernetes: Kubernetes) -> KubernetesDriver:
        return KubernetesDriver("lake")

    @pytest.fixture
    def program_directory(self, tmp_path: Path) -> Path:
        return tmp_path

    @pytest.fixture
    def unknown_handle(self) -> JobHandle:
        return {"namespace": "lake", "pod": "delta-maintenance-0"}

    def application_in(self, directory: Path) -> str:
        return f"local://{directory}/driver.py"

    def test_pods_that_this_worker_may_not_create_are_a_refusal(
        self, kubernetes: Kubernetes, launcher: KubernetesDriver, tmp_path: Path
    ) -> None:
        kubernetes.refusal = (403, 'pods is forbidden: User "airflow" cannot create resource "pods"')
        with pytest.raises(JobCannotStart, match='User "airflow" cannot create'):
            launcher.start(self._request(tmp_path, seconds=0))


class TestStandaloneMaster(DriverLauncherContract):
    spark_conf = SparkCluster.conf

    @pytest.fixture
    def launcher(self, spark_cluster: SparkCluster) -> StandaloneMaster:
        return StandaloneMaster(spark_cluster.master, rest_port=spark_cluster.rest_port)

    @pytest.fixture
    def program_directory(self, tmp_path: Path) -> Path:
        return tmp_path

    @pytest.fixture
    def unknown_handle(self) -> JobHandle:
        return {"driver_id": "driver-20260101000000-9999"}


def optimize(context: dict[str, Any], table: Path, **arguments: Any) -> dict[str, Any]:
    operator = DeltaOptimizeOperator(
        task_id="optimize", table=str(table), engine="spark", spark_conn_id="lake", **arguments
    )
    # Airflow refuses an execute() that its task runner did not call.
    return DeltaOptimizeOperator.execute.__wrapped__(operator, context)  # type: ignore[attr-defined, no-any-return]


def test_an_optimize_on_kubernetes_uploads_its_program_and_commits(
    kubernetes: Kubernetes, tmp_path: Path, make_context: MakeContext
) -> None:
    table, uploads = tmp_path / "events", tmp_path / "uploads"
    write_parts(table, "ab")
    uploads.mkdir()
    kubernetes.is_with_spark = True
    # YARN and Kubernetes would replace parts of this text in a command line.
    where = "part IN ('a', '$(HOME) {{a}} `b` $$')"
    report = optimize(
        make_context(try_number=1),
        table,
        where=where,
        spark_conf={**_IMAGE, "spark.kubernetes.file.upload.path": uploads.as_uri()},
    )
    assert (report["status"], report["version"], report["engine"]) == ("committed", 2, "spark")
    assert len(DeltaTable(str(table)).file_uris()) == 3
    (pod,) = kubernetes.pods()
    secret = next(
        variable["value"]
        for variable in pod["spec"]["containers"][0]["env"]
        if variable["name"].startswith("DELTA_MAINTENANCE")
    )
    assert secret not in json.dumps(pod["spec"]["containers"][0]["args"])


def test_spark_s_own_client_for_yarn_understands_its_arguments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends where it would speak with YARN, since nothing says where that is."""
    for name in ("HADOOP_CONF_DIR", "YARN_CONF_DIR"):
        monkeypatch.delenv(name, raising=False)
    with running_yarn(tmp_path) as yarn:
        extra = {"yarn_resourcemanager_webapp_address": yarn.address}
        monkeypatch.setenv(
            "AIRFLOW_CONN_LAKE", json.dumps({"conn_type": "spark", "host": "yarn", "extra": extra})
        )
        request = DriverRequest("n", "0" * 32, __file__, ["--spec", "base64:e30="], {"KEY": "secret"}, {})
        with pytest.raises(JobCannotStart, match="either HADOOP_CONF_DIR or YARN_CONF_DIR must be set"):
            YarnResourceManager("lake").start(request)


def test_an_optimize_on_yarn_commits_and_the_next_try_takes_its_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make_context: MakeContext
) -> None:
    table = tmp_path / "events"
    write_days(table, files=4)
    (tmp_path / "yarn").mkdir()
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    with running_yarn(tmp_path / "yarn") as yarn:
        yarn.is_with_spark = True
        extra = {"deploy-mode": "cluster", "yarn_resourcemanager_webapp_address": yarn.address}
        value = {"conn_type": "spark", "host": "yarn", "extra": extra}
        monkeypatch.setenv("AIRFLOW_CONN_LAKE", json.dumps(value))
        arguments = {
            "spark_binary": yarn.spark_submit,
            "spark_conf": {"spark.pyspark.python": sys.executable},
        }
        first = make_context(try_number=1)
        report = optimize(first, table, **arguments)
        assert (report["status"], report["version"]) == ("committed", 4)
        key = yarn.submissions[0]["properties"]["spark.yarn.appMasterEnv.DELTA_MAINTENANCE_RUN_KEY"]
        assert command_lines_with(key) == []
        again = optimize(make_context(first["task_state_store"], try_number=2), table, **arguments)
    assert again["version"] == 4
    assert len(yarn.applications) == 1
