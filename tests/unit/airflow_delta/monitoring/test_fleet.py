from __future__ import annotations

import json
from typing import Any

import pytest
from tests.support.records import HOSTILE, HOUR_MS, NOW_MS, failure, health, newest_of, run

from airflow_delta.monitoring.fleet import (
    MAX_TEXT,
    SORTS,
    FleetQuery,
    TableRecords,
    counts_of,
    page_of,
    row_for,
)
from airflow_delta.monitoring.fleet_cache import Fleet
from airflow_delta.monitoring.record import Record, Source, table_id
from delta_maintenance.contract import ErrorReport


def rows_of(*records: Record, failures: tuple[Record, ...] = (), dags: tuple[str, ...] = ("nightly",)) -> Any:
    """The rows of all tables of which these DAGs have told."""
    rows = []
    for table in dict.fromkeys(record.table for record in (*records, *failures)):
        newest, failed = (
            newest_of(one for one in told if one.table == table) for told in (records, failures)
        )
        held = TableRecords(table, newest, failed)
        if held.dags & set(dags):
            rows.append(row_for(held, dags))
    return rows


def chosen(rows: list[Any], query: FleetQuery) -> list[Any]:
    return list(Fleet.of({row["id"]: row for row in rows}).chosen(query))


def test_a_row_has_the_figures_of_the_newest_reading() -> None:
    (row,) = rows_of(
        health("s3://lake/events", "critical", numFiles=9, at_ms=NOW_MS - HOUR_MS),
        health("s3://lake/events", "attention"),
    )
    assert (row["status"], row["version"], row["num_files"], row["small_files"]) == (
        "attention",
        73,
        422,
        416,
    )
    assert (row["size_bytes"], row["reclaimable_bytes"], row["commits_since_checkpoint"]) == (
        1_288_490_188,
        4_096,
        3,
    )
    assert row["finding"]["code"] == "small_files"
    assert row["next"]["operator"] == "DeltaOptimizeOperator"
    assert (row["name"], row["table"]) == ("events", "s3://lake/events")


def test_a_table_that_was_maintained_and_never_read_is_unknown() -> None:
    (row,) = rows_of(run("s3://lake/events"))
    assert (row["status"], row["num_files"], row["finding"], row["next"]) == ("unknown", None, None, None)
    assert row["last_work"]["operation"] == "optimize"
    assert not row["is_older_than_work"]


def test_a_run_that_changed_the_table_makes_the_reading_old_and_one_with_nothing_to_do_does_not() -> None:
    later = NOW_MS + HOUR_MS
    (changed,) = rows_of(health("t"), run("t", at_ms=later))
    (skipped,) = rows_of(health("t"), run("t", "nothing_to_do", at_ms=later))
    (read_again,) = rows_of(run("t"), health("t", at_ms=later))
    assert [row["is_older_than_work"] for row in (changed, skipped, read_again)] == [True, False, False]


def test_a_table_whose_next_action_was_done_comes_behind_those_that_still_need_something() -> None:
    later = NOW_MS + HOUR_MS
    rows = rows_of(
        health("done", "critical"),
        run("done", at_ms=later),
        health("needy", "attention"),
        health("other work", "critical"),
        run("other work", operation="vacuum", at_ms=later),
        health("failing", "critical"),
        run("failing", at_ms=later),
        health("planned", "critical"),
        run("planned", "planned", at_ms=later),
        health("well", "healthy"),
        failures=(failure("failing", at_ms=later + HOUR_MS),),
    )
    assert [row["table"] for row in rows if row["is_next_done"]] == ["done", "failing"]
    ordered = [row["table"] for row in chosen(rows, FleetQuery())]
    assert ordered[0] == "failing"
    assert ordered[-3:] == ["needy", "done", "well"]


def advised(table: str, status: str, *operations: str, also: str | None = None) -> Record:
    """A reading with a finding for each recommended operation, and perhaps one that no operation helps against."""
    record = health(table, status)
    codes = [f"for_{operation}" for operation in operations]
    record.body["recommendations"][:] = [
        {"operation": operation, "findings": [code], "why": "It helps."}
        for operation, code in zip(operations, codes, strict=True)
    ]
    record.body["findings"][:] = [
        {"code": code, "severity": status, "message": code} for code in [*codes, *([also] if also else [])]
    ]
    return record


