"""The report of each operation, as a real run writes it, is what the published schema says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from tests.support.schemas import published_schema
from tests.support.tables.small_tables import write_days

from delta_maintenance.contract import JobReport, JobSpec, TransactionId
from delta_maintenance.job import JobSite, run_job
from delta_maintenance.operations import OPERATIONS
from delta_maintenance.progress import SilentProgress


def run(operation: str, table: Path, **more: Any) -> JobReport:
    spec = JobSpec(operation, str(table), f"{operation}-1", engine="local", **more)
    jsonschema.validate(json.loads(spec.to_json()), published_schema("job-spec"))
    report = run_job(spec, JobSite(), SilentProgress())
    # As the next process reads it: through JSON.
    jsonschema.validate(json.loads(report.to_json()), published_schema("job-report"))
    return report


@pytest.mark.parametrize("dry_run", [False, True])
@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_report_is_as_published(operation: str, dry_run: bool, tmp_path: Path) -> None:
    write_days(tmp_path / "t", files=4)
    report = run(operation, tmp_path / "t", dry_run=dry_run, transaction=TransactionId("a", 1))
    assert report.operation == operation


def test_reports_of_a_table_that_is_not_there_and_of_work_that_is_done_are_as_published(
    tmp_path: Path,
) -> None:
    assert run("optimize", tmp_path / "no").status == "failed"
    write_days(tmp_path / "t", files=4)
    first = run("optimize", tmp_path / "t", transaction=TransactionId("a", 1))
    assert (first.status, first.columns) == ("committed", ["day", "id", "text"])
    assert first.metrics["numOutputRows"] == 400
    assert run("optimize", tmp_path / "t", transaction=TransactionId("a", 1)).status == "already_done"
    assert run("optimize", tmp_path / "t").status == "nothing_to_do"
