"""A failed run counts until a later run shows that what it lacked is there."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.records import HOUR_MS, NOW_MS, health, run

from airflow_delta.monitoring.failures import could_not_open, is_open
from airflow_delta.monitoring.fleet import row_of
from airflow_delta.monitoring.record import Record
from delta_maintenance.contract import ErrorReport

LATER = NOW_MS + HOUR_MS
AWAY = ErrorReport("StorageError", "The store is away.")
DENIED = ErrorReport("AccessDenied", "Access denied.")
NO_BUCKET = ErrorReport("BucketNotFound", "There is no such bucket.")
LOST = ErrorReport("ConcurrentDelete", "Lost.", kind="conflict")
BROKEN_LOG = ErrorReport("CorruptLog", "A commit is broken.", facts={"path": f"_delta_log/{7:020d}.json"})
BROKEN_FILE = ErrorReport("CorruptLog", "A file is missing.", facts={"path": "part=b/file.parquet"})


def failed(operation: str, error: ErrorReport | None, at_ms: int = NOW_MS) -> Record:
    return run("t", "failed", operation=operation, error=error, at_ms=at_ms)


def after(operation: str, at_ms: int = LATER) -> dict[str, Record]:
    found = health("t", at_ms=at_ms) if operation == "health" else run("t", operation=operation, at_ms=at_ms)
    return {operation: found}


@pytest.mark.parametrize(
    ("operation", "error", "cured_by"),
    [
        ("optimize", AWAY, {"optimize", "purge"}),
        ("purge", AWAY, {"optimize", "purge"}),
        ("vacuum", AWAY, {"vacuum"}),
        ("checkpoint", AWAY, {"checkpoint", "vacuum", "optimize", "purge"}),
        ("checkpoint", DENIED, {"checkpoint", "vacuum", "optimize", "purge"}),
        ("health", DENIED, {"health", "checkpoint", "vacuum", "optimize", "purge"}),
        ("optimize", NO_BUCKET, {"health", "checkpoint", "vacuum", "optimize", "purge"}),
        ("optimize", BROKEN_LOG, {"health", "checkpoint", "vacuum", "optimize", "purge"}),
        ("optimize", BROKEN_FILE, {"optimize", "purge"}),
        ("optimize", LOST, {"optimize", "purge"}),
        ("vacuum", LOST, {"vacuum"}),
        ("checkpoint", None, {"checkpoint"}),
        ("some-new-operation", AWAY, set()),
    ],
)
def test_a_failure_is_over_when_a_later_run_needed_the_same(
    operation: str, error: ErrorReport | None, cured_by: set[str]
) -> None:
    every = ("health", "checkpoint", "vacuum", "optimize", "purge")
    failure = failed(operation, error)
    assert {later for later in every if not is_open(failure, after(later))} == cured_by
    assert is_open(failure, after(operation, NOW_MS - 1))
    assert not is_open(failure, after(operation, NOW_MS))


@pytest.mark.parametrize(
    "error", [None, 7, {}, {"type": ["StorageError"]}, {"type": "CorruptLog", "path": 7}]
)
def test_an_error_of_an_unknown_form_is_cured_by_its_own_operation_alone(error: Any) -> None:
    known = failed("optimize", AWAY)
    body = {**known.body, "error": error}
    failure = Record(1, NOW_MS, known.source, known.kind, "t", "optimize", body)
    assert is_open(failure, after("health"))
    assert not is_open(failure, after("optimize"))


def test_a_row_shows_the_newest_failure_that_still_counts() -> None:
    failures = [failed("optimize", NO_BUCKET, LATER), failed("vacuum", LOST)]
    both = row_of("t", [], failures)
    assert both["failure"]["operation"] == "optimize"
    row = row_of("t", [health("t", at_ms=LATER + 1)], failures)
    assert row["failure"]["operation"] == "vacuum"


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (NO_BUCKET, True),
        (BROKEN_LOG, True),
        (
            ErrorReport("UnreadableCheckpoint", "Broken.", facts={"path": "_delta_log/7.checkpoint.parquet"}),
            True,
        ),
        (ErrorReport("NotATable", "It has no _delta_log."), True),
        (ErrorReport("TableDropped", "The table was dropped."), True),
        (BROKEN_FILE, False),
        (AWAY, False),
        (LOST, False),
        (None, False),
    ],
)
def test_a_table_cannot_be_read_when_a_task_could_not_open_it(
    error: ErrorReport | None, expected: bool
) -> None:
    failure = failed("optimize", error)
    assert could_not_open(failure) == expected
    before, since = (row_of("t", [health("t", at_ms=at_ms)], [failure]) for at_ms in (NOW_MS - 1, LATER))
    assert (before["status"] == "unreadable") == expected
    assert since["status"] == "healthy"
