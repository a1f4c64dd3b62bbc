"""What later runs add to a reading of health."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.records import HOUR_MS, NOW_MS, health, newest_of, run

from airflow_delta.monitoring.fleet import row_of
from airflow_delta.monitoring.readings import could_not_open, is_open, newest_reading
from airflow_delta.monitoring.record import Record
from delta_maintenance.contract import ErrorReport

TABLE = "s3://lake/events"
UNMEASURED = ["reclaimable_files", "expired_log_files", "poor_layout", "log_compaction_due", "wrong_checksum"]


def finding(code: str, severity: str = "attention") -> dict[str, Any]:
    return {"code": code, "severity": severity, "message": f"{code} is there"}


def told(status: str = "healthy", *findings: dict[str, Any], **facts: Any) -> dict[str, Any]:
    """What a run reads at its end."""
    facts = {"numFiles": 6, "sizeInBytes": 900, "optimize": {"numFilesToMerge": 0}, **facts}
    log = {"numCommitsSinceCheckpoint": 4}
    return {
        "version": 74,
        "status": status,
        "facts": {**facts, "log": log},
        "findings": list(findings),
        "recommendations": [],
        "unmeasured": UNMEASURED,
    }


def row(*records: Record) -> dict[str, Any]:
    return row_of(TABLE, newest_of(records).values(), [])


def test_a_table_that_only_runs_have_told_of_has_their_figures() -> None:
    found = row(run(TABLE, reading=told()))
    assert (found["status"], found["version"], found["num_files"], found["small_files"]) == (
        "healthy",
        74,
        6,
        0,
    )
    assert (found["size_bytes"], found["commits_since_checkpoint"], found["reclaimable_bytes"]) == (
        900,
        4,
        None,
    )


def test_the_newest_of_a_reading_and_a_run_counts() -> None:
    reading = health(TABLE, "attention", at_ms=NOW_MS)
    before, after = (run(TABLE, at_ms=NOW_MS + hours * HOUR_MS, reading=told()) for hours in (-1, 1))
    assert row(reading, before)["status"] == "attention"
    later = row(reading, after)
    assert (later["status"], later["num_files"], later["finding"], later["next"]) == (
        "healthy",
        6,
        None,
        None,
    )
    # The log's other facts are those of the reading.
    found = newest_reading(reading, [after])
    assert found is not None
    assert found.body["facts"]["log"]["checkpointInterval"] == 10
    assert later["reclaimable_bytes"] == 4_096


def reading_of_waste() -> Record:
    reading = health(TABLE, "attention", at_ms=NOW_MS)
    advice = {
        "operation": "vacuum",
        "findings": ["reclaimable_files"],
        "operator": "DeltaVacuumOperator",
        "why": "x",
    }
    body = {
        **reading.body,
        "findings": [*reading.body["findings"], finding("reclaimable_files", "critical")],
        "recommendations": [*reading.body["recommendations"], advice],
    }
    return Record(1, reading.time_ms, reading.source, reading.kind, TABLE, reading.operation, body)


def test_findings_for_which_a_run_did_not_look_stay_until_they_are_cured() -> None:
    later = NOW_MS + HOUR_MS
    found = row(reading_of_waste(), run(TABLE, at_ms=later, reading=told()))
    assert (found["status"], found["num_findings"]) == ("critical", 1)
    assert found["finding"]["code"] == "reclaimable_files"
    assert found["next"]["operation"] == "vacuum"

    vacuum = run(TABLE, operation="vacuum", at_ms=later, reading=told())
    found = row(reading_of_waste(), vacuum)
    assert (found["status"], found["num_findings"], found["reclaimable_bytes"]) == ("healthy", 0, None)

    nothing = run(TABLE, operation="vacuum", status="nothing_to_do", at_ms=later, reading=told())
    assert row(reading_of_waste(), nothing)["status"] == "healthy"
    plan = run(TABLE, operation="vacuum", status="planned", at_ms=later)
    assert row(reading_of_waste(), plan)["num_findings"] == 2


def test_a_run_finds_what_a_reading_did_not() -> None:
    reading = health(TABLE, at_ms=NOW_MS)
    after = run(TABLE, at_ms=NOW_MS + HOUR_MS, reading=told("attention", finding("checkpoint_due")))
    found = row(reading, after)
    assert (found["status"], found["finding"]["code"]) == ("attention", "checkpoint_due")


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
