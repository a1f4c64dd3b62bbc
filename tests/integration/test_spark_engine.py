"""The Spark engine on a real Spark, in this process and through spark-submit."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support.checks.added_files import check_added_files
from tests.support.runs.maintenance_runs import RUN_KEY, run
from tests.support.runs.shared_bins import share_every_bin
from tests.support.tables.planted_manifests import forged, plant
from tests.support.tables.small_tables import write_days

import delta_maintenance
from delta_log import Table
from delta_maintenance.contract import JobReport, JobSpec
from delta_maintenance.engine.spark.cluster_check import check_cluster
from delta_maintenance.engine.spark.spark_engine import SparkEngine
from delta_maintenance.errors import ClusterIncomplete, TaskFailed
from delta_maintenance.job_interface import REPORT_PREFIX
from delta_maintenance.optimize.options import OptimizeOptions
from delta_maintenance.optimize.plan.planner import plan_optimize
from delta_maintenance.optimize.tasks import tasks_of
from delta_maintenance.process.bundle import build_bundle
from delta_maintenance.progress import SilentProgress
from delta_maintenance.rewrite.task import BinManifest, RewriteTask

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def tasks(table: Path, rewrite: str = "auto") -> Sequence[RewriteTask]:
    opened = Table(str(table))
    snapshot = opened.snapshot()
    plan = plan_optimize(snapshot, OptimizeOptions(rewrite=rewrite), 0)
    return tasks_of(plan, snapshot, "run", opened.uri)


class Watching(SilentProgress):
    def __init__(self) -> None:
        self.done: list[str] = []

    def bin_done(self, bin_id: str, size_bytes: int) -> None:
        self.done.append(bin_id)


@pytest.mark.parametrize("rewrite", ["auto", "copy"])
def test_each_bin_comes_back_once_with_its_manifest(
    spark: SparkSession, tmp_path: Path, rewrite: str
) -> None:
    write_days(tmp_path, files=10, rows=20, days=5)
    given, watching = tasks(tmp_path, rewrite), Watching()
    results = list(SparkEngine(lambda: spark).run(given, watching, RUN_KEY))
    manifests = [result for result in results if isinstance(result, BinManifest)]
    assert len(manifests) == len(results)
    expected = sorted(task.bin_id for task in given)
    assert sorted(m.bin_id for m in manifests) == sorted(watching.done) == expected
    assert [m.rows_out for m in manifests] == [40] * 5
    assert all((m.bytes_copied > 0) == (rewrite == "copy") for m in manifests)
    assert all(
        (tmp_path / output.key).stat().st_size == output.size_bytes for m in manifests for output in m.outputs
    )


def test_workers_of_our_own_session_go_without_pandas(spark: SparkSession, tmp_path: Path) -> None:
    write_days(tmp_path)

    def look(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yields the first row of a worker that has rewritten and has pandas, the second of one that has rewritten without it."""
        import sys

        for batch in batches:
            # A conversion of a list to Arrow would load pandas.
            if "delta_maintenance.rewrite.bin" in sys.modules:
                yield batch.slice(0 if "pandas" in sys.modules else 1, 1)

    def rewrite_and_look() -> set[int]:
        list(SparkEngine(lambda: spark).run(tasks(tmp_path), SilentProgress(), RUN_KEY))
        return {row.id for row in spark.range(0, 2, 1, 1).mapInArrow(look, "id long").collect()}

    # Spark gives a task one of the workers that are idle, or a new one.
    found = next(filter(None, (rewrite_and_look() for _ in range(20))))
    assert found == {1}


def test_bins_that_an_earlier_try_finished_are_taken_over(spark: SparkSession, tmp_path: Path) -> None:
    write_days(tmp_path)
    engine = SparkEngine(lambda: spark, parallelism=1)
    first = list(engine.run(tasks(tmp_path), SilentProgress(), RUN_KEY))
    files = sorted(tmp_path.rglob("*.parquet"))
    second = list(engine.run(tasks(tmp_path), SilentProgress(), RUN_KEY))
    assert sorted(m.bin_id for m in second) == sorted(m.bin_id for m in first)
    assert sorted(tmp_path.rglob("*.parquet")) == files


