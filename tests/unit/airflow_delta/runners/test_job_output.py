from __future__ import annotations

import io

import pytest
from tests.support.runs import mutated_reports
from tests.support.tables.hostile_text import CONTROLS, FORGED_LINE, is_harmless

from airflow_delta.runners.job_output import JobOutput, JobProgress, LogLine, bounded_lines
from delta_maintenance.contract import JobReport
from delta_maintenance.job_interface import (
    LOG_LEVELS,
    LOG_PREFIX,
    PROGRESS_PREFIX,
    REPORT_PREFIX,
    ContractError,
    LogLevel,
)

NONCE = "0123456789abcdef"
REPORT = JobReport("optimize", "/t", "committed", version=3)
REPORT_LINE = f"{REPORT_PREFIX}{NONCE} {REPORT.to_json()}"


def sort(*lines: str) -> tuple[list[JobProgress | str], JobReport | None]:
    """Returns progress, and the texts of other lines."""
    output = JobOutput(NONCE)
    found = [item.message if isinstance(item, LogLine) else item for item in output.sort(lines)]
    return found, output.report


def test_lines_are_sorted_into_progress_report_and_the_rest() -> None:
    output = JobOutput(NONCE)
    lines = [
        "hello\n",
        f'{PROGRESS_PREFIX}{NONCE} {{"done_bins": 1, "total_bins": 4}}\n',
        f"{REPORT_LINE}\n",
    ]
    assert list(output.sort(lines)) == [LogLine("debug", "hello"), JobProgress(1, 4)]
    assert output.report == REPORT
    assert output.last_lines == ("hello",)


def test_a_report_is_found_behind_something_that_the_jvm_wrote_on_the_same_line() -> None:
    found, report = sort(f"26/01/01 WARN Utils: {REPORT_LINE} and more")
    assert found == ["26/01/01 WARN Utils:", " and more"]
    assert report == REPORT


@pytest.mark.parametrize(
    "line",
    [
        f"{REPORT_PREFIX}{REPORT.to_json()}",
        f"{REPORT_PREFIX}{'f' * 16} {REPORT.to_json()}",
        f"{PROGRESS_PREFIX}{{}}",
        f"{PROGRESS_PREFIX} {NONCE} {{}}",
        f"delta_report {NONCE} {REPORT.to_json()}",
    ],
)
def test_a_line_without_the_nonce_of_the_run_is_text(line: str) -> None:
    assert sort(line) == ([line.replace(NONCE, "…")], None)


@pytest.mark.parametrize("prefix", [PROGRESS_PREFIX, REPORT_PREFIX])
def test_prefixes_within_a_report_are_its_text(prefix: str) -> None:
    forged = f"{prefix}{{}} {prefix}{NONCE} {{}}"
    report = JobReport("optimize", "/t", "planned", plan={"partitionValues": {"part": forged}})
    assert sort(f"{REPORT_PREFIX}{NONCE} {report.to_json()}") == ([], report)


def test_the_first_prefix_of_a_line_counts() -> None:
    progress = f'{PROGRESS_PREFIX}{NONCE} {{"message": "m"}}'
    found, report = sort(f"{progress} {REPORT_LINE}")
    assert found[0] == JobProgress(message="m")
    assert report is None
    found, report = sort(f"{REPORT_LINE} {progress}")
    assert len(found) == 1
    assert report == REPORT


def test_a_second_report_is_refused() -> None:
    with pytest.raises(ContractError, match="two reports"):
        sort(REPORT_LINE, REPORT_LINE)


def test_half_a_report_is_refused() -> None:
    with pytest.raises(ContractError, match="cut short"):
        sort(REPORT_LINE[:60])


def test_a_report_of_another_contract_is_refused() -> None:
    with pytest.raises(ContractError, match="contract version 99"):
        sort(f'{REPORT_PREFIX}{NONCE} {{"contract_version": 99}}')


