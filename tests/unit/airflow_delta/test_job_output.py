from __future__ import annotations

import pytest

from airflow_delta.runners.job_output import JobOutput, JobProgress
from delta_maintenance.contract import PROGRESS_PREFIX, REPORT_PREFIX, ContractError, JobReport

REPORT = JobReport("optimize", "/t", "committed", version=3)


def test_lines_are_sorted_into_progress_report_and_the_rest() -> None:
    output = JobOutput()
    lines = [
        "hello\n",
        f'{PROGRESS_PREFIX}{{"done_bins": 1, "total_bins": 4}}\n',
        f"{REPORT_PREFIX}{REPORT.to_json()}\n",
    ]
    assert list(output.sort(lines)) == ["hello", JobProgress(1, 4)]
    assert output.report == REPORT
    assert output.last_lines == ("hello",)


def test_a_report_is_found_behind_something_that_the_jvm_wrote_on_the_same_line() -> None:
    output = JobOutput()
    assert list(output.sort([f"26/01/01 WARN Utils: {REPORT_PREFIX}{REPORT.to_json()} and more"])) == []
    assert output.report == REPORT


def test_half_a_report_is_no_report() -> None:
    output = JobOutput()
    half = f"{REPORT_PREFIX}{REPORT.to_json()}"[:40]
    assert list(output.sort([half])) == [half]
    assert output.report is None


def test_a_report_of_another_contract_is_refused() -> None:
    with pytest.raises(ContractError, match="contract version 99"):
        list(JobOutput().sort([f'{REPORT_PREFIX}{{"contract_version": 99}}']))


def test_only_the_end_of_the_output_is_remembered() -> None:
    output = JobOutput()
    list(output.sort(f"line {n}" for n in range(1000)))
    assert (len(output.last_lines), output.last_lines[-1]) == (20, "line 999")


@pytest.mark.parametrize(
    ("progress", "text"),
    [
        (JobProgress(3, 12, 30, 100, "day=2026-01-01"), "[ 3/12 bins,  30%] day=2026-01-01"),
        (JobProgress(1, 4), "[1/4 bins,  25%]"),
        (JobProgress(message="planning"), "planning"),
    ],
)
def test_progress_reads_well(progress: JobProgress, text: str) -> None:
    assert str(progress) == text
