"""The fleets of the page Delta tables in a real Airflow, seen by a real browser: a night that runs, and nights that are written."""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.fleet.nights import trusted
from tests.support.fleet.views import view_after
from tests.support.runs.lakehouse import WIDE, Lakehouse, Visit
from tests.support.runs.metadata_database import OfTask
from tests.support.tables.small_tables import write_days

from airflow_delta.monitoring.fleets.record import keep
from delta_maintenance.fleet.account.view import FleetView
from delta_maintenance.fleet.decision.holds import Hold
from live_airflow import LiveAirflow

if TYPE_CHECKING:
    from playwright.sync_api import Page, ViewportSize

pytestmark = pytest.mark.airflow

PAGE, DAG_ID = "/plugin/delta-tables", "keep_fleet"
NARROW: ViewportSize = {"width": 390, "height": 844}
PICTURES = os.environ.get("PAGE_PICTURES")
_RULES = [
    {"match": {"path": "s3://lake/gold/**"}, "owner": "bi@example.org"},
    {"match": {"path": "s3://lake/raw/**"}, "owner": "ingest@example.org"},
]


def _views() -> dict[str, FleetView]:
    """By the name of a fleet, its newest night."""
    last_ms = int(time.time() * 1000) - 2 * 3_600_000
    usual = trusted(
        rules=_RULES, budget={"read": "5TiB"}, trust={"new_table": "auto", "deletions": "approve"}
    )
    careful = trusted(
        rules=_RULES, trust={"new_table": "report", "after": "2 reports", "deletions": "approve"}
    )
    tight = trusted(rules=_RULES, budget={"read": "40GiB", "worker_hours": 40}, within="30h")
    paused = (Hold("pause", "**", "MIGRATION-7"),)
    return {
        "well": view_after(5, usual, 60, last_ms),
        "lake": view_after(5, tight, 60, last_ms, took=1.3, failing=["s3://lake/gold/table_0003"]),
        "waiting": view_after(4, careful, 60, last_ms),
        "paused": view_after(3, usual, 60, last_ms, holds=paused),
        "large": view_after(2, usual, 3_000, last_ms),
    }


@pytest.fixture(scope="module")
def lakehouse(
    tmp_path_factory: pytest.TempPathFactory, new_database: Callable[[], str]
) -> Iterator[Lakehouse]:
    lake = tmp_path_factory.mktemp("fleets") / "lake"
    tables = {name: lake / name for name in ("sales/events", "sales/orders")}
    for table in tables.values():
        write_days(table, files=4)
    views = _views()
    dags = tmp_path_factory.mktemp("dags")
    shutil.copy(Path(__file__).parent / "dags" / "fleets.py", dags)
    url = new_database()
    settings = {
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": url,
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": "admin:admin,vera:viewer",
        "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "3600",
        "AIRFLOW__DAG_PROCESSOR__REFRESH_INTERVAL": "3600",
        "FLEET_LAKE": str(lake),
        "OTHER_FLEETS": " ".join(views),
    }
    airflow = LiveAirflow(tmp_path_factory.mktemp("airflow"), dags, settings)
    try:
        airflow.start()
        night(airflow)
        for name, view in views.items():
            keep(OfTask(f"delta-maintenance:{name}", f"keep_{name}", url=url), view)
        yield Lakehouse(airflow, tables)
    finally:
        airflow.stop()


def night(airflow: LiveAirflow) -> dict[str, Any]:
    """A whole run of the fleet that runs; its report."""
    run_id = airflow.trigger(DAG_ID)
    assert airflow.wait_for_run(DAG_ID, run_id) == "success", airflow.story(DAG_ID, run_id)
    return dict(airflow.xcom(DAG_ID, run_id, "fleet.account"))


def number_of(lakehouse: Lakehouse, name: str) -> int:
    fleets = lakehouse.airflow.call("GET", "/delta-tables/v1/fleets")["fleets"]
    (found,) = (one["asset_id"] for one in fleets if one["asset"] == f"delta-maintenance:{name}")
    return int(found)


def shown(lakehouse: Lakehouse, name: str, query: str = "") -> dict[str, Any]:
    path = f"/delta-tables/v1/fleets/{number_of(lakehouse, name)}{query}"
    return dict(lakehouse.airflow.call("GET", path))


