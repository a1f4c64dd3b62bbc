from __future__ import annotations

from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from delta_log import Table
from delta_log.runtime import Runtime
from delta_maintenance.contract import JobReport, JobSpec
from delta_maintenance.job import RUN, JobSite, _with_reading, run_job
from delta_maintenance.job_context import JobContext
from delta_maintenance.operations import OPERATIONS
from delta_maintenance.progress import SilentProgress
from delta_maintenance.rewrite.manifest.manifest_file import RunKey


def test_every_operation_is_carried_out_and_no_other() -> None:
    assert set(RUN) == set(OPERATIONS)
    assert all(callable(import_module(module).run) for module in RUN.values())


def test_an_unknown_operation_is_refused_by_a_report(tmp_path: Path) -> None:
    report = run_job(JobSpec("vacuum!", str(tmp_path), "run"), JobSite(), SilentProgress())
    assert report.error is not None
    assert (report.error.type, report.error.kind, report.exit_code) == ("ContractError", "refused", 2)
    assert "is not one of optimize, purge, checkpoint, vacuum" in report.error.message


def test_a_run_that_has_ended_stays_so_where_its_reading_fails(tmp_path: Path) -> None:
    """Whatever fails after a commit, a report that calls it failed would have the work done again."""
    heard: list[str] = []
    progress: Any = SimpleNamespace(message=heard.append)
    runtime, snapshot = Runtime(), cast("Any", object())
    engines, run_key = cast("Any", None), RunKey("5e" * 32)
    context = JobContext(Table(str(tmp_path)), progress, runtime, engines, run_key, 0)
    context.saw(snapshot)
    report = JobReport("optimize", str(tmp_path), "committed", version=7)
    assert _with_reading(report, context) == report
    assert "was not read after the run" in heard[0]
