"""Spark tries a task again whose first attempt died or failed: the rows are exact, and no file is there twice."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable
from tests.support.environment.delta_spark import stop_spark
from tests.support.runs.maintenance_runs import keys, run
from tests.support.runs.shared_bins import share_every_bin
from tests.support.tables.small_tables import write_days

from delta_log import Table
from delta_maintenance.engine.spark.session import spark_session
from delta_maintenance.engine.spark.spark_engine import SparkEngine

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.spark]

BINS = 2

#: In every Python worker: the first attempt of a task meets the fault that the file names, and notes that.
FAULTS = """
import os
from contextlib import contextmanager
from pathlib import Path

def make_faulty():
    from pyspark import TaskContext
    from delta_log.errors import StorageError
    from delta_log.storage.local.local_storage import LocalStorage
    order, notes = Path(os.environ["FAULT"]), Path(os.environ["FAULTS_MET"])

    def meet(moment):
        context = TaskContext.get()
        if context is None or context.attemptNumber() or order.read_text() not in (f"{moment} dies", f"{moment} fails"):
            return
        with notes.open("a") as file:
            file.write(f"{moment} {context.partitionId()}\\n")
        if order.read_text() == f"{moment} dies":
            os._exit(1)
        raise StorageError(f"the store failed: {moment}", "")

    open_write, put_if_absent = LocalStorage.open_write, LocalStorage.put_if_absent

    @contextmanager
    def opening(self, key):
        meet("before the file")
        with open_write(self, key) as file:
            yield file
            meet("within the file")

    def putting(self, key, data):
        meet("before the manifest")
        created = put_if_absent(self, key, data)
        meet("behind the manifest")
        return created

    LocalStorage.open_write, LocalStorage.put_if_absent = opening, putting

# Workers are forked from a process that must not have threads, and Arrow has.
os.register_at_fork(after_in_child=make_faulty)
"""


@pytest.fixture(scope="module")
def faults(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("faults")
    (directory / "sitecustomize.py").write_text(FAULTS)
    return directory


@pytest.fixture(scope="module")
def retrying_spark(faults: Path, no_other_spark: None) -> Iterator[SparkSession]:
    """An embedded session that gives each task three attempts, with workers that can be made to fail."""
    with pytest.MonkeyPatch.context() as patch:
        # The session overwrites it, for its workers, by what this process has.
        patch.setenv("PYTHONPATH", os.environ.get("PYTHONPATH", ""))
        patch.syspath_prepend(faults)
        patch.setenv("FAULT", str(faults / "order"))
        patch.setenv("FAULTS_MET", str(faults / "met"))
        session = spark_session("local[2,3]", "tests")
        yield session
        stop_spark(session)


@pytest.fixture
def order(faults: Path) -> Callable[[str], None]:
    def order(fault: str) -> None:
        (faults / "order").write_text(fault)
        (faults / "met").write_text("")

    return order


@pytest.mark.parametrize(
    ("fault", "left_by_each"),
    [
        ("before the file dies", 0),
        ("before the file fails", 0),
        # A dead worker removes nothing, and no other process knows the file.
        ("within the file dies", 1),
        ("within the file fails", 0),
        ("before the manifest dies", 1),
        ("before the manifest fails", 0),
        ("behind the manifest dies", 0),
        ("behind the manifest fails", 0),
    ],
)
def test_a_task_that_is_tried_again_leaves_nothing_twice(
    retrying_spark: SparkSession,
    faults: Path,
    order: Callable[[str], None],
    tmp_path: Path,
    fault: str,
    left_by_each: int,
) -> None:
    rows = write_days(tmp_path, days=BINS)
    before = set(keys(tmp_path))
    order(fault)
    report = run(tmp_path, engine=SparkEngine(lambda: retrying_spark))
    assert (report.status, report.dropped_bins, report.broken_bins) == ("committed", 0, 0)
    assert len((faults / "met").read_text().splitlines()) == BINS
    assert Table(str(tmp_path)).snapshot().to_arrow().sort_by("id").equals(rows)
    files = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.parquet")}
    live = set(keys(tmp_path))
    left = files - before - live
    assert (len(live), live & before, live <= files) == (BINS, set(), True)
    assert len(left) == BINS * left_by_each
    found = DeltaTable(str(tmp_path)).vacuum(0, dry_run=True, enforce_retention_duration=False, full=True)
    assert left <= set(found)


@pytest.mark.parametrize(
    ("fault", "left_by_each"),
    [
        ("before the file dies", 0),
        # A dead worker removes nothing, and no other process knows the file.
        ("within the file dies", 1),
        ("within the file fails", 0),
    ],
)
def test_tasks_that_share_a_bin_are_tried_again_and_leave_nothing_twice(
    retrying_spark: SparkSession,
    faults: Path,
    order: Callable[[str], None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    fault: str,
    left_by_each: int,
) -> None:
    share_every_bin(monkeypatch)
    rows = write_days(tmp_path, files=6, rows=200, days=1)
    before = set(keys(tmp_path))
    size = Table(str(tmp_path)).snapshot().size_bytes // 3
    order(fault)
    report = run(
        tmp_path,
        engine=SparkEngine(lambda: retrying_spark),
        layout="kd",
        by=["text", "id"],
        target_size_bytes=size,
        verify="full",
    )
    assert (report.status, report.dropped_bins, report.broken_bins) == ("committed", 0, 0)
    assert Table(str(tmp_path)).snapshot().to_arrow().sort_by("id").equals(rows)
    live = set(keys(tmp_path))
    assert len((faults / "met").read_text().splitlines()) == len(live) == report.metrics["numAddedFiles"] > 1
    files = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.parquet")}
    assert len(files - before - live) == len(live) * left_by_each
