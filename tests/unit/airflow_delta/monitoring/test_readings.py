"""What later runs add to a reading of health."""

from __future__ import annotations

from typing import Any

from tests.support.records import HOUR_MS, NOW_MS, health, newest_of, run

from airflow_delta.monitoring.fleet import row_of
from airflow_delta.monitoring.readings import newest_reading
from airflow_delta.monitoring.record import Record

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