def test_a_table_needs_no_attention_when_all_that_was_recommended_has_been_done_since() -> None:
    later = NOW_MS + HOUR_MS
    rows = {
        row["table"]: row
        for row in rows_of(
            advised("done", "attention", "optimize"),
            run("done", at_ms=later),
            advised("half done", "attention", "optimize", "vacuum"),
            run("half done", at_ms=later),
            advised("planned", "attention", "optimize"),
            run("planned", "planned", at_ms=later),
            advised("no remedy", "attention", "optimize", also="odd_files"),
            run("no remedy", at_ms=later),
            advised("critical", "critical", "optimize"),
            run("critical", at_ms=later),
        )
    }
    assert {name: row["status"] for name, row in rows.items()} == {
        "done": "healthy",
        "half done": "attention",
        "planned": "attention",
        "no remedy": "attention",
        "critical": "critical",
    }
    assert [name for name, row in rows.items() if row["is_next_done"]] == ["done", "no remedy", "critical"]
    assert (rows["done"]["finding"], rows["done"]["is_older_than_work"]) == (None, True)
    assert (rows["half done"]["finding"]["code"], rows["half done"]["num_findings"]) == ("for_vacuum", 1)
    assert rows["half done"]["next"]["operation"] == "vacuum"
    assert rows["no remedy"]["finding"]["code"] == "odd_files"


def test_a_table_that_cannot_be_read_comes_first_with_its_reason_and_behind_it_one_that_is_gone() -> None:
    later = NOW_MS + HOUR_MS

    def not_opened(table: str, error: str, why: str) -> Record:
        return run(table, "failed", at_ms=later, error=ErrorReport(error, why))

    rows = rows_of(
        health("critical", "critical"),
        health("gone", "critical", sizeInBytes=10**15),
        failures=(
            not_opened("gone", "NotATable", "It has no _delta_log."),
            not_opened("no bucket", "BucketNotFound", "There is no such bucket."),
        ),
    )
    ordered = chosen(rows, FleetQuery())
    assert [row["table"] for row in ordered] == ["no bucket", "gone", "critical"]
    assert ordered[0]["finding"] == {
        "code": "BucketNotFound",
        "severity": "critical",
        "message": "There is no such bucket.",
    }
    assert (ordered[1]["num_files"], ordered[1]["next"]) == (422, None)
    assert [row["table"] for row in chosen(rows, FleetQuery(status="unreadable"))] == ["no bucket", "gone"]
    assert counts_of(rows) == {**counts_of([]), "unreadable": 2, "critical": 1, "failing": 2}


def test_last_runs_are_those_of_tasks_and_those_that_other_writers_left_in_the_log() -> None:
    (row,) = rows_of(health("t"), run("t", operation="vacuum", at_ms=NOW_MS - HOUR_MS))
    assert row["last_runs"]["vacuum"] == {"time_ms": NOW_MS - HOUR_MS, "status": "committed", "engine": None}
    assert row["last_runs"]["optimize"]["engine"] == "delta-rs"


def test_a_failure_counts_until_the_operation_succeeds() -> None:
    later = NOW_MS + HOUR_MS
    (failing,) = rows_of(run("t"), failures=(failure("t", at_ms=later),))
    assert failing["failure"]["message"] == "The store is away."
    (cured,) = rows_of(run("t", at_ms=later), failures=(failure("t"),))
    assert cured["failure"] is None
    (other,) = rows_of(run("t", operation="vacuum", at_ms=later), failures=(failure("t"),))
    assert other["failure"] is not None


def test_a_table_of_which_only_a_failure_is_known_is_shown() -> None:
    (row,) = rows_of(failures=(failure("s3://lake/absent"),))
    assert (row["status"], row["failure"]["operation"]) == ("unknown", "optimize")


