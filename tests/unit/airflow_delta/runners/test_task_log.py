from __future__ import annotations

from typing import Any

import pytest

from airflow_delta.runners.task_log import ProgressLog, report_lines
from delta_maintenance.contract import JobReport
from delta_maintenance.progress import REWRITING, JobProgress

MIB = 1 << 20
SELECTION = {
    "files": 9,
    "bytes": 9 * MIB,
    "small_below_bytes": 96 * MIB,
    "chosen": {"files": 0, "bytes": 0, "bins": 4, "partitions": 0, "by_reason": {}},
    "left": {"large_enough": {"files": 8, "bytes": 8 * MIB}, "alone": {"files": 1, "bytes": MIB}},
}


class Log:
    def __init__(self) -> None:
        self.lines: list[str] = []

    def info(self, message: str, /, *arguments: Any) -> None:
        self.lines.append(message % arguments)

    debug = warning = error = info


def report(status: str, **facts: Any) -> JobReport:
    return JobReport(**{"operation": "optimize", "table": "/t", "status": status, "read_version": 3, **facts})


def test_ten_thousand_counts_make_a_few_lines() -> None:
    log, now = Log(), [0.0]
    progress = ProgressLog(log, lambda: now[0])
    for done in range(10_001):
        now[0] = done / 400
        progress.tell(JobProgress(done, 10_000, done, 10_000, REWRITING))
    assert len(log.lines) == 4
    assert log.lines[-1].startswith("rewriting: 10,000 of 10,000 bins, 9.8 KiB of 9.8 KiB (100%)")


def test_a_run_with_nothing_to_do_says_why() -> None:
    assert list(report_lines(report("nothing_to_do", selection=SELECTION, metrics={"numAddedFiles": 0}))) == [
        "Nothing to do at version 3; nothing was committed.",
        "  9 files, 9.0 MiB: 8 large enough; 1 small, but no other small file is in their partition",
    ]


def test_a_commit_says_what_was_gained_and_what_was_taken_over_and_leaves_out_zeros() -> None:
    done = report(
        "committed",
        version=4,
        engine="local",
        engine_reason="asked for",
        metrics={
            "numAddedFiles": 1,
            "numRemovedFiles": 422,
            "numAddedBytes": 9 * MIB,
            "numRemovedBytes": 12 * MIB,
            "numDeletionVectorsRemoved": 0,
        },
        selection=SELECTION,
        earlier_tries={"bins": 6, "files": 240, "bytes": 7 * MIB},
        table_size={
            "files_before": 5000,
            "files_after": 4579,
            "bytes_before": 20 * MIB,
            "bytes_after": 17 * MIB,
        },
        started_ms=0,
        finished_ms=38_100,
    )
    assert list(report_lines(done)) == [
        "Committed version 4 in 38 s",
        "  files          422  →           1",
        "  bytes     12.0 MiB  →     9.0 MiB",
        "  of the whole table: 5,000 → 4,579 files, 20.0 MiB → 17.0 MiB",
        "  6 of 10 bins were finished by an earlier try (240 files, 7.0 MiB)",
        "  engine local: asked for",
        f"metrics: numAddedBytes {9 * MIB}, numAddedFiles 1, numRemovedBytes {12 * MIB}, numRemovedFiles 422",
    ]


@pytest.mark.parametrize(
    "facts",
    [
        {"operation": "of another release"},
        {"operation": "vacuum", "plan": {"warnings": 3}},
        {"selection": {"left": []}},
        {"table_size": {"files_before": 1}},
    ],
)
def test_a_report_that_cannot_be_told_does_not_fail_the_task(facts: dict[str, Any]) -> None:
    status = "nothing_to_do" if "selection" in facts else "committed"
    first, *_ = report_lines(report(status, **{"version": 4, **facts}))
    assert first.startswith(f"The job ended: {status}, version 4. Its report cannot be told in words (")
