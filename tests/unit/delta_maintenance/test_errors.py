from __future__ import annotations

import json

from delta_log.errors import CorruptLog
from delta_maintenance.contract import ErrorReport
from delta_maintenance.errors import TaskFailed, VacuumIncomplete, error_report, refusal_report
from delta_maintenance.job_interface import ContractError


def test_an_error_of_ours_is_reported_with_its_facts() -> None:
    error = CorruptLog("part-0.parquet", "it is empty")
    assert error_report(error).to_dict() == {
        "type": "CorruptLog",
        "message": str(error),
        "kind": "refused",
        "retryable": False,
        "path": "part-0.parquet",
        "why": "it is empty",
    }


def test_an_unforeseen_error_may_be_retried() -> None:
    assert error_report(MemoryError()).to_dict() == {
        "type": "MemoryError",
        "message": "no message",
        "retryable": True,
        "kind": "failed",
    }


def test_a_refusal_is_not_worth_repeating() -> None:
    for report in (error_report(ContractError("no spec")), refusal_report(FileNotFoundError("no spec"))):
        assert (report.message, report.kind, report.retryable, report.exit_code) == (
            "no spec",
            "refused",
            False,
            2,
        )


def test_the_error_of_a_task_is_reported_as_what_it_was_where_it_happened() -> None:
    original = error_report(CorruptLog("part-0.parquet", "it is empty"))
    failed = TaskFailed("bin7", original)
    assert error_report(failed).to_dict() == {**original.to_dict(), "bin_id": "bin7"}
    assert str(failed) == original.message
    assert not failed.retryable


def test_a_report_survives_json() -> None:
    report = error_report(VacuumIncomplete(CorruptLog("p", "why"), 3, 4, 5))
    assert not report.retryable
    assert ErrorReport.from_dict(json.loads(json.dumps(report.to_dict()))) == report