def test_the_error_of_a_task_keeps_its_name_and_its_facts(spark: SparkSession, tmp_path: Path) -> None:
    write_days(tmp_path)
    next(tmp_path.glob("day=2024-01-02/*.parquet")).write_bytes(b"no parquet")
    results = list(SparkEngine(lambda: spark).run(tasks(tmp_path), SilentProgress(), RUN_KEY))
    (failure,) = (result for result in results if isinstance(result, TaskFailed))
    assert len(results) == 2, "the other bin is done"
    error = failure.report
    assert (error.type, error.kind, error.retryable) == ("CorruptLog", "refused", False)
    assert error.facts["path"].startswith("day=2024-01-02/")


def test_an_error_that_spark_may_retry_keeps_its_name_too(spark: SparkSession, tmp_path: Path) -> None:
    write_days(tmp_path)
    # A directory in the way: the store fails, and for all that anybody knows it will recover.
    (tmp_path / "_maintenance").write_text("in the way")
    with pytest.raises(TaskFailed) as caught:
        list(SparkEngine(lambda: spark).run(tasks(tmp_path), SilentProgress(), RUN_KEY))
    assert caught.value.report.kind == "failed"
    assert caught.value.retryable


class Listening(SilentProgress):
    def __init__(self) -> None:
        self.messages: list[str] = []

    def message(self, text: str) -> None:
        self.messages.append(text)


