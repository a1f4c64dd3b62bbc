from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from tests.support.records import HOSTILE, failure, health, health_document, run

from airflow_delta.monitoring.record import (
    HEALTH,
    MAX_RECORD_BYTES,
    RUN,
    ForeignRecord,
    Record,
    RecordHeader,
    Source,
    key_of,
    prefix_of_task,
    read_key,
    read_record,
    record_of_health,
    record_of_report,
    table_id,
)
from delta_maintenance.contract import STATUSES, ErrorReport, JobReport

SOURCE = Source("nightly", "manual__1", "optimize", 3)


@pytest.mark.parametrize("status", STATUSES)
def test_a_report_of_every_status_comes_back_as_it_was_told(status: str) -> None:
    error = ErrorReport("Conflict", "lost") if status == "failed" else None
    report = JobReport(
        "optimize", "s3://lake/events", status, version=7, metrics={"numAddedFiles": 2}, error=error
    )
    record = read_record(record_of_report(report, ["Two files."]), SOURCE, 5, 1)
    assert (record.kind, record.table, record.operation, record.status) == (
        RUN,
        "s3://lake/events",
        "optimize",
        status,
    )
    assert record.body["metrics"] == {"numAddedFiles": 2}
    assert record.body["lines"] == ["Two files."]
    assert (record.source, record.time_ms, record.number) == (SOURCE, 5, 1)


def test_a_table_is_the_same_with_and_without_a_slash_at_its_end() -> None:
    told = [
        record_of_report(JobReport("optimize", table, "committed"), [])
        for table in ("s3://lake/t", "s3://lake/t/")
    ]
    assert [record["table"] for record in told] == ["s3://lake/t", "s3://lake/t"]
    assert table_id("s3://lake/t/") == table_id("s3://lake/t")


def test_a_reading_of_health_comes_back_whole() -> None:
    document = health_document("s3://lake/events", "attention")
    record = read_record(record_of_health(document), SOURCE, 5)
    assert (record.kind, record.operation, record.status) == (HEALTH, "health", "attention")
    assert dict(record.body) == document


def test_columns_and_other_long_members_that_no_page_shows_are_not_sent() -> None:
    report = JobReport("optimize", "t", "committed", columns=[f"c{number}" for number in range(500)])
    assert "columns" not in record_of_report(report, [])["report"]


def test_a_record_stays_within_its_size_and_names_what_it_left_out() -> None:
    plan = {"partitions": ["x" * 100] * 1_000}
    report = JobReport("optimize", "t", "planned", plan=plan, selection={"files": 3})
    record = record_of_report(report, [])
    assert record["left_out"] == ["plan"]
    assert record["report"]["selection"] == {"files": 3}
    assert len(json.dumps(record)) < MAX_RECORD_BYTES + 1_000
    assert read_record(record, SOURCE, 0).left_out == ("plan",)


@pytest.mark.parametrize("text", HOSTILE)
def test_texts_that_no_database_holds_become_escapes(text: str) -> None:
    report = JobReport("optimize", "t", "failed", error=ErrorReport("E", text + "\ud800"))
    message = record_of_report(report, [])["report"]["error"]["message"]
    assert "\0" not in message
    assert message.encode().endswith(b"\\ud800")


@pytest.mark.parametrize(
    "raw",
    [
        None,
        [],
        "text",
        {},
        {
            "record_version": 2,
            "kind": "run",
            "table": "t",
            "report": {"operation": "optimize", "status": "failed"},
        },
        {"record_version": 1, "kind": "other", "table": "t", "report": {}},
        {"record_version": 1, "kind": ["run"], "table": "t", "report": {}},
        {
            "record_version": 1,
            "kind": "run",
            "table": "",
            "report": {"operation": "optimize", "status": "failed"},
        },
        {
            "record_version": 1,
            "kind": "run",
            "table": 5,
            "report": {"operation": "optimize", "status": "failed"},
        },
        {"record_version": 1, "kind": "run", "table": "t", "report": []},
        {"record_version": 1, "kind": "run", "table": "t", "report": {"operation": 1, "status": "failed"}},
        {"record_version": 1, "kind": "health", "table": "t", "health": {"status": None}},
    ],
    ids=repr,
)
def test_what_is_no_record_is_refused(raw: Any) -> None:
    with pytest.raises(ForeignRecord):
        read_record(raw, SOURCE, 0)


def test_a_long_reading_loses_its_lists_and_keeps_its_figures() -> None:
    document = health_document(
        "t", "critical", commits=[{"operation": "x" * 200}] * 100, partitionsInNeed=[1]
    )
    raw = record_of_health(document)
    record = read_record(raw, SOURCE, 5, 1)
    assert (record.left_out, len(json.dumps(raw)) < MAX_RECORD_BYTES) == (("facts.commits",), True)
    assert (record.body["facts"]["numFiles"], record.body["facts"]["partitionsInNeed"]) == (422, [1])


TABLE = "s3://lake/events"


@pytest.mark.parametrize(
    ("record", "operation", "has_failed", "figures"),
    [
        (health(TABLE), "health", False, (422, 416)),
        (health(TABLE, numFiles=None, optimize=None), "health", False, (None, None)),
        (run(TABLE), "optimize", False, (None, None)),
        (failure(TABLE), "optimize", True, (None, None)),
    ],
)
def test_a_key_says_what_a_record_is_about(
    record: Record, operation: str, has_failed: bool, figures: tuple[int | None, int | None]
) -> None:
    header = RecordHeader(-1, 3, table_id(TABLE), operation, has_failed, *figures)
    assert read_key(key_of(record, 3)) == header
    mapped = msgspec.structs.replace(record, source=Source("nightly", "run", "task", 7))
    assert read_key(key_of(mapped, 3)) == header._replace(map_index=7)
    assert key_of(mapped, 3).startswith(prefix_of_task(7))


@pytest.mark.parametrize(
    "key",
    [
        "",
        "delta_record.",
        "delta_record.-1.1.s3://lake.optimize..",
        "delta_record.-2.1.optimize..",
        "delta_run",
    ],
)
def test_a_key_of_another_form_names_no_table(key: str) -> None:
    assert read_key(key).table == ""
