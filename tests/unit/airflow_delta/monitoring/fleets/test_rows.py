"""The choice, the order and the groups of a night's tables, and their CSV."""

from __future__ import annotations

import csv

import pytest
from tests.support.fleet.nights import MONDAY_EVENING_MS, trusted
from tests.support.fleet.views import view_after

from airflow_delta.monitoring.fleets.rows import SORTS, TablesQuery, chosen, counts_of, csv_of, groups_of
from delta_maintenance.fleet.account.view import LeftWork, TableNight

NOW_MS = MONDAY_EVENING_MS + 3_600_000
OWNED = trusted(rules=[{"match": {"path": "s3://lake/gold/**"}, "owner": "bi@example.org"}])
TABLES = view_after(1, OWNED, 60, failing=["s3://lake/gold/table_0003"]).tables


def names(**query: object) -> list[str]:
    return [one.table for one in chosen(TABLES, TablesQuery(**query), NOW_MS)]  # type: ignore[arg-type]


def test_the_counts_by_state_add_up() -> None:
    counts = counts_of(TABLES, NOW_MS)
    beside = {"unhealthy", "late"}
    assert sum(number for state, number in counts.items() if state not in beside) == 60
    assert counts["failed"] == 1
    assert counts["unhealthy"] == len(names(state="unhealthy"))


def test_tables_are_chosen_by_state_address_owner_and_time_without_a_write() -> None:
    assert names(state="failed") == ["s3://lake/gold/table_0003"]
    assert len(names(prefix="s3://lake/raw/")) == 20
    assert names(owner="bi@example.org") == names(prefix="s3://lake/gold/")
    assert len(names(owner="-")) == 40
    assert names(search="HAS NO LOG") == ["s3://lake/gold/table_0054", "s3://lake/silver/table_0004"]
    idle = chosen(TABLES, TablesQuery(idle_days=30), NOW_MS)
    assert idle
    assert all((one.written_ms or 0) < NOW_MS - 30 * 86_400_000 for one in idle)


def test_the_most_urgent_table_comes_first_and_healthy_ones_last() -> None:
    states = [one.state for one in chosen(TABLES, TablesQuery(), NOW_MS)]
    assert (states[0], states[-1]) == ("failed", "healthy")
    gains = [one.value for one in chosen(TABLES, TablesQuery(sort="gain", descending=True), NOW_MS)]
    assert gains == sorted(gains, reverse=True)


@pytest.mark.parametrize("sort", SORTS)
@pytest.mark.parametrize("descending", [False, True])
def test_every_order_has_every_table(sort: str, descending: bool) -> None:
    assert len(names(sort=sort, descending=descending)) == len(TABLES)


def test_groups_by_directory_and_by_owner_have_every_table_once() -> None:
    directories = groups_of(TABLES, "prefix")
    assert {one.name for one in directories} == {f"s3://lake/{area}/" for area in ("gold", "silver", "raw")}
    for groups in (directories, groups_of(TABLES, "owner")):
        assert sum(one.num_tables for one in groups) == len(TABLES)
        assert sum(one.small_files for one in groups) == sum(one.small_files or 0 for one in TABLES)


def test_csv_has_a_line_for_each_table_and_no_formula() -> None:
    hostile = TableNight("=cmd()", "healthy", "@owner", left=(LeftWork("healthy", "-1\r\nx,y"),))
    rows = list(csv.DictReader(csv_of([*TABLES, hostile])))
    assert [row["table"] for row in rows] == [*(one.table for one in TABLES), "'=cmd()"]
    assert (rows[-1]["owner"], rows[-1]["why"][0]) == ("'@owner", "'")
    assert rows[1]["done"].startswith("optimize:")
