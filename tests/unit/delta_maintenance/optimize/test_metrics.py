from __future__ import annotations

from pathlib import Path

from tests.support.tables.small_tables import write_days

from delta_log import Table
from delta_maintenance.contract import MAX_PARTITIONS, JobReport, JobSpec
from delta_maintenance.job import JobSite, run_job
from delta_maintenance.progress import SilentProgress


def optimize(table: Path) -> JobReport:
    return run_job(JobSpec("optimize", str(table), "run", engine="local"), JobSite(), SilentProgress())


def test_a_rewrite_tells_its_partitions_and_how_long_its_phases_took(tmp_path: Path) -> None:
    table = tmp_path / "table"
    write_days(table, files=6, rows=10, days=2)
    sizes = Table(str(table)).snapshot().files(["size"]).column("size").to_pylist()
    report = optimize(table)
    partitions = report.partitions or ()
    assert {one["partition"]["day"] for one in partitions} == {"2024-01-01", "2024-01-02"}
    assert [(one["files_before"], one["files_after"]) for one in partitions] == [(3, 1), (3, 1)]
    assert sum(one["bytes_before"] for one in partitions) == sum(sizes)
    assert len(partitions) <= MAX_PARTITIONS
    phases = report.phases or {}
    assert set(phases) == {"plan_ms", "rewrite_ms", "wait_ms", "commit_ms"}
    assert report.started_ms is not None
    assert report.finished_ms is not None
    assert 0 < sum(phases.values()) <= report.finished_ms - report.started_ms
    assert JobReport.from_json(report.to_json()).partitions == list(partitions)
    assert optimize(table).partitions is None, "nothing to do"
