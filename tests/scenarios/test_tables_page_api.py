"""The API of the page Delta tables, within a real API server of Airflow on a metadata database of SQLite."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from hashlib import sha256
from typing import Any, get_args

import pytest
from airflow import __version__ as airflow_version
from airflow.sdk import Asset
from packaging.version import Version
from tests.support.records import HOSTILE, HOUR_MS, health_document
from tests.support.runs.metadata_database import (
    ApiServer,
    add_dags,
    add_record,
    counted_queries,
    entry_of,
    start_api_server,
)

from airflow_delta.assets import data_asset, maintenance_asset
from airflow_delta.monitoring.api import SortName, StatusName
from airflow_delta.monitoring.fleet import SORTS, STATUSES
from airflow_delta.monitoring.plugin import react_apps
from airflow_delta.monitoring.record import record_of_health, record_of_report, table_id
from delta_maintenance.contract import ErrorReport, JobReport

pytestmark = pytest.mark.airflow

TABLES = "/delta-tables/v1/tables"
TASK = "/delta-tables/v1/task?dag_id=nightly&run_id=run&task_id=task"
ROUTES = (
    TABLES,
    f"{TABLES}/{'0' * 24}",
    "/delta-tables/v1/runs/1",
    TASK,
    "/delta-tables/openapi.json",
    "/delta-tables/delta-tables.js",
)


@pytest.fixture(scope="module")
def server() -> ApiServer:
    return start_api_server()


@pytest.fixture
def api(server: ApiServer) -> Iterator[ApiServer]:
    """The server without records; the DAG `nightly` is there."""
    from airflow.models.dag import DagModel
    from airflow.models.dagrun import DagRun
    from airflow.utils.session import create_session
    from sqlalchemy import delete

    add_dags("nightly")
    yield server
    with create_session() as session:
        for model in (DagRun, DagModel):
            session.execute(delete(model))


def now_ms() -> int:
    return int(time.time() * 1000)


def tell_health(table: str, status: str = "healthy", *, age_hours: float = 0, **arguments: Any) -> int:
    record = record_of_health(health_document(table, status))
    return add_record(record, now_ms() - int(age_hours * HOUR_MS), **arguments)


def tell_run(table: str, status: str = "committed", *, age_hours: float = 0, **arguments: Any) -> int:
    record = record_of_report(JobReport("optimize", table, status, version=74), ["Two files became one."])
    return add_record(record, now_ms() - int(age_hours * HOUR_MS), **arguments)


def leave_failure(table: str, message: str, **arguments: Any) -> int:
    report = JobReport("vacuum", table, "failed", error=ErrorReport("E", message))
    return add_record(record_of_report(report, []), now_ms(), task_id="vacuum", **arguments)


def read(api: ApiServer, path: str = TABLES, **parameters: Any) -> Any:
    answer = api.get(path, **parameters)
    assert answer.status_code == 200, answer.text
    return answer.json()


@pytest.mark.parametrize("path", ROUTES)
def test_no_route_answers_without_a_token_or_with_one_that_was_changed(api: ApiServer, path: str) -> None:
    assert api.get(path, role=None).status_code == 401
    changed = api.token("admin")[:-8] + "AAAAAAAA"
    assert api.client.get(path, headers={"Authorization": f"Bearer {changed}"}).status_code in (401, 403)
    assert api.client.get(path, headers={"Cookie": f"_token={changed}"}).status_code in (401, 403)


@pytest.mark.parametrize("path", ROUTES[:4])
def test_a_user_without_the_permission_for_assets_reads_nothing(api: ApiServer, path: str) -> None:
    assert api.get(path, role="stranger").status_code == 403


@pytest.mark.parametrize("path", ROUTES)
@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
def test_nothing_can_be_changed(api: ApiServer, path: str, method: str) -> None:
    headers = {"Authorization": f"Bearer {api.token('admin')}"}
    assert api.client.request(method, path, headers=headers).status_code == 405


@pytest.mark.parametrize("path", ROUTES)
def test_answers_forbid_to_be_run_framed_and_guessed(api: ApiServer, path: str) -> None:
    headers = api.get(path).headers
    assert "default-src 'none'" in headers["content-security-policy"]
    assert "frame-ancestors 'none'" in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["cache-control"].startswith("private")


def test_a_viewer_sees_a_table_its_run_and_its_failure(api: ApiServer) -> None:
    number = tell_run("s3://lake/events", age_hours=2)
    tell_health("s3://lake/events", "attention", age_hours=1)
    leave_failure("s3://lake/events", "No such host.")
    fleet = read(api)
    (row,) = fleet["tables"]
    assert (row["status"], row["num_files"], row["small_files"]) == ("attention", 422, 416)
    assert row["failure"]["message"] == "No such host."
    assert fleet["counts"]["attention"] == fleet["counts"]["failing"] == fleet["total"] == 1
    view = read(api, f"{TABLES}/{row['id']}")
    assert view["health"]["findings"] == health_document("s3://lake/events", "attention")["findings"]
    assert [run["status"] for run in view["runs"]] == ["failed", "committed"]
    run = read(api, f"/delta-tables/v1/runs/{number}")
    assert run["lines"] == ["Two files became one."]
    assert run["health_after"]["version"] == 73


def test_the_newest_reading_counts_and_the_others_are_its_history(api: ApiServer) -> None:
    for hours, status in ((30, "critical"), (20, "healthy"), (10, "attention")):
        tell_health("s3://lake/events", status, age_hours=hours)
    (row,) = read(api)["tables"]
    assert row["status"] == "attention"
    tell_health("s3://lake/events", "healthy")
    view = read(api, f"{TABLES}/{row['id']}")
    assert view["row"]["status"] == "healthy"
    assert [point["status"] for point in view["trend"]] == ["critical", "healthy", "attention", "healthy"]


def test_records_that_come_later_are_seen_and_those_that_were_deleted_are_forgotten(api: ApiServer) -> None:
    from airflow.models.task_state_store import TaskStateStoreModel
    from airflow.utils.session import create_session
    from sqlalchemy import delete

    first = tell_health("s3://lake/one", age_hours=48)
    assert read(api)["total"] == 1
    tell_health("s3://lake/two")
    tell_health("s3://lake/three", age_hours=0.1)
    assert read(api)["total"] == 3
    with create_session() as session:  # as `airflow db clean` does
        session.execute(delete(TaskStateStoreModel).where(TaskStateStoreModel.id == first))
    assert {row["name"] for row in read(api)["tables"]} == {"two", "three"}
    assert api.get(f"{TABLES}/{table_id('s3://lake/one')}").status_code == 404


def test_what_is_older_than_the_setting_is_not_shown(api: ApiServer) -> None:
    tell_health("s3://lake/old", age_hours=91 * 24)
    tell_health("s3://lake/new", age_hours=89 * 24)
    assert [row["name"] for row in read(api)["tables"]] == ["new"]


def test_a_dag_that_the_reader_may_not_see_tells_them_nothing(api: ApiServer) -> None:
    # Airflow names no DAG to a reader that it does not have any more.
    number = tell_run("s3://lake/secret", dag_id="of another team")
    tell_health("s3://lake/open")
    assert [row["name"] for row in read(api)["tables"]] == ["open"]
    assert api.get(f"{TABLES}/{table_id('s3://lake/secret')}").status_code == 404
    assert api.get(f"/delta-tables/v1/runs/{number}").status_code == 404
    add_dags("of another team")
    assert read(api)["total"] == 2


def test_entries_that_are_no_records_are_counted_and_the_rest_stands(api: ApiServer) -> None:
    tell_health("s3://lake/sound")
    for number, value in enumerate(
        (
            {},
            {"record_version": 99},
            ["a list"],
            {"record_version": 1, "kind": "run", "table": "t", "report": {"status": "\0"}},
            record_of_health(health_document("s3://lake/another")),
        )
    ):
        add_record(value, now_ms() + number, f"delta_record.-1.1.{number:024}.optimize..")
    add_record({"record_version": 2}, now_ms() + 5, "delta_record.of another release")
    fleet = read(api)
    assert [row["name"] for row in fleet["tables"]] == ["sound"]
    assert [one["why"] for one in fleet["broken"]] == [
        "it has no record_version 1",
        "it has no record_version 1",
        "it is not an object",
        "its report names no operation and status",
        "its key does not name its table",
        "it has no record_version 1",
    ]


def test_a_record_is_read_whatever_the_order_of_its_members(api: ApiServer) -> None:
    record = record_of_health(health_document("s3://lake/one", "critical"))
    add_record({name: record[name] for name in sorted(record, key=len)}, now_ms())
    run = record_of_report(JobReport("optimize", "s3://lake/two", "committed"), [])
    run["report"] = dict(reversed(run["report"].items()))
    add_record(run, now_ms())
    long = "s3://lake/" + "\u05d0" * 500
    add_record(record_of_health(health_document(long)), now_ms())
    rows = {row["table"]: row for row in read(api)["tables"]}
    assert set(rows) == {"s3://lake/one", "s3://lake/two", long}
    assert rows["s3://lake/one"]["status"] == "critical"
    assert rows["s3://lake/two"]["last_work"]["operation"] == "optimize"
    for row in rows.values():
        assert read(api, f"{TABLES}/{row['id']}")["row"]["id"] == row["id"]


def test_an_entry_of_another_key_is_no_run(api: ApiServer) -> None:
    record = record_of_report(JobReport("optimize", "t", "committed"), [])
    number = add_record(record, now_ms(), "delta_recordings")
    assert api.get(f"/delta-tables/v1/runs/{number}").status_code == 404
    assert read(api)["total"] == 0


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_names_arrive_as_text(api: ApiServer, text: str) -> None:
    tell_run(f"s3://lake/{text}", dag_id="nightly", run_id=text[:200].replace("\0", ""))
    (row,) = read(api)["tables"]
    assert row["table"].isprintable()
    answer = api.get(f"{TABLES}/{row['id']}")
    assert answer.headers["content-type"] == "application/json"
    assert answer.json()["row"]["id"] == row["id"]
    assert read(api, search="LAKE")["total"] == 1


@pytest.mark.parametrize(
    "path",
    [
        f"{TABLES}/s3:%2F%2Flake%2Fevents",
        f"{TABLES}/..%2F..%2Fetc%2Fpasswd",
        f"{TABLES}/{'g' * 24}",
        "/delta-tables/v1/runs/0",
        "/delta-tables/v1/runs/x",
        f"/delta-tables/v1/runs/{2**63}",
        f"{TABLES}?limit=101",
        f"{TABLES}?limit=-1",
        f"{TABLES}?offset=-1",
        f"{TABLES}?sort=__class__",
        f"{TABLES}?status=' OR 1=1 --",
        f"{TABLES}?search={'x' * 501}",
        "/delta-tables/..%2Fplugin.py",
        "/delta-tables/delta-tables.js/../plugin.py",
    ],
)
def test_what_is_no_name_number_or_choice_is_refused(api: ApiServer, path: str) -> None:
    assert api.get(path).status_code in (404, 422)


def test_a_fleet_of_three_thousand_tables_takes_as_many_queries_as_one_of_three_and_one_page_of_bytes(
    api: ApiServer,
) -> None:
    from airflow.models.task_state_store import TaskStateStoreModel
    from airflow.utils.session import create_session
    from sqlalchemy import insert

    def queries() -> int:
        with counted_queries(api.engine) as statements:
            read(api)
        # What watchers remember is read again after half a minute, which may pass meanwhile.
        return sum("task_state_store" in statement for statement in statements)

    tell_health("s3://lake/table-0", "critical")
    read(api)
    first = tell_health("s3://lake/table-1", "critical")
    few = queries()
    with create_session() as session:
        like = session.get(TaskStateStoreModel, first)
        assert like is not None
        rows = [
            entry_of(
                record_of_health(health_document(f"s3://lake/table-{number}", "critical")),
                now_ms(),
                like.dag_run_id,
            )
            for number in range(2, 3_000)
        ]
        session.execute(insert(TaskStateStoreModel), rows)
    assert queries() == few
    assert queries() == few - 2, "without news only the sums of the last entries are asked for"
    answer = api.get(TABLES, limit=50)
    assert answer.json()["total"] == 3_000
    # With the page's script: what a first view takes.
    script = api.get("/delta-tables/delta-tables.js")
    assert len(answer.content) + len(script.content) < 300_000
    assert len(answer.content) < 150_000
    found = read(api, search="table-2999", sort="size_bytes", order="desc")
    assert [row["name"] for row in found["tables"]] == ["table-2999"]
    last = read(api, offset=2_990)
    assert len(last["tables"]) == 10


def test_a_dag_has_the_tables_that_it_has_told_of(api: ApiServer) -> None:
    add_dags("weekly")
    tell_health("s3://lake/events")
    tell_health("s3://lake/orders", dag_id="weekly")
    tell_run("s3://lake/events", dag_id="weekly")
    assert len(read(api)["tables"]) == 2
    assert [row["name"] for row in read(api, dag_id="nightly")["tables"]] == ["events"]
    assert {row["name"] for row in read(api, dag_id="weekly")["tables"]} == {"events", "orders"}
    assert read(api, dag_id="other")["counts"]["healthy"] == 0


def test_an_asset_has_the_table_whose_data_or_maintenance_it_stands_for(api: ApiServer) -> None:
    def names(asset: Asset) -> set[str]:
        found = read(api, asset_name=asset.name, asset_uri=asset.uri)["tables"]
        return {row["name"] for row in found}

    for table in ("s3://lake/events", "s3://lake/events_2024", "s3://lake/größe"):
        tell_health(table)
    assert names(data_asset("s3://lake/events")) == names(data_asset("s3a://lake/events/")) == {"events"}
    assert names(Asset(name="of events", uri="s3://lake/events")) == {"events"}
    assert names(maintenance_asset("s3://lake/größe")) == {"größe"}
    assert names(Asset("x-reports://monthly")) == set()
    assert api.get(f"{TABLES}?asset_uri={'x' * 1_501}").status_code == 422


def test_a_task_instance_has_what_it_has_told_and_no_other_task_has_it(api: ApiServer) -> None:
    number = tell_run("s3://lake/events", run_id="run")
    tell_health("s3://lake/events", "critical", task_id="health", run_id="run")
    leave_failure("s3://lake/orders", "No such host.", run_id="run")
    (told,) = read(api, TASK)["told"]
    assert (told["kind"], told["run"]["number"], told["row"]["status"]) == ("run", number, "critical")
    (failed,) = read(api, TASK.replace("task_id=task", "task_id=vacuum"))["told"]
    assert (failed["run"]["status"], failed["row"]["name"]) == ("failed", "orders")
    assert read(api, f"{TASK}&map_index=3")["told"] == []
    mapped = tell_run("s3://lake/orders", run_id="run", map_index=3)
    tell_run("s3://lake/orders", run_id="run", map_index=33)
    (told,) = read(api, f"{TASK}&map_index=3")["told"]
    assert (told["run"]["number"], told["run"]["map_index"]) == (mapped, 3)
    assert api.get(TASK.replace("nightly", "secret")).status_code == 404


def test_a_task_that_is_tried_again_shows_its_newest_try_and_the_table_shows_every_try(
    api: ApiServer,
) -> None:
    leave_failure("s3://lake/events", "No such host.", run_id="run")
    report = record_of_report(JobReport("vacuum", "s3://lake/events", "committed"), [])
    number = add_record(report, now_ms() + 1, run_id="run", task_id="vacuum", try_number=2)
    (told,) = read(api, TASK.replace("task_id=task", "task_id=vacuum"))["told"]
    assert (told["run"]["number"], told["row"]["failure"]) == (number, None)
    runs = read(api, f"{TABLES}/{told['row']['id']}")["runs"]
    assert [(run["status"], run["number"]) for run in runs] == [("committed", number), ("failed", None)]


def test_a_server_whose_airflow_deletes_records_says_so(
    api: ApiServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from airflow_delta.monitoring.api import configured_app

    configured_app()
    assert "clear_on_success" not in caplog.text
    monkeypatch.setenv("AIRFLOW__STATE_STORE__CLEAR_ON_SUCCESS", "True")
    configured_app()
    assert "clear_on_success" in caplog.text


def test_a_row_has_the_trend_of_the_readings_that_the_reader_may_see(api: ApiServer) -> None:
    for hours, dag_id in ((3, "nightly"), (2, "secret"), (1, "nightly")):
        tell_health("s3://lake/events", age_hours=hours, dag_id=dag_id)
    (row,) = read(api)["tables"]
    assert row["trend"] == {"num_files": [422, 422], "small_files": [416, 416]}
    tell_health("s3://lake/events")
    (row,) = read(api)["tables"]
    assert row["trend"]["num_files"] == [422] * 3


def test_only_a_user_who_may_start_the_maintenance_dag_is_offered_it(
    api: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    tell_health("s3://lake/events", "attention")
    assert read(api)["maintenance_dag"] is None
    monkeypatch.setenv("AIRFLOW__DELTA__MAINTENANCE_DAG", "nightly")
    offered = {}
    for role in ("viewer", "user", "admin"):
        headers = {"Authorization": f"Bearer {api.token(role)}"}
        offered[role] = api.client.get(TABLES, headers=headers).json()["maintenance_dag"]
    assert offered == {"viewer": None, "user": "nightly", "admin": "nightly"}
    (row,) = read(api)["tables"]
    assert row["is_exact"]
    assert read(api, f"{TABLES}/{row['id']}")["maintenance_dag"] is None


def test_the_description_has_every_route_and_names_its_answers(api: ApiServer) -> None:
    description = read(api, "/delta-tables/openapi.json")
    assert set(description["paths"]) == {
        "/v1/tables",
        "/v1/tables/{identity}",
        "/v1/runs/{number}",
        "/v1/task",
        "/v1/fleets",
        "/v1/fleets/{asset_id}",
        "/v1/fleets/{asset_id}/tables.csv",
    }
    table = description["paths"].pop("/v1/fleets/{asset_id}/tables.csv")
    assert "text/csv" in table["get"]["responses"]["200"]["content"]
    for path in description["paths"].values():
        assert set(path) == {"get"}
        assert path["get"]["description"]
        assert "$ref" in path["get"]["responses"]["200"]["content"]["application/json"]["schema"]


def test_the_query_knows_every_order_and_status() -> None:
    assert set(get_args(SortName)) == set(SORTS)
    assert set(get_args(StatusName)) == {*STATUSES, "failing"}


def test_the_script_is_asked_for_once_for_each_release(api: ApiServer) -> None:
    answer = api.get("/delta-tables/delta-tables.js")
    assert answer.headers["content-type"].startswith("text/javascript")
    assert len(sha256(answer.content).hexdigest()) == 64
    token = {"Authorization": f"Bearer {api.token()}", "If-None-Match": answer.headers["etag"]}
    assert api.client.get("/delta-tables/delta-tables.js", headers=token).status_code == 304


def test_airflow_lists_the_page_and_finds_no_fault_with_the_plugin(api: ApiServer) -> None:
    plugins = {plugin["name"]: plugin for plugin in read(api, "/api/v2/plugins", role="admin")["plugins"]}
    apps = plugins["delta_tables"]["react_apps"]
    places = {app["destination"]: app.get("url_route") for app in apps}
    assert places.pop("asset", None) == (
        "delta-tables-of-asset" if Version(airflow_version).release >= (3, 4) else None
    )
    assert places == {
        "nav": "delta-tables",
        "dag": "delta-tables-of-dag",
        "task_instance": "delta-tables-of-task",
        "dashboard": None,
    }
    assert {app["bundle_url"] for app in apps} == {"/delta-tables/delta-tables.js"}
    script = api.get("/delta-tables/delta-tables.js").text
    for app in apps:
        assert f'["{app["name"]}"]' in script, "Airflow's UI takes the component of this name"
    assert (
        json.dumps(read(api, "/api/v2/plugins/importErrors", role="admin")["import_errors"]).count("delta")
        == 0
    )


def test_a_place_that_this_airflow_does_not_know_yet_is_left_out() -> None:
    def places(named: str, release: tuple[int, int]) -> list[str]:
        return [app["destination"] for app in react_apps(named, release)]

    assert places("nav, asset", (3, 3)) == ["nav"]
    assert places("nav, asset", (3, 4)) == places("asset, nav", (4, 0)) == ["nav", "asset"]
    assert places("elsewhere, dashboard", (3, 4)) == ["dashboard"]
