"""Running VACUUM in a test, and reading what it did."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from delta_log import Table
from delta_log.log.log_segment import find_log_segment
from delta_log.runtime import Runtime
from delta_log.snapshot.snapshot import Snapshot
from delta_log.storage.opening import open_storage
from delta_log.storage.storage import Storage
from delta_maintenance.contract import JobReport, JobSpec
from delta_maintenance.job import JobSite, run_job
from delta_maintenance.listing.distributed import DistributedListing
from delta_maintenance.progress import SilentProgress
from delta_maintenance.vacuum.candidates import PlannedVacuum, find_candidates
from delta_maintenance.vacuum.execution import VacuumOutcome, execute_plan
from delta_maintenance.vacuum.options import VacuumOptions
from tests.support.tables.vacuum_histories import NOW_MS, RUNTIME

#: Options that delete everything that the latest version does not need.
NO_RETENTION: dict[str, Any] = {"retain_hours": 0, "retention_check": False}


def run_vacuum(
    table: Path | str, *, dry_run: bool = False, runtime: Runtime | None = None, **options: Any
) -> JobReport:
    """Run the job, and return its report; a refusal or failure is its ``error``."""
    spec = JobSpec("vacuum", str(table), "test-run", options, dry_run=dry_run)
    return run_job(spec, JobSite(runtime=runtime or Runtime()), SilentProgress())


def done(report: JobReport) -> JobReport:
    """Check that a run did not fail, and return its report."""
    assert report.error is None, report.error
    return report


def refusal(report: JobReport) -> str:
    """Check that a run was refused, and return the message."""
    assert report.error is not None
    assert report.error.kind == "refused", report.error
    return str(report.error.message)


def files_below(table: Path) -> set[str]:
    """Everything below a directory that is no directory, except the log."""
    found = (path for path in table.rglob("*") if path.is_symlink() or path.is_file())
    return {
        str(path.relative_to(table))
        for path in found
        if "_delta_log" not in path.relative_to(table).parts[:1]
    }


def contents(directory: Path) -> dict[str, bytes]:
    """The content of every file below a directory."""
    return {
        str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()
    }


def live_files(table: Path) -> set[str]:
    """Keys of the live files of the latest version."""
    return set(Table(str(table)).snapshot().files(["key"]).column("key").to_pylist())


def plan_on(
    storage: Storage, now_ms: int = NOW_MS, distributed: DistributedListing | None = None, **options: Any
) -> PlannedVacuum:
    """Plan a vacuum of a table in any storage."""
    wanted = VacuumOptions(**options)
    snapshot = Snapshot(storage, find_log_segment(storage))
    return find_candidates(storage, open_storage, snapshot, wanted, now_ms, SilentProgress(), distributed)


def vacuum_on(storage: Storage, now_ms: int = NOW_MS, **options: Any) -> VacuumOutcome:
    """Plan and execute a vacuum of a table in any storage."""
    return execute_plan(storage, plan_on(storage, now_ms, **options), SilentProgress(), RUNTIME, {})
