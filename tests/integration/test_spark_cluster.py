"""The Spark engine on executors that are processes of their own, with another release of the library installed."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.support.environment.delta_spark import stop_spark
from tests.support.runs.maintenance_runs import RUN_KEY
from tests.support.tables.small_tables import write_days

import delta_maintenance
from delta_log import Table
from delta_maintenance.engine.spark.cluster_check import check_cluster
from delta_maintenance.engine.spark.spark_engine import SparkEngine
from delta_maintenance.optimize.options import OptimizeOptions
from delta_maintenance.optimize.plan.planner import plan_optimize
from delta_maintenance.optimize.tasks import tasks_of
from delta_maintenance.process.bundle import PACKAGES
from delta_maintenance.progress import SilentProgress
from delta_maintenance.rewrite.task import BinManifest, RewriteTask

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, no_other_spark: None) -> Iterator[SparkSession]:
    """A machine of its own, as far as one can show that here; what it has installed fails when it is used."""
    from pyspark.sql import SparkSession

    older = tmp_path_factory.mktemp("older")
    for package in PACKAGES:
        source = Path(delta_maintenance.__file__).parents[1] / package
        shutil.copytree(source, older / package, ignore=shutil.ignore_patterns("__pycache__"))
    (older / "delta_maintenance" / "engine" / "spark" / "rewriting_task.py").write_text(
        'raise RuntimeError("older")\n'
    )
    with pytest.MonkeyPatch.context() as patch:
        for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
            patch.setenv(name, sys.executable)
        patch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        patch.delenv("PYTHONPATH", raising=False)
        session = (
            SparkSession.builder.master("local-cluster[1,1,1024]")
            .appName("airflow-provider-delta tests")
            .config("spark.executorEnv.PYTHONPATH", str(older))
            .config("spark.executor.memory", "512m")
            .config("spark.ui.enabled", "false")
            .getOrCreate()
        )
        yield session
        stop_spark(session)


def tasks(table: Path) -> Sequence[RewriteTask]:
    opened = Table(str(table))
    snapshot = opened.snapshot()
    return tasks_of(plan_optimize(snapshot, OptimizeOptions(), 0), snapshot, "run", opened.uri)


def end_executors(cluster: SparkSession) -> int:
    """As a machine ends that is lost; how many there were."""
    application, ended = cluster.sparkContext.applicationId, 0
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_text()
        except OSError:  # it has just ended by itself
            continue
        if "CoarseGrainedExecutorBackend" in line and application in line:
            os.kill(int(path.parent.name), signal.SIGKILL)
            ended += 1
    return ended


def test_machines_with_another_release_use_ours_and_so_does_one_that_joins_later(
    cluster: SparkSession, tmp_path: Path
) -> None:
    from pyspark.sql import functions

    versions = check_cluster(cluster, functions.udf)
    assert len(versions.found) > 1
    assert not versions.has_library
    for name in ("first", "second"):
        write_days(tmp_path / name, days=1)
        given = tasks(tmp_path / name)
        results = list(SparkEngine(lambda: cluster).run(given, SilentProgress(), RUN_KEY))
        assert all(isinstance(result, BinManifest) for result in results), results
        assert [result.bin_id for result in results] == [task.bin_id for task in given]
        if name == "first":
            assert end_executors(cluster) == 1
