from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest
from tests.support.runs.metrics_backend import Recorder

from airflow_delta.operators.reporting.stats import count, counts_of
from delta_maintenance.contract import ErrorReport, JobReport

MakeContext = Callable[..., dict[str, Any]]
TAGS = {"dag_id": "nightly", "task_id": "optimize"}


def test_what_a_rewrite_did_is_counted_by_operation(
    make_context: MakeContext, send_metrics_to: Callable[[Recorder], None]
) -> None:
    metrics = {
        "numAddedFiles": 6,
        "numRemovedFiles": 422,
        "numAddedBytes": 900,
        "numRemovedBytes": 1200,
        "numOutputRows": 10,
        "numDeletionVectorsRemoved": 0,
    }
    recorder = Recorder()
    send_metrics_to(recorder)
    report = JobReport(
        "optimize",
        "/t",
        "committed",
        version=3,
        metrics=metrics,
        dropped_bins=2,
        started_ms=1000,
        finished_ms=39_000,
    )
    count(make_context(), report)  # type: ignore[arg-type]
    assert recorder.sent == [
        ("counter", "delta.optimize.committed", 1, TAGS),
        ("counter", "delta.optimize.files_rewritten", 422, TAGS),
        ("counter", "delta.optimize.bytes_rewritten", 1200, TAGS),
        ("counter", "delta.optimize.files_written", 6, TAGS),
        ("counter", "delta.optimize.bytes_written", 900, TAGS),
        ("counter", "delta.optimize.rows_written", 10, TAGS),
        ("counter", "delta.optimize.conflicts_lost", 2, TAGS),
        ("timer", "delta.optimize.duration", 38_000, TAGS),
    ]


def test_a_vacuum_counts_what_it_deleted() -> None:
    metrics = {"numDeletedFiles": 2, "sizeOfDeletedData": 20, "numPurgedFiles": 1, "sizeOfPurgedData": 5}
    report = JobReport("vacuum", "/t", "committed", metrics=metrics)
    assert counts_of(report) == {"committed": 1, "files_deleted": 3, "bytes_deleted": 25}


@pytest.mark.parametrize("status", ["already_done", "nothing_to_do", "planned"])
def test_work_that_this_try_did_not_do_is_not_counted(status: str) -> None:
    assert counts_of(JobReport("optimize", "/t", status, metrics={"numAddedFiles": 6})) == {status: 1}


def test_a_lost_conflict_is_counted_and_batches_before_it_too() -> None:
    error = ErrorReport("ConcurrentDeleteRead", "lost", "conflict")
    report = JobReport("optimize", "/t", "failed", metrics={"numAddedFiles": 1}, error=error)
    assert counts_of(report) == {"failed": 1, "files_written": 1, "conflicts_lost": 1}


def test_metrics_that_fail_do_not_fail_the_task(
    make_context: MakeContext, send_metrics_to: Callable[[Recorder], None], caplog: pytest.LogCaptureFixture
) -> None:
    send_metrics_to(Recorder(ConnectionError("no agent")))
    with caplog.at_level(logging.WARNING):
        count(make_context(), JobReport("optimize", "/t", "committed"))  # type: ignore[arg-type]
    assert "could not be sent" in caplog.text
