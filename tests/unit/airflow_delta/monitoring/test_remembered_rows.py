from __future__ import annotations

from tests.support.records import HOUR_MS, NOW_MS, failure, health, run

from airflow_delta.monitoring.fleet import TableRecords, fleet_rows, row_of
from airflow_delta.monitoring.remembered_rows import RememberedRows

TABLE = "s3://lake/events"


def test_a_row_is_made_again_only_of_other_records() -> None:
    rows = RememberedRows()
    reading, work = health(TABLE, "attention"), run(TABLE)
    first = rows(TABLE, [reading, work], [])
    assert first == row_of(TABLE, [reading, work], [])
    assert rows(TABLE, iter([reading, work]), []) is first
    other = health("s3://lake/other")
    assert rows("s3://lake/other", [other], [])["name"] == "other"
    assert rows(TABLE, [reading, work], []) is first
    newer = health(TABLE, "healthy", at_ms=NOW_MS + HOUR_MS)
    assert rows(TABLE, [newer, work], [])["status"] == "healthy"
    failed = failure(TABLE, at_ms=NOW_MS + HOUR_MS)
    assert rows(TABLE, [newer, work], [failed])["failure"] is not None
    # A reader who may see less of it.
    assert rows(TABLE, [work], [])["status"] == "unknown"
    assert rows(TABLE, [], [])["last_work"] is None


def test_a_fleet_of_remembered_rows_is_what_it_would_be_without_them() -> None:
    tables = {}
    for name in ("one", "two"):
        tables[f"s3://lake/{name}"] = TableRecords()
        tables[f"s3://lake/{name}"].add(health(f"s3://lake/{name}", "critical", dag_id=name))
        tables[f"s3://lake/{name}"].add(run(f"s3://lake/{name}", dag_id="nightly"))
    rows, failures = RememberedRows(), [failure("s3://lake/two")]
    for readable in ({"one", "two", "nightly"}, {"nightly"}, {"one", "nightly"}, {"one", "two", "nightly"}):
        expected = fleet_rows(tables, failures, readable.__contains__)
        assert fleet_rows(tables, failures, readable.__contains__, make_row=rows) == expected
