"""The page Delta tables in a real Airflow, seen by a real browser."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

import pytest
from tests.support.environment.corpus import Corpus
from tests.support.runs.lakehouse import STRANGER, WIDE, Lakehouse, Visit

from airflow_delta.monitoring.record import table_id
from delta_log import Table

if TYPE_CHECKING:
    from playwright.sync_api import Page, Response, ViewportSize

pytestmark = pytest.mark.airflow

PAGE, HOME = "/plugin/delta-tables", "/"
#: Tables whose health cannot be read: one is not there, one has a feature that no release knows.
UNREADABLE = ("absent", "ledger")
#: A sensor has told of one, a watcher of the other, and no task has read them.
AWAITED, WATCHED = "arrivals", "sessions"
NARROW: ViewportSize = {"width": 390, "height": 844}
#: Where the pictures of the documentation are made; without it they go to the directory of the test.
PICTURES = os.environ.get("PAGE_PICTURES")

#: Gives a table the address that it has in the documentation.
_SHORTEN_ADDRESSES = """() => {
const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (texts.nextNode()) texts.currentNode.data = texts.currentNode.data.replace(/\\/\\S*\\/lake0\\//, "/lake/");
}"""

#: Returns when the page has been drawn after what changed it, such as the size of the window.
_DRAWN = "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"


def picture(page: Page, name: str, tmp_path: Path) -> None:
    page.wait_for_timeout(300)
    if PICTURES:
        page.evaluate(_SHORTEN_ADDRESSES)
    page.screenshot(path=str(Path(PICTURES or tmp_path) / f"{name}.png"))


def health_of(table: Path) -> dict[str, Any]:
    command = [sys.executable, "-m", "delta_maintenance", "health", str(table), "--json"]
    limits = ["--small-files", "5", "--reclaimable-size", "0"]
    done = subprocess.run([*command, *limits], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)  # type: ignore[no-any-return]


def open_details(page: Page) -> None:
    """Show what is folded, so that its faults are seen, too."""
    page.evaluate("document.querySelectorAll('main details').forEach((one) => { one.open = true; })")


def run_of(lakehouse: Lakehouse, name: str, operation: str) -> dict[str, Any]:
    runs = told_of(lakehouse, lakehouse.tables[name])["runs"]
    return next(dict(run) for run in runs if run["operation"] == operation)


def task_page(lakehouse: Lakehouse, name: str) -> str:
    """The tab of the task instance that has optimized a table."""
    run = run_of(lakehouse, name, "optimize")
    place = f"/dags/{run['dag_id']}/runs/{quote(run['run_id'])}/tasks/{run['task_id']}"
    return f"{place}/mapped/{run['map_index']}/plugin/delta-tables-of-task"


def has_asset_tab(lakehouse: Lakehouse) -> bool:
    """Whether this Airflow can show the page on the page of an asset: 3.4 can, 3.3 cannot."""
    plugins = lakehouse.airflow.call("GET", "/api/v2/plugins")["plugins"]
    return any(app["destination"] == "asset" for plugin in plugins for app in plugin["react_apps"])


def asset_page(lakehouse: Lakehouse, uri: str) -> str:
    """The tab of an asset."""
    found = lakehouse.airflow.call("GET", f"/api/v2/assets?uri_pattern={quote(uri)}")["assets"]
    (asset,) = (one for one in found if one["uri"] == uri)
    return f"/assets/{asset['id']}/plugin/delta-tables-of-asset"


def views_of(lakehouse: Lakehouse) -> dict[str, str]:
    """By the address of each view, a heading that it has for those who may read it."""
    events, orders = (
        f"{PAGE}?table={table_id(str(lakehouse.tables[name]))}" for name in ("events", "orders")
    )
    number = run_of(lakehouse, "events", "optimize")["number"]
    asset = f"delta-maintenance:{lakehouse.tables['events']}"
    return {
        **({asset_page(lakehouse, asset): "Figures"} if has_asset_tab(lakehouse) else {}),
        PAGE: "Look first at ",
        events: "Figures",
        orders: "Findings",
        f"{events}&run={number}": "Before and after",
        "/dags/look_after_tables/plugin/delta-tables-of-dag": "Delta tables",
        task_page(lakehouse, "events"): "Before and after",
        HOME: "Delta tables",
    }


def told_of(lakehouse: Lakehouse, table: Path) -> dict[str, Any]:
    return dict(lakehouse.airflow.call("GET", f"/delta-tables/v1/tables/{table_id(str(table))}"))


def test_each_figure_is_that_of_the_command_line(lakehouse: Lakehouse) -> None:
    fleet = lakehouse.airflow.call("GET", "/delta-tables/v1/tables?limit=100")
    assert {row["table"] for row in fleet["tables"]} == {str(table) for table in lakehouse.tables.values()}
    assert fleet["broken"] == []
    for name, table in lakehouse.tables.items():
        if name in (*UNREADABLE, AWAITED, WATCHED):
            continue
        expected = health_of(table)
        told = told_of(lakehouse, table)["health"]
        assert (told["version"], told["status"]) == (expected["version"], expected["status"]), name
        assert told["findings"] == expected["findings"], name
        assert [one["operation"] for one in told["recommendations"]] == [
            one["operation"] for one in expected["recommendations"]
        ], name
        moving = {"measured", "removedFiles"}  # the time of the reading, and the cutoff that follows from it
        assert {k: v for k, v in told["facts"].items() if k not in moving} == {
            k: v for k, v in expected["facts"].items() if k not in moving
        }, name
        assert (
            told["facts"]["removedFiles"]["reclaimable"] == expected["facts"]["removedFiles"]["reclaimable"]
        ), name


def test_runs_tell_what_they_gained_what_they_skipped_and_how_they_failed(lakehouse: Lakehouse) -> None:
    def runs(name: str) -> dict[str, dict[str, Any]]:
        return {run["operation"]: run for run in told_of(lakehouse, lakehouse.tables[name])["runs"]}

    optimized = runs("events")["optimize"]
    assert (
        optimized["status"],
        optimized["table_size"]["files_before"],
        optimized["table_size"]["files_after"],
    ) == (
        "committed",
        60,
        2,
    )
    assert runs("products")["optimize"]["status"] == "nothing_to_do"
    assert set(runs("customers")) == {"optimize", "vacuum", "checkpoint"}
    failed = told_of(lakehouse, lakehouse.tables["absent"])
    assert {run["status"] for run in failed["runs"]} == {"failed"}
    assert failed["row"]["failure"] is not None, failed
    assert "not a Delta table" in failed["row"]["failure"]["message"]
    report = lakehouse.airflow.call("GET", f"/delta-tables/v1/runs/{optimized['number']}")
    assert report["health_before"]["num_files"] == 60
    assert report["health_after"]["num_files"] == 2
    assert any("60" in line for line in report["lines"])


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_reader_finds_the_table_to_look_at_and_its_reasons(
    visit: Visit, scheme: str, tmp_path: Path
) -> None:
    with visit(PAGE, scheme=scheme) as page:
        page.get_by_role("heading", name="Delta tables", exact=True).wait_for()
        page.get_by_role("table").wait_for()
        # The answer to "which table first, and why" stands above everything else.
        page.get_by_role("heading", name=re.compile("^Look first at ")).wait_for()
        picture(page, f"tables-page-{scheme}", tmp_path)
        page.get_by_role("button", name=re.compile("Needs attention")).click()
        page.wait_for_url("**status=attention**")
        page.get_by_role("searchbox", name="Search tables by address").fill("invoices")
        page.wait_for_url("**search=invoices**")
        page.get_by_role("link", name="invoices", exact=True).click()
        page.get_by_role("heading", name="Findings").wait_for()
        page.get_by_text("OPTIMIZE would merge 40 of 40 files; the limit is 5.").first.wait_for()
        picture(page, f"table-{scheme}", tmp_path)
        page.go_back()
        assert page.get_by_role("searchbox", name="Search tables by address").input_value() == "invoices"


def test_a_run_shows_the_table_before_and_after_it_and_leads_to_its_task(
    visit: Visit, lakehouse: Lakehouse, tmp_path: Path
) -> None:
    with visit(f"{PAGE}?table={table_id(str(lakehouse.tables['events']))}") as page:
        page.get_by_role("link", name="optimize", exact=True).click()
        page.get_by_role("heading", name="Before and after").wait_for()
        picture(page, "run", tmp_path)
        page.get_by_role("link", name="look_after_tables / optimize").click()
        page.wait_for_url("**/dags/look_after_tables/runs/**/tasks/optimize/mapped/0**")


def test_a_table_shows_where_its_small_files_are_who_wrote_it_and_what_a_run_would_do(
    visit: Visit, lakehouse: Lakehouse
) -> None:
    with visit(f"{PAGE}?table={table_id(str(lakehouse.tables['invoices']))}") as page:
        page.get_by_role("heading", name="Files by size").wait_for()
        page.get_by_text("40 files").first.wait_for()
        page.get_by_text("all to merge").wait_for()
        needs = page.get_by_role("region", name="Partitions by need")
        assert needs.get_by_role("row").count() == 3
        page.get_by_role("img", name=re.compile("delta-rs: 12 versions, 0 of them maintenance")).wait_for()
        assert "optimize" in page.get_by_role("heading", name="Latest plan").locator("..").inner_text()
        page.get_by_role("heading", name="Table features").wait_for()
    with visit(f"{PAGE}?table={table_id(str(lakehouse.tables['events']))}") as page:
        page.get_by_role("img", name=re.compile("airflow-provider-delta: 1 version, 1 of them")).wait_for()
        open_details(page)
        page.get_by_role("link", name="optimize run").click()
        page.get_by_role("heading", name="Time by phase").wait_for()
        partitions = page.get_by_role("region", name="By partition").get_by_role("row").all_inner_texts()
        assert [row.split("\t")[1:3] for row in partitions[1:]] == [["30", "1"], ["30", "1"]]


def test_a_dag_and_a_task_have_a_tab_and_the_home_page_a_panel(visit: Visit, lakehouse: Lakehouse) -> None:
    with visit("/dags/look_after_tables/plugin/delta-tables-of-dag") as page:
        page.get_by_role("heading", name="Delta tables").wait_for()
        page.get_by_text("of 6 tables").wait_for()
        page.get_by_role("link", name="events", exact=True).first.click()
        page.wait_for_url("**/dags/look_after_tables/plugin/delta-tables-of-dag?table=**")
    with visit(task_page(lakehouse, "events")) as page:
        page.get_by_role("heading", name="Before and after").wait_for()
    with visit("/") as page:
        panel = page.locator("section", has=page.get_by_role("heading", name="Delta tables"))
        panel.get_by_role("link", name=re.compile("needs attention")).click()
        page.wait_for_url("**/plugin/delta-tables?status=attention")
        page.get_by_role("table").wait_for()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_an_asset_has_a_tab_with_its_table(
    visit: Visit, lakehouse: Lakehouse, scheme: str, tmp_path: Path
) -> None:
    if not has_asset_tab(lakehouse):
        pytest.skip("Airflow 3.3 has no plugins on the page of an asset")
    with visit(asset_page(lakehouse, f"file://{lakehouse.tables['orders']}"), scheme=scheme) as page:
        page.get_by_role("heading", name="Findings").wait_for()
        picture(page, f"asset-{scheme}", tmp_path)
        page.get_by_role("link", name="All Delta tables").click()
        page.wait_for_url(f"**{PAGE}")
    with visit(asset_page(lakehouse, f"delta-maintenance:{lakehouse.tables['events']}")) as page:
        page.get_by_role("link", name="optimize", exact=True).click()
        page.wait_for_url("**/assets/*/plugin/delta-tables-of-asset?table=**&run=**")
    with visit(asset_page(lakehouse, "x-versions://tests/sessions")) as page:
        page.get_by_text("Watched for the asset news of sessions").wait_for()
    with visit(asset_page(lakehouse, "x-reports://monthly")) as page:
        page.get_by_text("No Delta table is known of this asset").wait_for()


def test_a_user_who_may_starts_the_maintenance_of_a_table(visit: Visit, lakehouse: Lakehouse) -> None:
    address = f"{PAGE}?table={table_id(str(lakehouse.tables['stock']))}"
    with visit(address, user="vera") as page:
        page.get_by_role("heading", name="Findings").wait_for()
        assert page.get_by_role("button", name="Start maintenance of stock").count() == 0
    with visit(address) as page:
        page.get_by_role("button", name="Start maintenance of stock").click()
        page.get_by_role("button", name="Start", exact=True).click()
        link = page.get_by_role("status").get_by_role("link")
        link.wait_for()
        run_id = link.inner_text()
    assert lakehouse.airflow.wait_for_run("maintain_table", run_id) == "success"
    done = run_of(lakehouse, "stock", "optimize")
    assert (done["run_id"], done["status"]) == (run_id, "committed")


@pytest.mark.slow
def test_each_kind_of_table_is_shown_with_its_features(lakehouse: Lakehouse, corpus: Corpus) -> None:
    expected = {
        "column_mapping": "columnMapping",
        "v2_checkpoint": "v2Checkpoint",
        "deletion_vectors": "deletionVectors",
        "clustered": "clustering",
        "iceberg": "icebergCompatV2",
    }
    for name, feature in expected.items():
        told = told_of(lakehouse, lakehouse.tables[name])
        notes = {one["name"]: one for one in told["features"]}
        assert notes[feature]["note"], name
        assert (told["row"]["status"] == "unsupported") == (name == "iceberg")
        assert bool(notes[feature]["refused"]) == (name == "iceberg")


def test_a_table_that_only_a_sensor_waits_for_is_known(lakehouse: Lakehouse) -> None:
    told = told_of(lakehouse, lakehouse.tables[AWAITED])
    assert (told["row"]["status"], told["row"]["sight"]["dag_id"]) == ("unknown", "wait_for_table")


def test_a_table_that_only_a_watcher_looks_at_is_known(visit: Visit, lakehouse: Lakehouse) -> None:
    row = told_of(lakehouse, lakehouse.tables[WATCHED])["row"]
    version = Table(str(lakehouse.tables[WATCHED])).snapshot().version
    assert (row["status"], row["watch"]["asset"], row["watch"]["version"]) == (
        "unknown",
        "news of sessions",
        version,
    )
    with visit(f"{PAGE}?search=sessions", user="vera") as page:
        # Narrow windows have a list instead of the table.
        row = page.get_by_role("table").get_by_text("A watcher looks at it. No task has read its health.")
        row.wait_for()
        page.get_by_role("link", name="sessions", exact=True).click()
        page.get_by_text(
            f"Watched for the asset news of sessions; its place in the log is version {version}."
        ).wait_for()


@pytest.mark.slow
def test_a_first_view_takes_few_requests_and_bytes(visit: Visit) -> None:
    answers: list[Response] = []
    with visit(PAGE, answers=answers) as page:
        page.get_by_role("table").wait_for()
        page.wait_for_load_state("networkidle")
        # Airflow's own UI loads the rest.
        ours = {urlsplit(one.url).path: one.body() for one in answers if "/delta-tables/" in one.url}
        requests = sum("/delta-tables/" in one.url for one in answers)
    assert set(ours) == {
        "/delta-tables/delta-tables.js",
        "/delta-tables/v1/fleets",
        "/delta-tables/v1/tables",
    }
    assert requests <= 5
    fleet = ours["/delta-tables/v1/tables"]
    # A page of tables has 50 of them.
    size = len(ours["/delta-tables/delta-tables.js"]) + 50 * len(fleet) / len(json.loads(fleet)["tables"])
    assert size <= 300_000


def test_the_counts_by_status_are_those_of_all_tables_and_failed_runs_stand_apart(
    visit: Visit, lakehouse: Lakehouse
) -> None:
    failing = lakehouse.airflow.call("GET", "/delta-tables/v1/tables?limit=1")["counts"]["failing"]
    assert failing > 0
    with visit(PAGE) as page:
        by_status = page.get_by_role("group", name=f"{len(lakehouse.tables)} tables, by status")
        by_status.get_by_role("button").first.wait_for()
        counts = [int(text.split()[0]) for text in by_status.get_by_role("button").all_inner_texts()]
        assert (len(counts), sum(counts)) == (6, len(lakehouse.tables))
        apart = page.get_by_role("group", name="Among them, of any status").get_by_role("button")
        assert [text.split() for text in apart.all_inner_texts()] == [[str(failing), "Failed", "run"]]


@pytest.mark.slow
def test_the_figures_are_explained_to_those_who_point_who_type_and_who_listen(visit: Visit) -> None:
    with visit(PAGE) as page:
        tail = page.get_by_role("button", name=re.compile("^Log tail"))
        assert "checkpoint" in (tail.get_attribute("title") or "")
        described = page.locator(f"#{tail.get_attribute('aria-describedby')}")
        assert described.text_content() == tail.get_attribute("title")
        assert not described.is_visible()
        page.get_by_text("What the figures mean").press("Enter")
        assert described.is_visible()
        assert page.get_by_text("VACUUM may delete them.").is_visible()


def test_a_stranger_sees_no_table_in_any_view(visit: Visit, lakehouse: Lakehouse) -> None:
    lake = str(lakehouse.tables["events"].parent)
    with visit(PAGE, user=STRANGER) as page:
        for address, heading in views_of(lakehouse).items():
            page.goto(f"{lakehouse.airflow.url}{address}")
            page.wait_for_load_state("networkidle")
            shown = page.locator("body").inner_text()
            assert lake not in shown, address
            if heading != "Delta tables":
                assert heading not in shown, address
        answer = page.request.get(f"{lakehouse.airflow.url}/delta-tables/v1/tables")
        assert answer.status == 403


@pytest.mark.slow
def test_the_page_is_read_on_a_phone_without_moving_it_sideways(
    visit: Visit, tmp_path: Path, lakehouse: Lakehouse
) -> None:
    addresses = {"fleet": PAGE, "table": f"{PAGE}?table={table_id(str(lakehouse.tables['orders']))}"}
    for name, address in addresses.items():
        with visit(address, size=NARROW) as page:
            page.get_by_role("heading", level=1).wait_for()
            picture(page, f"{name}-phone", tmp_path)
            wide = page.evaluate(
                "document.querySelector('main').scrollWidth - document.querySelector('main').clientWidth"
            )
            assert wide <= 0


@pytest.mark.slow
@pytest.mark.parametrize(("user", "scheme"), [("admin", "light"), ("vera", "dark")])
def test_admins_and_viewers_see_every_view_and_axe_finds_no_fault_in_it(
    visit: Visit, lakehouse: Lakehouse, ui_sources: Path, user: str, scheme: str
) -> None:
    axe = (ui_sources / "node_modules" / "axe-core" / "axe.min.js").read_text()
    views = views_of(lakehouse)
    with visit(PAGE, scheme=scheme, user=user) as page:
        for address, heading in views.items():
            page.set_viewport_size(WIDE)
            page.goto(f"{lakehouse.airflow.url}{address}")
            part = page.locator("main")
            if address == HOME:
                part = page.locator("section", has=page.get_by_role("heading", name="Delta tables"))
            part.get_by_role("heading", name=re.compile(f"^{heading}")).first.wait_for()
            page.evaluate(axe)
            for size in (WIDE, NARROW):
                page.set_viewport_size(size)
                page.evaluate(_DRAWN)
                open_details(page)
                found = part.evaluate("async (part) => (await axe.run(part)).violations")
                assert [(one["id"], [node["html"] for node in one["nodes"]]) for one in found] == [], (
                    address,
                    size,
                )


def test_a_hostile_name_is_shown_as_text(visit: Visit, lakehouse: Lakehouse) -> None:
    name = '<b>returns<b> & "refunds"'
    with visit(f"{PAGE}?search={quote('refunds')}") as page:
        page.get_by_role("link", name=name, exact=True).click()
        page.get_by_role("heading", name=name).wait_for()
        assert page.locator("main b").count() == 0


@pytest.mark.slow
def test_everything_is_reached_with_the_keyboard(visit: Visit) -> None:
    with visit(PAGE) as page:
        page.get_by_role("table").wait_for()
        page.get_by_role("searchbox").focus()
        reached = []
        for _ in range(12):
            page.keyboard.press("Tab")
            reached.append(page.evaluate("document.activeElement.textContent"))
        assert any("Status" in text for text in reached)
        page.get_by_role("button", name="Files", exact=True).press("Enter")
        page.wait_for_url("**sort=num_files**")
        # The address changes a moment before the table is drawn again.
        files = page.get_by_role("columnheader", name="Files", exact=True)
        files.and_(page.locator("[aria-sort=descending]")).wait_for()