def picture(page: Page, name: str, tmp_path: Path) -> None:
    page.wait_for_timeout(300)
    page.screenshot(path=str(Path(PICTURES or tmp_path) / f"{name}.png"))


def test_a_person_pauses_a_table_on_the_page_and_the_next_night_leaves_it_alone(
    visit: Visit, lakehouse: Lakehouse, tmp_path: Path
) -> None:
    states = {Path(one["table"]).name: one["state"] for one in shown(lakehouse, "fleet")["tables"]}
    assert states == {"events": "done", "orders": "done"}
    events = lakehouse.tables["sales/events"]
    with visit(PAGE) as page:
        page.get_by_role("list", name="Fleets").get_by_role("link", name="fleet", exact=True).click()
        page.get_by_role("button", name=f"Pause {events}", exact=True).click()
        page.get_by_label("Reason").fill("migration <b>")
        picture(page, "fleet-pausing", tmp_path)
        page.get_by_role("button", name="Save").click()
        page.get_by_text(f"Paused: {events}").wait_for()
    for table in lakehouse.tables.values():
        shutil.rmtree(table)
        write_days(table, files=4)
    report = night(lakehouse.airflow)
    assert [(Path(one["table"]).name, one["run"]["operation"]) for one in report["done"]] == [
        ("orders", "optimize")
    ]
    assert report["skipped"]["paused"] == 1
    # Why was this table not optimized? A link, and a button.
    with visit(PAGE, user="vera") as page:
        page.get_by_role("list", name="Fleets").get_by_role("link", name="fleet", exact=True).click()
        page.get_by_role("button", name="1 Paused").click()
        page.get_by_role("table").get_by_text("migration <b>.").wait_for()
        assert page.get_by_role("button", name=re.compile("^Pause ")).count() == 0
        assert page.get_by_role("button", name=re.compile("^Take back")).count() == 0
    with visit(f"{PAGE}?fleet={number_of(lakehouse, 'fleet')}") as page:
        page.get_by_role("button", name=re.compile("^Take back")).click()
        page.get_by_text("Nothing is paused or acknowledged here.").wait_for()
    assert shown(lakehouse, "fleet")["holds"] == []


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("well", "Waits for approval"),
        ("lake", "More than the budget"),
        ("waiting", "Waits for approval"),
        ("paused", "Paused"),
        ("large", "3,000 in all"),
    ],
)
def test_each_kind_of_night_is_shown_in_both_themes_and_on_a_phone(
    visit: Visit, lakehouse: Lakehouse, tmp_path: Path, ui_sources: Path, name: str, told: str
) -> None:
    axe = (ui_sources / "node_modules" / "axe-core" / "axe.min.js").read_text()
    looks: tuple[tuple[ViewportSize, str], ...] = ((WIDE, "light"), (WIDE, "dark"), (NARROW, "dark"))
    for size, scheme in looks:
        with visit(f"{PAGE}?fleet={number_of(lakehouse, name)}", scheme=scheme, size=size) as page:
            page.get_by_role("heading", name=f"Fleet {name}").wait_for()
            assert told in page.locator("main").inner_text()
            picture(page, f"fleet-{name}-{scheme}-{size['width']}", tmp_path)
            wide = "document.querySelector('main').scrollWidth - document.querySelector('main').clientWidth"
            assert page.evaluate(wide) <= 0
            page.evaluate(axe)
            found = page.locator("main").evaluate("async (part) => (await axe.run(part)).violations")
            assert [(one["id"], [node["html"] for node in one["nodes"]]) for one in found] == []


def test_three_thousand_tables_are_grouped_sorted_and_saved(visit: Visit, lakehouse: Lakehouse) -> None:
    with visit(f"{PAGE}?fleet={number_of(lakehouse, 'large')}&group=owner") as page:
        page.get_by_role("region", name="Groups").get_by_role("button", name="bi@example.org").click()
        page.get_by_text("50 of 1,000 chosen, 3,000 in all").wait_for()
        page.get_by_label("Sort").select_option("greatest gain first")
        page.wait_for_url("**sort=gain**")
        page.get_by_role("button", name="Next").click()
        page.get_by_text("100 of 1,000 chosen, 3,000 in all").wait_for()
        with page.expect_download() as saved:
            page.get_by_role("link", name="CSV").click()
        assert len(Path(saved.value.path()).read_text().splitlines()) == 1_001
