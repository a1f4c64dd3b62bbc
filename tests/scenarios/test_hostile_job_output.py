"""Real jobs on a table whose partition values are written for the one who reads the job's output."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
from tests.support.tables.hostile_text import VALUES, is_harmless, write_hostile_table

from airflow_delta.runners.job_output import JobProgress
from airflow_delta.runners.local import LocalJobRunner
from delta_maintenance.contract import JobReport, JobSpec


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return write_hostile_table(tmp_path / "events", ("good", *VALUES))


def run(table: Path, told: list[JobProgress], **more: Any) -> JobReport:
    runner = LocalJobRunner({}, logging.getLogger("job"))
    return runner.run(JobSpec("optimize", str(table), "run-1", engine="local", **more), told.append)


def test_partition_values_neither_hide_nor_forge_a_report(table: Path) -> None:
    report = run(table, [], dry_run=True)
    assert (report.status, report.table) == ("planned", str(table))
    assert report.plan is not None
    parts = {partition["partitionValues"]["part"] for partition in report.plan["partitions"]}
    assert parts == {"good", *VALUES}


def test_what_a_job_says_of_hostile_paths_reaches_the_log_without_controls(
    table: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for value in VALUES:
        (table / f"part={value}" / "1.parquet").write_bytes(b"no Parquet")
    told: list[JobProgress] = []
    with caplog.at_level("INFO", logger="job"):
        report = run(table, told, options={"on_broken_source": "skip"})
    assert (report.status, report.broken_bins) == ("committed", len(VALUES))
    shown = [*map(str, told), *(record.getMessage() for record in caplog.records)]
    messages = [broken["message"] for broken in report.broken or ()]
    assert any("forged line" in text for text in shown), "the path is told"
    assert any("]0;title" in text for text in messages), "the path is told"
    assert [text for text in [*shown, *messages] if not is_harmless(text) or "\n" in text] == []
    assert json.dumps(report.to_dict()).isprintable()