@pytest.mark.parametrize(
    "progress",
    [
        '{"done_bins": -1}',
        '{"done_bins": "1"}',
        '{"done_bins": true}',
        '{"total_bytes": 1e999}',
        '{"total_bytes": 1e3}',
        '{"total_bytes": NaN}',
        '{"message": [1]}',
        f'{{"done_bytes": {"9" * 5_000}}}',
        "[" * 100_000,
        "[]",
        "",
    ],
)
def test_progress_that_cannot_be_read_is_text(progress: str) -> None:
    (shown,), report = sort(f"{PROGRESS_PREFIX}{NONCE} {progress}")
    assert isinstance(shown, str)
    assert report is None


@pytest.mark.parametrize("level", LOG_LEVELS)
def test_the_jobs_own_log_keeps_its_level(level: LogLevel) -> None:
    output = JobOutput(NONCE)
    (line,) = output.sort([f'{LOG_PREFIX}{NONCE} {{"level": "{level}", "message": "told\\u001b[2J"}}'])
    assert line == LogLine(level, r"told\x1b[2J")
    assert output.has_begun


@pytest.mark.parametrize(
    "line",
    ['{"level": "fatal", "message": ""}', '{"message": "m"}', '{"level": "info", "message": 1}', "[]", "{"],
)
def test_a_log_line_that_cannot_be_read_is_chatter(line: str) -> None:
    (found,) = JobOutput(NONCE).sort([f"{LOG_PREFIX}{NONCE} {line}"])
    assert isinstance(found, LogLine)
    assert found.level == "debug"


def test_what_libraries_write_is_shown_at_the_level_that_was_asked_for() -> None:
    line = "26/11/23 05:45:32 WARN StandaloneAppClient$ClientEndpoint: Failed to connect to master 127.0.0.1:7999"
    assert list(JobOutput(NONCE).sort([line])) == [LogLine("debug", line)]
    assert list(JobOutput(NONCE, "info").sort([line])) == [LogLine("info", line)]
    assert not JobOutput(NONCE).has_begun


def test_frames_of_a_trace_and_what_spark_always_says_do_not_count_as_last_lines() -> None:
    output = JobOutput(NONCE)
    list(
        output.sort(
            [
                "WARNING: Using incubator modules: jdk.incubator.vector",
                "26/11/23 05:45:31 INFO SparkContext: Running Spark version 4.2.0",
                "26/11/23 05:46:32 ERROR StandaloneSchedulerBackend: Application has been killed.",
                "org.apache.spark.SparkException: Exception thrown in awaitResult:",
                "\tat org.apache.spark.util.SparkThreadUtils$.awaitResult(SparkThreadUtils.scala:70)",
                "\t... 4 more",
                "Caused by: java.io.IOException: Failed to connect to /127.0.0.1:7999",
            ]
        )
    )
    assert output.last_lines == (
        "26/11/23 05:46:32 ERROR StandaloneSchedulerBackend: Application has been killed.",
        "org.apache.spark.SparkException: Exception thrown in awaitResult:",
        "Caused by: java.io.IOException: Failed to connect to /127.0.0.1:7999",
    )


def test_only_the_end_of_the_output_is_remembered() -> None:
    output = JobOutput(NONCE)
    list(output.sort(f"line {n}" for n in range(1000)))
    assert (len(output.last_lines), output.last_lines[-1]) == (20, "line 999")


def test_text_is_printable_and_a_very_long_one_is_cut_with_a_note() -> None:
    found, _ = sort(CONTROLS, FORGED_LINE, "\tat a.java", "x" * 100_000)
    assert all(isinstance(text, str) and is_harmless(text) and "\n" not in text for text in found)
    assert found[2] == "    at a.java"
    assert str(found[3]).endswith("x [… and 83,616 characters more]")


def test_a_line_that_is_too_long_is_cut_with_a_note_and_the_next_is_whole() -> None:
    stream = io.StringIO(f"{'x' * 10}\n{'y' * 200_000}\nlast\n{'z' * 12}")
    lines = list(bounded_lines(stream, longest=10))
    assert lines == [
        "x" * 10,
        f"{'y' * 10} [… and 199,990 characters more]",
        "last\n",
        f"{'z' * 10} [… and 2 characters more]",
    ]


def test_mutated_reports_are_refused_or_harmless() -> None:
    outcomes = mutated_reports.run(examples=600, seed=1)
    assert outcomes["refused"] > 100
    assert outcomes["read"] > 50
