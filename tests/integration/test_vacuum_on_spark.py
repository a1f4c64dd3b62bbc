"""VACUUM with Spark's executors listing: the plan is the one that this process makes by itself, and so is the deletion."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from tests.support.environment.corpus import Corpus
from tests.support.runs.vacuum_runs import files_below
from tests.support.servers.s3 import S3Server
from tests.support.tables.small_tables import write_days
from tests.support.tables.vacuumable_tables import age

from delta_log import Table
from delta_log.storage.storage import KeySpan
from delta_maintenance.contract import JobReport, JobSpec
from delta_maintenance.engine.spark.listing import SparkListing
from delta_maintenance.errors import TaskFailed
from delta_maintenance.job import JobSite, run_job
from delta_maintenance.listing import distributed
from delta_maintenance.listing.hidden_names import HiddenNames
from delta_maintenance.listing.part import ListingPart
from delta_maintenance.listing.sorted_keys import SortedKeys
from delta_maintenance.progress import SilentProgress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
#: One of everything that may lie below a table.
STRAY = (
    "orphan",
    "a/b/orphan",
    "p=x/_hidden/x",
    "p=x/.y.crc",
    "_private/x",
    "_change_data/p=x/cdc-1.parquet",
    "full/.hidden",
)


def vacuum(
    uri: str,
    engine: str,
    storage_options: dict[str, Any] | None = None,
    *,
    dry_run: bool = False,
    **options: Any,
) -> JobReport:
    spec = JobSpec(
        "vacuum",
        uri,
        "test-run",
        {"retain_hours": 0, "retention_check": False, **options},
        engine=engine,
        parallelism=2,
        dry_run=dry_run,
    )
    site = JobSite(storage_options or {}, "local[2]", can_use_spark=True)
    return run_job(spec, site, SilentProgress())


def done(report: JobReport) -> JobReport:
    assert report.error is None, report.error
    return report


def planned(
    uri: str, engine: str, scratch: Path, storage_options: dict[str, Any] | None = None, **options: Any
) -> tuple[dict[str, Any], str]:
    """A plan's summary, and every line of it."""
    output = scratch / f"{engine}-{time.monotonic_ns()}.jsonl"
    report = done(vacuum(uri, engine, storage_options, dry_run=True, output=str(output), **options))
    assert report.engine == engine
    plan = dict(report.plan or {})
    plan.pop("cutoffMs")  # of another moment
    return plan, output.read_text()


def same_plan(
    uri: str, scratch: Path, storage_options: dict[str, Any] | None = None, **options: Any
) -> dict[str, Any]:
    here = planned(uri, "local", scratch, storage_options, **options)
    there = planned(uri, "spark", scratch, storage_options, **options)
    assert there == here
    return here[0]


def stray(table: Path) -> None:
    for name in STRAY:
        (table / name).parent.mkdir(parents=True, exist_ok=True)
        (table / name).write_bytes(b"old")
    (table / "empty" / "er").mkdir(parents=True)
    (table / "link").symlink_to(table / "a")


def test_a_directory_of_partitions_is_planned_and_vacuumed_the_same(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(distributed, "_LEAST_KEYS", 200)
    table = tmp_path / "table"
    rows = write_days(table, files=12, days=4)
    DeltaTable(str(table)).optimize.compact()
    stray(table)
    age(table)
    plan = same_plan(str(table), tmp_path)
    assert plan["reasons"].keys() == {"orphan", "expired_tombstone", "old_change_data"}
    assert plan["numDirectoriesToDelete"] > 1
    report = done(vacuum(str(table), "spark", require_proof=True))
    assert report.plan is not None
    assert (report.engine, report.plan["digest"]) == ("spark", plan["digest"])
    assert (report.plan["proof"], report.plan["confirmedBy"]) == ("commits", "listing")
    assert report.metrics["numDeletedFiles"] == plan["numFilesToDelete"]
    live = set(Table(str(table)).snapshot().files(["key"]).column("key").to_pylist())
    kept = {name for name in STRAY if "/_h" in name or "/." in name or name.startswith("_private")}
    assert files_below(table) == live | kept | {"link"}
    assert Table(str(table)).snapshot().to_arrow().sort_by("id").equals(rows)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "golden-data-reader-escaped-chars",
        "kernel-data-reader-partition-values-column-mapping-name",
        "krs-cdf-column-mapping-name-mode-3-7",
        "spark-partitioned-table-with-dv-large",
    ],
)
def test_tables_of_other_writers_are_planned_the_same(
    spark: SparkSession, tmp_path: Path, corpus: Corpus, name: str
) -> None:
    table = corpus.copy_of(name, tmp_path)
    age(table)
    same_plan(str(table), tmp_path)


def test_a_bucket_is_planned_and_vacuumed_the_same(
    spark: SparkSession,
    s3_server: S3Server,
    s3_bucket: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # More directories than one listing has lanes, so that they are listed in runs; and more than one part.
    monkeypatch.setattr(distributed, "_LEAST_KEYS", 1_000)
    write_days(tmp_path / "table", files=40, days=20, rows=2)
    DeltaTable(str(tmp_path / "table")).optimize.compact()
    uri, options = f"s3://{s3_bucket}/lake", s3_server.storage_options
    storage = Table(uri, options).storage
    for path in (path for path in (tmp_path / "table").rglob("*") if path.is_file()):
        storage.put(path.relative_to(tmp_path / "table").as_posix(), path.read_bytes())
    for name in STRAY:
        storage.put(name, b"old")
    time.sleep(1.1)  # times are told in whole seconds
    plan = same_plan(uri, tmp_path, options)
    assert plan["numFilesToDelete"] == 43
    report = done(vacuum(uri, "spark", options))
    assert report.metrics["numDeletedFiles"] == 43
    assert Table(uri, options).snapshot().to_arrow().num_rows == 80
    assert not any("minioadmin" in str(item) for item in spark.conf.getAll.items())


@pytest.mark.slow
def test_what_a_task_meets_keeps_its_name(spark: SparkSession, tmp_path: Path) -> None:
    keys = tmp_path / "keys.arrow"
    SortedKeys.write(keys, pa.chunked_array([], pa.string()))
    part = ListingPart(0, str(tmp_path / "nowhere"), (KeySpan(""),), HiddenNames(), wants_files=True)
    with pytest.raises(TaskFailed, match="There is no table at .*nowhere") as caught:
        list(SparkListing(spark, {}, None, "nonce", SilentProgress()).run([part], keys))
    error = caught.value.report
    assert (error.type, error.kind) == ("VacuumRefused", "refused")


@pytest.mark.slow
def test_machines_that_lack_a_library_are_named_before_anything_is_listed(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_days(tmp_path / "table")
    monkeypatch.setitem(sys.modules, "pyroaring", None)  # the driver cannot import it
    report = vacuum(str(tmp_path / "table"), "spark")
    assert report.error is not None
    assert (report.error.type, report.error.kind) == ("ClusterIncomplete", "refused")
    assert "driver lacks pyroaring" in report.error.message
    assert report.error.facts["missing"] == {"driver": ["pyroaring"]}