def test_a_reader_sees_the_newest_record_of_the_dags_that_they_may_read() -> None:
    records = (
        health("t", "critical", at_ms=NOW_MS + HOUR_MS, dag_id="secret"),
        health("t", "healthy"),
        health("hidden", dag_id="secret"),
    )
    (row,) = rows_of(*records, failures=(failure("also hidden", dag_id="secret"),))
    assert (row["table"], row["status"]) == ("t", "healthy")
    assert {row["table"] for row in rows_of(*records, dags=("nightly", "secret"))} == {"t", "hidden"}
    assert rows_of(*records, dags=()) == []


@pytest.mark.parametrize(
    "body",
    [
        {"status": "odd"},
        {"status": "critical", "facts": [], "findings": "none", "recommendations": {}},
        {
            "status": "critical",
            "facts": {"numFiles": "many", "log": 4, "lastRuns": {"optimize": 5}},
            "version": True,
        },
        {
            "status": "critical",
            "findings": [None, 5, {"severity": ["critical"], "message": 5}],
            "recommendations": [{}],
        },
        {"status": "critical", "facts": {"sizeInBytes": 10**400, "deletedRowsRatio": float("nan")}},
    ],
    ids=repr,
)
def test_a_reading_with_members_of_other_kinds_leaves_gaps_and_breaks_no_row(body: dict[str, Any]) -> None:
    odd = Record(1, NOW_MS, Source("nightly", "run", "health"), "health", "odd", "health", body)
    rows = rows_of(odd, health("sound"))
    assert {row["table"] for row in rows} == {"odd", "sound"}
    for sort in SORTS:
        assert len(chosen(rows, FleetQuery(sort=sort))) == 2
    json.dumps(rows, allow_nan=False)


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_texts_are_shown_as_one_line_without_controls(text: str) -> None:
    (row,) = rows_of(
        health(f"s3://lake/{text}"), failures=(failure(f"s3://lake/{text}", text, at_ms=NOW_MS + 1),)
    )
    for shown in (row["table"], row["name"], row["failure"]["message"]):
        assert shown.isprintable()
        assert len(shown) <= MAX_TEXT
    assert row["id"] == table_id(health(f"s3://lake/{text}").table)


FLEET = (
    health("b/small", "healthy", sizeInBytes=1),
    health("a/large", "healthy", sizeInBytes=9),
    health("c/bad", "critical", sizeInBytes=5),
    health("d/poor", "attention", sizeInBytes=7),
    run("e/unread"),
)


def names(**query: Any) -> list[str]:
    return [row["name"] for row in chosen(rows_of(*FLEET), FleetQuery(**query))]


def test_the_most_urgent_table_comes_first() -> None:
    assert names() == ["bad", "poor", "unread", "large", "small"]


def test_among_tables_of_one_status_those_with_more_findings_come_first() -> None:
    worse = health("f/worse", "attention", sizeInBytes=1)
    worse.body["findings"].append({"code": "checkpoint_due", "severity": "attention", "message": "due"})
    rows = chosen(rows_of(*FLEET, worse), FleetQuery())
    assert [row["name"] for row in rows][:3] == ["bad", "worse", "poor"]


def test_rows_without_the_figure_come_last_in_either_order() -> None:
    assert names(sort="size_bytes") == ["small", "bad", "poor", "large", "unread"]
    assert names(sort="size_bytes", descending=True) == ["large", "poor", "bad", "small", "unread"]


def test_a_choice_by_status_or_by_a_part_of_the_address() -> None:
    assert names(status="healthy") == ["large", "small"]
    assert names(search="C/B") == ["bad"]
    assert names(status="failing") == []


def test_counts_are_those_of_all_tables() -> None:
    rows = rows_of(*FLEET, failures=(failure("a/large", at_ms=NOW_MS + 1),))
    assert counts_of(rows) == {
        "unreadable": 0,
        "critical": 1,
        "attention": 1,
        "unsupported": 0,
        "unknown": 1,
        "healthy": 2,
        "failing": 1,
    }


def test_pages_follow_each_other() -> None:
    rows = chosen(rows_of(*FLEET), FleetQuery())
    pages = [page_of(rows, FleetQuery(offset=offset, limit=2)) for offset in (0, 2, 4, 6)]
    assert [row["name"] for page in pages for row in page] == names()
    assert [len(page) for page in pages] == [2, 2, 1, 0]