@pytest.fixture
def every_layout_is_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    share_every_bin(monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("parallelism", [None, 2])
@pytest.mark.usefixtures("every_layout_is_shared")
def test_several_tasks_share_a_bin_with_a_layout(
    spark: SparkSession, tmp_path: Path, parallelism: int | None
) -> None:
    rows = write_days(tmp_path, files=6, rows=300, days=1)
    setting = spark.conf.get("spark.sql.execution.arrow.maxRecordsPerBatch")
    size, listening = Table(str(tmp_path)).snapshot().size_bytes // 4, Listening()
    report = run(
        tmp_path,
        engine=SparkEngine(lambda: spark, parallelism=parallelism),
        progress=listening,
        layout="hilbert",
        by=["text", "id"],
        target_size_bytes=size,
        verify="full",
        remap=True,
    )
    assert any("tasks read it, and 4 tasks write the new files" in text for text in listening.messages)
    assert (report.status, report.metrics["numAddedFiles"]) == ("committed", 4)
    assert Table(str(tmp_path)).snapshot().to_arrow().sort_by("id").equals(rows)
    check_added_files(tmp_path, report.version or 0)
    assert spark.conf.get("spark.sql.execution.arrow.maxRecordsPerBatch") == setting
    assert not list(tmp_path.rglob("*.rows"))


@pytest.mark.slow
@pytest.mark.usefixtures("every_layout_is_shared")
def test_a_broken_source_of_a_shared_bin_is_told_and_nothing_is_left(
    spark: SparkSession, tmp_path: Path
) -> None:
    write_days(tmp_path, files=6, rows=300, days=1)
    broken = max(tmp_path.rglob("*.parquet"))
    broken.write_bytes(b"no parquet")
    before = sorted(tmp_path.rglob("*.parquet"))
    with pytest.raises(TaskFailed) as caught:
        run(tmp_path, engine=SparkEngine(lambda: spark), layout="kd", by=["id"], target_size_bytes=3000)
    error = caught.value.report
    assert (error.type, error.kind) == ("CorruptLog", "refused")
    assert broken.name in error.facts["path"]
    assert sorted(tmp_path.rglob("*.parquet")) == before


def test_the_check_tells_versions(spark: SparkSession) -> None:
    from pyspark.sql import functions

    versions = check_cluster(spark, functions.udf)
    assert "pyarrow" in versions.found["driver"]
    assert versions.has_library


def test_the_check_names_what_executors_lack(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    from pyspark.sql import functions

    # As for a later session whose workers have another Python, so that they are asked.
    monkeypatch.setenv("PYSPARK_PYTHON", "/usr/bin/another-python")
    with pytest.raises(
        ClusterIncomplete, match=r"executor .* lacks no_such_library \(it has python 3"
    ) as caught:
        check_cluster(spark, functions.udf, ("numpy", "no_such_library"))
    assert {tuple(names) for names in caught.value.missing.values()} == {("no_such_library",)}
    assert len(caught.value.missing) == 2


def test_a_bin_that_a_planted_manifest_claims_done_is_done_all_the_same(
    spark: SparkSession, tmp_path: Path
) -> None:
    rows = write_days(tmp_path)
    given = list(tasks(tmp_path))
    for task in given:
        file = tmp_path / f"day={task.partition_values['day']}" / "forged.parquet"
        pq.write_table(rows.slice(0, 1).drop_columns(["day"]), file)
        key = file.relative_to(tmp_path).as_posix()
        plant(tmp_path, forged(task, path=key, key=key, size_bytes=file.stat().st_size))
    watching = Watching()
    results = list(SparkEngine(lambda: spark).run(given, watching, RUN_KEY))
    assert sorted(watching.done) == sorted(task.bin_id for task in given)
    manifests = [result for result in results if isinstance(result, BinManifest)]
    assert sum(manifest.rows_out for manifest in manifests) == rows.num_rows
    assert not any("forged" in output.key for manifest in manifests for output in manifest.outputs)


@pytest.mark.slow
def test_storage_options_and_the_runs_key_are_in_no_configuration(
    spark: SparkSession, tmp_path: Path
) -> None:
    write_days(tmp_path)
    engine = SparkEngine(lambda: spark, {"key": "hunter2"})
    assert len(list(engine.run(tasks(tmp_path), SilentProgress(), RUN_KEY))) == 2
    for secret in ("hunter2", RUN_KEY.text):
        assert not any(secret in str(item) for item in spark.conf.getAll.items())


def submit(
    table: Path, bundle: Path, **environment: str
) -> tuple[subprocess.CompletedProcess[str], JobReport]:
    program = Path(delta_maintenance.__file__).parent / "entrypoint" / "run_job.py"
    result = subprocess.run(
        [
            str(Path(sys.executable).with_name("spark-submit")),
            *("--master", "local[2]", "--conf", "spark.ui.enabled=false"),
            *("--conf", f"spark.pyspark.python={sys.executable}"),
            *("--conf", f"spark.pyspark.driver.python={sys.executable}"),
            *("--py-files", str(bundle), str(program), "--spec"),
            JobSpec("optimize", str(table), "run-1", engine="spark").to_json(),
        ],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **environment},
    )
    (report,) = [line for line in result.stdout.splitlines() if line.startswith(REPORT_PREFIX)]
    return result, JobReport.from_json(report.removeprefix(REPORT_PREFIX))


def test_spark_submit_runs_the_job_from_the_bundle_alone(tmp_path: Path) -> None:
    rows = write_days(tmp_path / "t")
    alone = tmp_path / "alone"
    alone.mkdir()
    environment: dict[str, Any] = {"PYTHONPATH": "", "SPARK_LOCAL_IP": "127.0.0.1"}
    result, report = submit(tmp_path / "t", build_bundle(alone), **environment)
    assert report.error is None, json.dumps(report.to_dict())
    assert (result.returncode, report.status, report.engine) == (0, "committed", "spark")
    assert report.spark is not None
    assert (report.spark["application_id"] or "").startswith("local-")
    assert '"spark": {"application_id": "local-' in result.stdout, (
        "the caller learns of it while the job runs"
    )
    assert Table(str(tmp_path / "t")).snapshot().to_arrow().sort_by("id").equals(rows)
