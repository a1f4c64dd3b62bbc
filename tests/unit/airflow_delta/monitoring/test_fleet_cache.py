from __future__ import annotations

from dataclasses import replace

import pytest
from tests.support.records import HOUR_MS, NOW_MS, failure, health, newest_of, run

from airflow_delta.monitoring.fleet import (
    SORTS,
    FleetQuery,
    ReportedState,
    TableRecords,
    Watch,
    matching,
    ordered,
    row_for,
)
from airflow_delta.monitoring.fleet_cache import FleetCache
from airflow_delta.monitoring.record import Record, table_id

EVENTS, ORDERS = "s3://lake/events", "s3://lake/orders"


def state_of(
    *records: Record, failures: tuple[Record, ...] = (), before: ReportedState | None = None
) -> ReportedState:
    """What queries hand over: a table without news is the same object as before."""
    tables = dict(before.tables) if before else {}
    for table in {record.table for record in (*records, *failures)}:
        newest = newest_of(one for one in records if one.table == table)
        tables[table_id(table)] = TableRecords(
            table, newest, newest_of(one for one in failures if one.table == table)
        )
    return ReportedState(tables, dags=frozenset().union(*(held.dags for held in tables.values())))


FLEET = state_of(
    health(EVENTS, "critical", dag_id="nightly"),
    run(EVENTS, dag_id="weekly"),
    health(ORDERS, dag_id="weekly"),
    failures=(failure(EVENTS, at_ms=NOW_MS + HOUR_MS, dag_id="other"),),
)


@pytest.mark.parametrize(
    "dags", [(), ("nightly",), ("weekly",), ("other",), ("nightly", "weekly"), ("nightly", "weekly", "other")]
)
def test_each_reader_sees_what_their_dags_have_told_whoever_came_before(dags: tuple[str, ...]) -> None:
    fleets = FleetCache()
    for others in ((), ("nightly", "weekly", "other"), ("other",)):
        fleets.fleet(FLEET, others.__contains__)
    expected = {
        table: row_for(records, dags) for table, records in FLEET.tables.items() if records.dags & set(dags)
    }
    for _ in range(2):
        assert fleets.fleet(FLEET, dags.__contains__).rows == expected


def test_an_asset_has_the_tables_that_its_watcher_looks_at() -> None:
    watched = TableRecords(EVENTS, {}, watch=Watch("news", 7))
    fleet = FleetCache().fleet(
        ReportedState({**FLEET.tables, table_id(EVENTS): watched}, dags=FLEET.dags), lambda _: True
    )
    assert set(fleet.of_asset("news", "x-news:events").rows) == {table_id(EVENTS)}
    assert fleet.of_asset("other news", "x-news:other").counts["unknown"] == 0
    assert set(fleet.of_asset("orders", ORDERS).rows) == {table_id(ORDERS)}


def test_only_the_rows_of_tables_with_news_are_made_again() -> None:
    fleets, everything = FleetCache(), lambda _: True
    first = fleets.fleet(FLEET, everything)
    assert fleets.fleet(FLEET, everything) is first
    assert first.counts["critical"] == first.counts["failing"] == 1
    later = state_of(health(EVENTS, "healthy", at_ms=NOW_MS + HOUR_MS), before=FLEET)
    second = fleets.fleet(later, everything)
    assert second.rows[table_id(EVENTS)]["status"] == "healthy"
    assert second.rows[table_id(ORDERS)] is first.rows[table_id(ORDERS)]
    assert (second.counts["healthy"], second.counts["failing"]) == (2, 0)
    gone = replace(later, tables={table_id(ORDERS): later.tables[table_id(ORDERS)]})
    assert set(fleets.fleet(gone, everything).rows) == {table_id(ORDERS)}
    # A thread that has begun with older news still gets its own answer.
    assert fleets.fleet(FLEET, everything).rows == first.rows


def test_a_remembered_order_is_the_order_of_the_rows() -> None:
    fleet = FleetCache().fleet(FLEET, lambda _: True)
    for sort in SORTS:
        for descending in (True, False):
            for query in (
                FleetQuery(sort=sort, descending=descending),
                FleetQuery(sort=sort, descending=descending, search="orders"),
                FleetQuery(sort=sort, descending=descending, status="failing"),
            ):
                for _ in range(2):
                    expected = matching(ordered(fleet.rows.values(), sort, descending=descending), query)
                    assert fleet.chosen(query) == expected
