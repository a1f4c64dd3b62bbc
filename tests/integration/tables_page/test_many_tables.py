"""The page Delta tables with sixty tables, of which six cannot be opened, two were dropped and ten were just optimized."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest
from tests.support.runs.lakehouse import Lakehouse, Visit
from tests.support.runs.metadata_database import entry_of, run_number
from tests.support.tables.small_tables import write_days

from airflow_delta.monitoring.record import record_of_health
from delta_log import Table
from delta_log.runtime import Runtime
from delta_maintenance.health.document import health_of
from delta_maintenance.health.options import HealthOptions
from live_airflow import LiveAirflow

if TYPE_CHECKING:
    from playwright.sync_api import Page, ViewportSize

pytestmark = [pytest.mark.slow, pytest.mark.airflow]

PAGE = "/plugin/delta-tables"
#: By what happens to the tables after the evening, their names.
HOLE = ("sales/orders", "sales/customer_interaction_events_enriched_daily_snapshot_v2", "web/clicks")
GARBAGE = ("finance/ledger", "finance/payments", "web/sessions")
DROPPED = ("tmp/import_2023", "tmp/import_2024")
OPTIMIZED = tuple(f"iot/device_measurements_by_minute_{number:02}" for number in range(10))
NEEDY = tuple(f"logistics/shipments_region_{number:02}" for number in range(12))
WELL = tuple(f"reference/dimension_{number:02}" for number in range(30))
DESKTOP: ViewportSize = {"width": 1400, "height": 1000}
TABLET: ViewportSize = {"width": 1100, "height": 1000}


@pytest.fixture(scope="module")
def lakehouse(
    tmp_path_factory: pytest.TempPathFactory, new_database: Callable[[], str]
) -> Iterator[Lakehouse]:
    home = tmp_path_factory.mktemp("lake")
    write_days(home / "small", files=8, rows=40, days=2)
    write_days(home / "well", files=2, rows=200, days=2)
    tables = {}
    for name in (*HOLE, *GARBAGE, *DROPPED, *OPTIMIZED, *NEEDY, *WELL):
        tables[name] = home / name
        shutil.copytree(home / ("well" if name in WELL else "small"), tables[name])
    evening = [_reading(table) for table in tables.values()]
    for name in HOLE:
        (tables[name] / "_delta_log" / f"{5:020}.json").unlink()
    for name in GARBAGE:
        (tables[name] / "_delta_log" / f"{7:020}.json").write_bytes(b"\x00garbage\xff" * 9)
    for name in DROPPED:
        shutil.rmtree(tables[name])
    choice = {
        "optimized": [str(tables[name]) for name in OPTIMIZED],
        "broken": [str(tables[name]) for name in (*HOLE, *GARBAGE, *DROPPED)],
    }
    dags = tmp_path_factory.mktemp("dags")
    shutil.copy(Path(__file__).parent / "dags" / "many_tables.py", dags)
    url = new_database()
    settings = {"AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": url, "PAGE_TABLES": json.dumps(choice)}
    airflow = LiveAirflow(tmp_path_factory.mktemp("airflow"), dags, settings)
    try:
        airflow.start()
        airflow.wait_for_dag("night")
        _add_readings(url, evening)
        run_id = airflow.trigger("night")
        assert airflow.wait_for_run("night", run_id) == "failed", airflow.story("night", run_id)
        # The tables that are broken fail the run, and no other may.
        assert _states(airflow, run_id, "optimize") == {"success"}, airflow.story("night", run_id)
        yield Lakehouse(airflow, tables)
    finally:
        airflow.stop()


def _states(airflow: LiveAirflow, run_id: str, task_id: str) -> set[str]:
    path = f"/api/v2/dags/night/dagRuns/{quote(run_id, safe='')}/taskInstances/{task_id}/listMapped?limit=100"
    return {task["state"] for task in airflow.call("GET", path)["task_instances"]}


def _reading(table: Path) -> dict[str, Any]:
    options = HealthOptions(small_files=5)
    return record_of_health(health_of(Table(str(table)), str(table), options, Runtime()))


def _add_readings(url: str, records: list[dict[str, Any]]) -> None:
    """Write what tasks have reported yesterday."""
    from airflow.models.task_state_store import TaskStateStoreModel
    from sqlalchemy import create_engine, insert
    from sqlalchemy.orm import Session

    yesterday_ms = int((datetime.now(timezone.utc) - timedelta(days=1)).timestamp() * 1000)
    names = {"dag_id": "night", "run_id": "yesterday", "task_id": "health"}
    with Session(create_engine(url)) as session, session.begin():
        run = run_number(session, names["dag_id"], names["run_id"])
        entries = [
            entry_of(record, yesterday_ms, run, map_index=number, **names)
            for number, record in enumerate(records)
        ]
        session.execute(insert(TaskStateStoreModel), entries)


def _overhang(page: Page) -> list[str]:
    """The page and its table, if they move sideways."""
    found: list[str] = page.evaluate(
        """() => [...document.querySelectorAll("main, main table, main :has(> table)")]
        .filter((one) => one.clientWidth > 0 && one.scrollWidth > one.clientWidth)
        .map((one) => `${one.tagName} ${one.scrollWidth} > ${one.clientWidth}: ${one.innerText.slice(0, 60)}`)"""
    )
    return found


def test_the_tables_stand_in_the_order_in_which_a_person_must_look_at_them(
    visit: Visit, lakehouse: Lakehouse, tmp_path: Path
) -> None:
    answer = lakehouse.airflow.call("GET", "/delta-tables/v1/tables?limit=100")
    counts = {name: number for name, number in answer["counts"].items() if number}
    assert counts == {"unreadable": 8, "attention": 12, "healthy": 40, "failing": 8}
    names = {str(path): name for name, path in lakehouse.tables.items()}
    order = [names[row["table"]] for row in answer["tables"]]
    assert [set(order[:6]), set(order[6:8]), set(order[8:20]), set(order[20:])] == [
        {*HOLE, *GARBAGE},
        set(DROPPED),
        set(NEEDY),
        {*OPTIMIZED, *WELL},
    ]
    assert [status for status, _ in groupby(row["status"] for row in answer["tables"])] == [
        "unreadable",
        "attention",
        "healthy",
    ]
    # Each run ends with a reading of its own.
    assert not any(row["is_older_than_work"] for row in answer["tables"])
    done = {names[row["table"]] for row in answer["tables"] if row["last_work"] is not None}
    assert done == set(OPTIMIZED)
    with visit(PAGE, size=DESKTOP) as page:
        heading = page.get_by_role("heading", name="Look first at ")
        heading.wait_for()
        first = answer["tables"][0]
        assert heading.text_content() == f"Look first at {first['name']}"
        box = heading.locator("xpath=../..")
        assert "Cannot be read" in box.inner_text()
        assert first["finding"]["message"] in box.inner_text()
        page.wait_for_timeout(300)
        page.screenshot(path=str(tmp_path / "many-tables-1400.png"))
        assert _overhang(page) == []
        page.get_by_role("button", name="Cannot be read").click()
        page.wait_for_url("**status=unreadable**")
        page.get_by_text("8 chosen, 60 in all").wait_for()
    with visit(PAGE, size=TABLET) as page:
        page.get_by_role("heading", name="Look first at ").wait_for()
        page.wait_for_timeout(300)
        page.screenshot(path=str(tmp_path / "many-tables-1100.png"))
        assert _overhang(page) == []
    with visit("/") as page:
        panel = page.locator("section", has=page.get_by_role("heading", name="Delta tables"))
        panel.get_by_role("link", name="8 cannot be read").wait_for()
        assert panel.get_by_role("listitem").count() == 3
    table = f"{PAGE}?table={first['id']}"
    with visit(table, size=DESKTOP) as page:
        page.get_by_text("No task can read this table").wait_for()
        page.get_by_text("What follows was found before.").wait_for()
        page.screenshot(path=str(tmp_path / "unreadable-table.png"))
