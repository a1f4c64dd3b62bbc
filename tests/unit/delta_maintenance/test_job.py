from __future__ import annotations

from importlib import import_module
from pathlib import Path

from delta_maintenance.contract import JobSpec
from delta_maintenance.job import RUN, JobSite, run_job
from delta_maintenance.operations import OPERATIONS
from delta_maintenance.progress import SilentProgress


def test_every_operation_is_carried_out_and_no_other() -> None:
    assert set(RUN) == set(OPERATIONS)
    assert all(callable(import_module(module).run) for module in RUN.values())


def test_an_unknown_operation_is_refused_by_a_report(tmp_path: Path) -> None:
    report = run_job(JobSpec("vacuum!", str(tmp_path), "run"), JobSite(), SilentProgress())
    assert report.error is not None
    assert (report.error.type, report.error.kind, report.exit_code) == ("ContractError", "refused", 2)
    assert "is not one of optimize, purge, checkpoint, vacuum" in report.error.message
