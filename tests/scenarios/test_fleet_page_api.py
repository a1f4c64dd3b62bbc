"""The API of the page Delta tables about fleets, within a real API server of Airflow on a metadata database of SQLite."""

from __future__ import annotations

import csv
import time
from collections.abc import Iterator
from typing import Any, get_args

import msgspec
import pytest
from msgspec.structs import replace
from tests.support.fleet.nights import trusted
from tests.support.fleet.views import view_after
from tests.support.runs.metadata_database import (
    ApiServer,
    OfTask,
    add_dags,
    asset_id_of,
    counted_queries,
    remember,
    start_api_server,
)

from airflow_delta.monitoring.api import FleetSortName
from airflow_delta.monitoring.fleets.record import HEAD, HOLDS, Head, keep, packed
from airflow_delta.monitoring.fleets.rows import SORTS
from airflow_delta.monitoring.record import table_id
from delta_maintenance.fleet.account.view import FleetView

pytestmark = pytest.mark.airflow

FLEETS, ASSET = "/delta-tables/v1/fleets", "delta-maintenance:fleet"
DAY_MS = 86_400_000


@pytest.fixture(scope="module")
def server() -> ApiServer:
    return start_api_server()


@pytest.fixture
def api(server: ApiServer) -> Iterator[ApiServer]:
    """The server without fleets; the DAG `nightly` is there."""
    from airflow.models.asset import AssetModel
    from airflow.models.asset_state_store import AssetStateStoreModel
    from airflow.models.dag import DagModel
    from airflow.utils.session import create_session
    from sqlalchemy import delete

    add_dags("nightly")
    yield server
    with create_session() as session:
        for model in (AssetStateStoreModel, AssetModel, DagModel):
            session.execute(delete(model))


class OfApi(OfTask):
    """The same as a caller of Airflow's REST API writes to it."""

    def set(self, key: str, value: Any) -> None:
        remember(ASSET, key, value, by="api")


def night(age_days: float = 0, count: int = 60, **last: Any) -> FleetView:
    last_ms = int(time.time() * 1000 - age_days * DAY_MS) - 3_600_000
    return view_after(3, trusted(), count, last_ms, **last)


def path(asset: str = ASSET) -> str:
    return f"{FLEETS}/{asset_id_of(asset)}"


def test_a_fleet_is_shown_with_its_figures_budget_and_tables(api: ApiServer) -> None:
    keep(OfTask(ASSET), night(failing=["s3://lake/gold/table_0003"]))
    (line,) = api.get(FLEETS).json()["fleets"]
    assert (line["asset"], line["dag_id"], line["figures"]["num_tables"]) == (ASSET, "nightly", 60)
    assert [one["kind"] for one in line["alerts"]] == ["failed", "late"]
    fleet = api.get(path(), limit=2, state="failed").json()
    assert fleet["counts"]["failed"] == fleet["total"] == 1
    (row,) = fleet["tables"]
    assert (row["id"], row["table"]) == (table_id("s3://lake/gold/table_0003"), "s3://lake/gold/table_0003")
    assert row["done"][0]["message"] == "it went wrong"
    assert {one["resource"] for one in fleet["budget"]} == {"read", "worker_hours", "requests"}
    groups = api.get(path(), group="prefix").json()["groups"]
    assert sum(one["num_tables"] for one in groups) == 60


def test_pages_orders_and_csv(api: ApiServer) -> None:
    keep(OfTask(ASSET), night())
    assert set(get_args(FleetSortName)) == set(SORTS)
    for sort in SORTS:
        found = [
            row["table"]
            for offset in (0, 40)
            for row in api.get(path(), sort=sort, offset=offset, limit=40).json()["tables"]
        ]
        assert len(set(found)) == 60, sort
    answer = api.get(f"{path()}/tables.csv", state="unread")
    assert answer.headers["content-type"] == "text/csv; charset=utf-8"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert [row["state"] for row in csv.DictReader(answer.text.splitlines())] == ["unread", "unread"]


