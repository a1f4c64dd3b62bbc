"""Commits that are directories or empty files: nothing is lost, nothing is blocked for ever, and the message says what to do."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from tests.support.tables.small_tables import write_days

from delta_log import Table
from delta_log.errors import CommitFailed
from delta_log.log.file_names import checksum_key, commit_key
from delta_log.runtime import Runtime
from delta_log.upkeep.log_compaction import write_log_compaction
from delta_maintenance.contract import ErrorReport, JobReport, JobSpec
from delta_maintenance.job import JobSite, run_job
from delta_maintenance.progress import SilentProgress

NEWEST = 6
LATER_MS = 11 * 60_000


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Six files in six commits."""
    write_days(tmp_path / "table")
    return tmp_path / "table"


def job(table: Path, operation: str, *, later_ms: int = 0, **options: Any) -> JobReport:
    runtime = Runtime(now_ms=lambda: time.time_ns() // 1_000_000 + later_ms)
    spec = JobSpec(operation, str(table), "run", options, engine="local")
    return run_job(spec, JobSite(runtime=runtime), SilentProgress())


def failure(report: JobReport) -> ErrorReport:
    assert report.error is not None
    return report.error


def test_a_directory_in_the_place_of_the_next_commit_is_named_and_no_try_is_wasted(table: Path) -> None:
    (table / commit_key(NEWEST)).mkdir()
    error = failure(job(table, "optimize"))
    assert (error.type, error.retryable) == ("NotAFile", False)
    assert f"{commit_key(NEWEST)} is not a file" in (error.message or "")
    (table / commit_key(NEWEST)).rmdir()
    assert job(table, "optimize").status == "committed"


@pytest.mark.parametrize("name", ["_delta_log/_last_checkpoint", checksum_key(NEWEST - 1)])
def test_a_directory_in_the_place_of_a_file_that_is_only_advice_stops_nothing(table: Path, name: str) -> None:
    (table / name).mkdir()
    for operation in ("optimize", "checkpoint", "vacuum"):
        assert job(table, operation).error is None


@pytest.mark.parametrize("operation", ["optimize", "checkpoint"])
def test_an_empty_commit_counts_as_a_version_without_changes_once_no_writer_can_be_at_it(
    table: Path, operation: str
) -> None:
    rows = DeltaTable(str(table)).to_pyarrow_table().sort_by("id")
    (table / commit_key(NEWEST)).write_bytes(b"")
    snapshot = Table(str(table)).snapshot()
    assert (snapshot.version, snapshot.num_files) == (DeltaTable(str(table)).version(), 6)
    assert job(table, "vacuum").error is None
    error = failure(job(table, operation))
    assert (error.type, error.retryable) == ("CommitFailed", True)
    assert "empty file, which its writer may still be filling" in (error.message or "")
    assert job(table, operation, later_ms=LATER_MS).error is None
    assert DeltaTable(str(table)).to_pyarrow_table().sort_by("id") == rows
    write_deltalake(str(table), rows.slice(0, 1), mode="append", partition_by=["day"])
    assert pa.table(Table(str(table)).snapshot().to_arrow()).num_rows == rows.num_rows + 1


def test_an_empty_commit_between_others_changes_nothing(table: Path) -> None:
    (table / commit_key(NEWEST)).write_bytes(b"")
    (table / commit_key(NEWEST + 1)).write_text('{"commitInfo":{}}\n')
    assert [entry["version"] for entry in Table(str(table)).history(3)] == [NEWEST + 1, NEWEST, NEWEST - 1]
    assert job(table, "optimize").status == "committed"
    assert job(table, "checkpoint").status == "written"


def test_an_empty_commit_that_appears_while_a_rewrite_runs_is_not_passed_over(table: Path) -> None:
    class Writing(SilentProgress):
        def start(self, total_bins: int, total_bytes: int) -> None:
            (table / commit_key(NEWEST)).write_bytes(b"")

    spec = JobSpec("optimize", str(table), "run", {}, engine="local")
    error = failure(run_job(spec, JobSite(), Writing()))
    assert (error.type, error.retryable) == ("CommitFailed", True)
    assert not (table / commit_key(NEWEST + 1)).exists()


def test_no_log_compaction_holds_an_empty_commit_that_may_still_be_filled(table: Path) -> None:
    (table / commit_key(NEWEST)).write_bytes(b"")
    opened = Table(str(table))
    with pytest.raises(CommitFailed, match="empty file"):
        write_log_compaction(opened.storage, opened.snapshot(), 2, NEWEST)


def test_a_time_in_the_future_or_in_microseconds_does_not_keep_a_partition_hot(table: Path) -> None:
    now_ms = time.time_ns() // 1_000_000
    for version, stated in ((0, now_ms * 1000), (1, now_ms + 86_400_000)):
        commit = table / commit_key(version)
        lines = [json.loads(line) for line in commit.read_text().splitlines()]
        for line in lines:
            if "add" in line:
                line["add"]["modificationTime"] = stated
        commit.write_text("".join(json.dumps(line) + "\n" for line in lines))
    report = job(table, "optimize", later_ms=LATER_MS, quiet_minutes=5, hot_partitions="wait")
    assert report.error is None
    assert report.metrics["numRemovedFiles"] == 6
