"""Runs VACUUM in a test, and lists what it left of a directory."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from delta_log.runtime import Runtime
from delta_maintenance.contract import JobReport, JobSpec
from delta_maintenance.job import JobSite, run_job
from delta_maintenance.progress import SilentProgress

DAY_SECONDS = 86_400


def run_vacuum(
    table: Path | str, *, dry_run: bool = False, runtime: Runtime | None = None, **options: Any
) -> JobReport:
    """Runs VACUUM and returns the job's report; a refusal or failure is its ``error``."""
    spec = JobSpec("vacuum", str(table), "test-run", options, dry_run=dry_run)
    return run_job(spec, JobSite(runtime=runtime or Runtime()), SilentProgress())


def done(report: JobReport) -> JobReport:
    """Runs VACUUM, which must not fail, and returns the job's report."""
    assert report.error is None, report.error
    return report


def age(table: Path, days: float = 30) -> None:
    """Sets the modification times of everything below a directory, its log included, into the past."""
    for path in [table, *table.rglob("*")]:
        if not path.is_symlink():
            made = path.stat().st_mtime - days * DAY_SECONDS
            os.utime(path, (made, made))


def files_below(table: Path) -> set[str]:
    """Returns the keys of all files outside the log."""
    found = (path for path in table.rglob("*") if path.is_symlink() or path.is_file())
    return {
        str(path.relative_to(table))
        for path in found
        if "_delta_log" not in path.relative_to(table).parts[:1]
    }