def test_a_night_is_read_once_and_a_request_takes_few_statements_whatever_the_number_of_tables(
    api: ApiServer,
) -> None:
    keep(OfTask(ASSET), night(count=3_000))
    with counted_queries(api.engine) as first:
        assert api.get(path()).json()["total"] == 3_000
    with counted_queries(api.engine) as second:
        assert api.get(path()).json()["total"] == 3_000
    ours = [[one for one in found if "asset_state_store" in one] for found in (first, second)]
    assert [len(one) for one in ours] == [2, 1]


def test_a_new_night_is_shown_by_the_next_request(api: ApiServer) -> None:
    keep(OfTask(ASSET), replace(night(), run_id="first"))
    assert api.get(path()).json()["run_id_of_fleet"] == "first"
    keep(OfTask(ASSET), replace(night(), run_id="second"))
    assert api.get(path()).json()["run_id_of_fleet"] == "second"


def test_a_fleet_that_has_not_run_for_two_of_its_intervals_is_an_alert(api: ApiServer) -> None:
    keep(OfTask(ASSET), night(age_days=3))
    (line,) = api.get(FLEETS).json()["fleets"]
    assert line["alerts"][0]["kind"] == "not_run"


def test_a_reader_sees_the_fleets_of_the_dags_that_they_may_read(api: ApiServer) -> None:
    keep(OfTask(ASSET, "not_there"), night())
    assert api.get(FLEETS).json()["fleets"] == []
    assert api.get(path()).status_code == api.get(f"{path()}/tables.csv").status_code == 404
    for route in (FLEETS, path(), f"{path()}/tables.csv"):
        assert api.get(route, role=None).status_code == 401
        assert api.get(route, role="stranger").status_code == 403


def test_what_a_caller_of_airflows_api_writes_is_no_fleet(api: ApiServer) -> None:
    keep(OfApi(ASSET), night())
    assert api.get(FLEETS).json()["fleets"] == []
    # Nor are parts that take the place of those of a task.
    view = night()
    keep(OfTask(ASSET), view)
    head = Head(view.run_id, len(packed(view)), view.view_version)
    OfApi(ASSET).set(head.part_keys()[0], packed(night(count=5))[0])
    assert api.get(FLEETS).json()["fleets"][0]["broken"] == "a part of it is not there"


def test_what_cannot_be_read_is_told_and_the_others_are_shown(api: ApiServer) -> None:
    keep(OfTask(ASSET), night())
    OfTask("delta-maintenance:other").set(HEAD, {"run_id": 7})
    found = {one["asset"]: one for one in api.get(FLEETS).json()["fleets"]}
    assert found[ASSET]["broken"] == ""
    assert found["delta-maintenance:other"]["figures"] is None
    assert "Expected `str`" in found["delta-maintenance:other"]["broken"]
    answer = api.get(path("delta-maintenance:other"))
    assert (answer.status_code, "cannot be read" in answer.json()["detail"]) == (404, True)


def test_who_may_write_to_the_asset_may_change_what_is_paused(api: ApiServer) -> None:
    keep(OfTask(ASSET), night())
    assert [api.get(path(), role=role).json()["may_change"] for role in ("viewer", "op")] == [False, True]
    remember(ASSET, HOLDS, {"holds": [{"kind": "pause", "match": "**", "why": "<b>"}]}, by="api")
    assert api.get(path()).json()["holds"] == [{"kind": "pause", "match": "**", "why": "<b>", "until": None}]
    remember(ASSET, HOLDS, {"holds": 7}, by="api")
    fleet = api.get(path()).json()
    assert (fleet["holds"], "cannot be read" in fleet["broken_holds"]) == ([], True)


def test_texts_of_tables_are_safe_to_show(api: ApiServer) -> None:
    view = night(count=5)
    hostile = replace(view.tables[0], table="s3://lake/\u202e<b>", owner="\x1b[31m")
    keep(OfTask(ASSET), replace(view, tables=(hostile,)))
    row = api.get(path()).json()["tables"][0]
    assert "\u202e" not in row["table"]
    assert "\x1b" not in row["owner"]
    assert msgspec.json.encode(row)
