"""Who may ask the page Delta tables what, whatever a table's writers have named things, and that it never takes Airflow down.

Within a real API server of Airflow on a metadata database of SQLite.
"""

from __future__ import annotations

import asyncio
import base64
import json
import re
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import jwt
import pytest
from tests.support import ROOT
from tests.support.records import HOSTILE, HOUR_MS, health_document
from tests.support.runs.metadata_database import (
    ApiServer,
    add_dags,
    add_record,
    counted_queries,
    remember,
    start_api_server,
    watch,
)
from tests.support.tables.written_log import add, write_log

from airflow_delta.monitoring.record import record_of_health
from airflow_delta.triggers import (
    DeltaDeletionVectorRatioTrigger,
    DeltaTableHealthTrigger,
    DeltaTableVersionTrigger,
)

pytestmark = pytest.mark.airflow

PREFIX = "/delta-tables"
TABLES = f"{PREFIX}/v1/tables"
#: What a user sees who may not read assets: the description of the API, and the script, which hold nothing of any table.
PUBLIC_TO_USERS = ("openapi.json", "delta-tables.js")


@pytest.fixture(scope="module")
def server() -> ApiServer:
    return start_api_server()


@pytest.fixture
def api(server: ApiServer) -> Iterator[ApiServer]:
    from airflow.models.asset import AssetModel, AssetWatcherModel
    from airflow.models.asset_state_store import AssetStateStoreModel
    from airflow.models.dag import DagModel
    from airflow.models.dagrun import DagRun
    from airflow.models.trigger import Trigger
    from airflow.utils.session import create_session
    from sqlalchemy import delete

    add_dags("nightly")
    yield server
    with create_session() as session:
        models = (
            AssetStateStoreModel,
            AssetWatcherModel,
            Trigger,
            AssetModel,
            DagRun,
            DagModel,
        )
        for model in models:
            session.execute(delete(model))


def routes() -> list[tuple[str, str]]:
    """Method and path of every route that the plugin serves, so that none can be forgotten here."""
    from airflow_delta.monitoring.api import make_app
    from airflow_delta.monitoring.metadata_queries import MetadataQueries

    found = []
    for route in make_app(MetadataQueries(1), 1).routes:
        path = re.sub(r"\{identity\}", "0" * 24, getattr(route, "path", ""))
        path = re.sub(r"\{\w+\}", "1", path)
        found += [(method, f"{PREFIX}{path}") for method in sorted(getattr(route, "methods", None) or ())]
    return found


def ask(api: ApiServer, method: str, path: str, token: str | None, *, as_cookie: bool = False) -> int:
    headers = {}
    if token is not None:
        headers = {"Cookie": f"_token={token}"} if as_cookie else {"Authorization": f"Bearer {token}"}
    return int(api.client.request(method, path, headers=headers).status_code)


def _part(value: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


def tampered(api: ApiServer) -> dict[str, str]:
    """Tokens that this Airflow has not made, by what is wrong with them."""
    from airflow.api_fastapi.app import get_auth_manager
    from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser

    token = api.token("viewer")
    head, _, signature = token.split(".")
    claims = jwt.decode(token, options={"verify_signature": False})
    raised = {**claims, "role": "admin", "sub": "admin"}
    user = SimpleAuthManagerUser(username="admin", role="admin")
    return {
        "signature": f"{token[:-8]}AAAAAAAA",
        "claims": f"{head}.{_part(raised)}.{signature}",
        "no algorithm": f"{_part({'alg': 'none', 'typ': 'JWT'})}.{_part(raised)}.",
        "another key": jwt.encode(raised, "k" * 64, algorithm="HS512"),
        "expired": str(get_auth_manager().generate_jwt(user, expiration_time_in_seconds=-3_600)),
        "no token": "Airflow",
        "empty": "",
    }


def test_every_route_refuses_callers_without_a_token_or_with_a_tampered_one(api: ApiServer) -> None:
    assert len(routes()) >= 5
    bad = tampered(api)
    for method, path in routes():
        assert ask(api, method, path, None) == 401, (method, path)
        for what, token in bad.items():
            for as_cookie in (False, True):
                status = ask(api, method, path, token, as_cookie=as_cookie)
                assert status in (401, 403), (method, path, what, as_cookie)


def test_every_route_answers_a_viewer_and_tells_a_stranger_nothing_of_a_table(api: ApiServer) -> None:
    for method, path in routes():
        # Nothing has been told, so that most answers are "not found"; 422 is a parameter that is missing.
        assert ask(api, method, path, api.token("viewer")) in (200, 404, 422), (method, path)
        as_stranger = ask(api, method, path, api.token("stranger"))
        assert as_stranger == (200 if path.endswith(PUBLIC_TO_USERS) else 403), (method, path)


def test_every_answer_also_a_refusal_forbids_to_be_run_framed_and_guessed(api: ApiServer) -> None:
    for method, path in [*routes(), ("GET", f"{PREFIX}/absent"), ("GET", f"{TABLES}?limit=0")]:
        for token in (None, api.token("viewer")):
            headers = {} if token is None else {"Authorization": f"Bearer {token}"}
            answer = api.client.request(method, path, headers=headers)
            policy = answer.headers["content-security-policy"]
            assert "default-src 'none'" in policy, (path, answer.status_code)
            assert "frame-ancestors 'none'" in policy, (path, answer.status_code)
            assert answer.headers["x-content-type-options"] == "nosniff"


def texts(value: Any) -> Iterator[str]:
    """Every text in a JSON value, names of members included."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for name, held in value.items():
            yield from (name, *texts(held))
    elif isinstance(value, list):
        for held in value:
            yield from texts(held)


def test_what_the_writers_of_a_table_chose_arrives_as_text(api: ApiServer, tmp_path: Path) -> None:
    from delta_log import Table
    from delta_log.runtime import Runtime
    from delta_maintenance.health.document import health_of
    from delta_maintenance.health.options import HealthOptions

    write_log(tmp_path / "t", [add(f"{number}.parquet", 100) for number in range(20)])
    for version, text in enumerate(HOSTILE, 1):
        said = {"timestamp": version, "operation": text, "operationParameters": {text: text}}
        said |= {"userName": text, "userId": text, "engineInfo": text, "operationMetrics": {text: text}}
        (tmp_path / "t" / "_delta_log" / f"{version:020d}.json").write_text(
            json.dumps({"commitInfo": said}) + "\n"
        )
    # One that the reading looks for, by a writer with a name of its own choice.
    optimize = {"timestamp": 9, "operation": "OPTIMIZE", "engineInfo": "<img src=x onerror=alert(1)>\u202e"}
    (tmp_path / "t" / "_delta_log" / f"{len(HOSTILE) + 1:020d}.json").write_text(
        json.dumps({"commitInfo": optimize}) + "\n"
    )
    options = HealthOptions.from_mapping({})
    document = health_of(Table(str(tmp_path / "t")), str(tmp_path / "t"), options, Runtime())
    add_record(record_of_health(document), int(time.time() * 1000))
    (row,) = api.get(TABLES).json()["tables"]
    answer = api.get(f"{TABLES}/{row['id']}")
    assert answer.headers["content-type"] == "application/json"
    found = list(texts(answer.json()))
    assert any("onerror" in text for text in found), "the engine of the last OPTIMIZE is shown"
    assert [text for text in found if not text.isprintable()] == []


def test_the_page_makes_no_html_of_texts() -> None:
    sources = sorted((ROOT / "provider" / "airflow_delta" / "monitoring" / "page" / "src").rglob("*.ts*"))
    assert len(sources) > 3
    sinks = re.compile(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|javascript:"
    )
    assert [path.name for path in sources if sinks.search(path.read_text())] == []


# -- it never takes Airflow down -------------------------------------------------------------------------------------


def test_a_page_that_cannot_start_says_so_and_starts_when_it_can(
    api: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fastapi.testclient import TestClient

    from airflow_delta.monitoring.plugin import LateApp

    late = TestClient(LateApp())
    monkeypatch.setenv("AIRFLOW__DELTA__MONITORING_DAYS", "many")
    answer = late.get("/v1/tables")
    assert answer.status_code == 503
    assert answer.json()["detail"].endswith("The log of the API server says why.")
    assert "many" not in answer.text
    monkeypatch.setenv("AIRFLOW__DELTA__MONITORING_DAYS", "30")
    assert late.get("/v1/tables").status_code == 401
    assert late.get("/v1/tables", headers={"Authorization": f"Bearer {api.token()}"}).status_code == 200


def test_a_crowd_that_waits_for_a_slow_page_takes_no_thread_from_airflow(api: ApiServer) -> None:
    import anyio.to_thread
    import httpx

    from airflow_delta.monitoring.api import make_app
    from airflow_delta.monitoring.metadata_queries import MetadataQueries

    queries = MetadataQueries(90)
    app, crowd = make_app(queries, 90), 60
    headers = {"Authorization": f"Bearer {api.token('admin')}"}

    async def visit() -> list[int]:
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://page") as client:
            with queries._lock:  # as long as records are read for the first time
                visits = [
                    asyncio.create_task(client.get("/v1/tables", headers=headers)) for _ in range(crowd)
                ]
                await asyncio.sleep(0.5)
                # Airflow's own routes run in these threads; it would wait for ever if none were free.
                await asyncio.wait_for(anyio.to_thread.run_sync(threading.get_ident), 60)
                assert not any(one.done() for one in visits)
            return [answer.status_code for answer in await asyncio.gather(*visits)]

    assert asyncio.run(visit()) == [200] * crowd


# -- what watchers remember -------------------------------------------------------------------------------------------


@pytest.fixture
def memory(api: ApiServer) -> ApiServer:
    """A page that looks at what watchers remember with each request."""
    from fastapi import FastAPI
    from fastapi.testclient import TestClient

    from airflow_delta.monitoring.api import make_app
    from airflow_delta.monitoring.metadata_queries import MetadataQueries

    app = FastAPI()
    app.mount(PREFIX, make_app(MetadataQueries(90, seconds_between_watches=0), 90))
    return replace(api, client=TestClient(app))


def test_tables_of_watchers_are_shown_to_everyone_who_may_read_assets(memory: ApiServer) -> None:
    from airflow.models.dag import DagModel
    from airflow.utils.session import create_session
    from sqlalchemy import delete

    watch("events", DeltaTableVersionTrigger(["s3a://lake/events", "s3://lake/soon/"]))
    watch("slow scans", DeltaDeletionVectorRatioTrigger("s3://lake/clicks"))
    remember("events", "delta_versions.watched", True)
    remember("events", "delta_versions.03", {"s3a://lake/events": [6, 7, 7], "s3://lake/soon": [-1, -1]})
    remember("slow scans", "delta_deleted_rows.11", {"s3://lake/clicks": {"version": 4, "over": ["table"]}})
    add_dags("secret")
    tell("s3://lake/clicks", "secret")
    with create_session() as session:  # no user may read it any more
        session.execute(delete(DagModel).where(DagModel.dag_id == "secret"))
    rows = {row["name"]: row for row in memory.get(TABLES).json()["tables"]}
    known = {name: (row["watch"]["asset"], row["watch"]["version"]) for name, row in rows.items()}
    assert known == {"events": ("events", 7), "soon": ("events", None), "clicks": ("slow scans", 4)}
    assert rows["events"]["table"] == "s3://lake/events"
    assert {row["status"] for row in rows.values()} == {"unknown"}
    told = (rows["clicks"]["read_ms"], rows["clicks"]["last_work"])
    assert told == (None, None), "what a DAG told stays with it"
    view = memory.get(f"{TABLES}/{rows['clicks']['id']}").json()
    assert (view["row"]["watch"]["version"], view["health"], view["runs"]) == (4, None, [])
    assert memory.get(TABLES, dag_id="nightly").json()["tables"] == []
    assert memory.get(TABLES, role="stranger").status_code == 403


def test_what_a_watcher_knows_follows_its_place_and_its_arguments(memory: ApiServer) -> None:
    from airflow.models.asset import AssetWatcherModel
    from airflow.utils.session import create_session
    from sqlalchemy import delete

    def versions() -> dict[str, int | None]:
        rows = memory.get(TABLES).json()["tables"]
        return {row["name"]: row["watch"] and row["watch"]["version"] for row in rows}

    tell("s3://lake/kept")
    watch("events", DeltaTableVersionTrigger(["s3://lake/events", "s3://lake/kept", "s3://lake/days/*"]))
    remember("events", "delta_versions.03", {"s3://lake/events": [6, 7], "s3://lake/days/monday": [1, 1]})
    remember(
        "events", "delta_versions.09", {"s3://lake/kept": [0, 0], "s3://lake/days/monday/deeper": [1, 1]}
    )
    assert versions() == {"events": 7, "kept": 0, "monday": 1}
    remember("events", "delta_versions.03", {"s3://lake/events": [8, 9], "s3://lake/days/monday": [1, 1]})
    assert versions() == {"events": 9, "kept": 0, "monday": 1}
    # It watches another table from now on. Airflow keeps what was remembered.
    with create_session() as session:
        session.execute(delete(AssetWatcherModel))
    watch("events", DeltaTableVersionTrigger("s3://lake/events"))
    assert versions() == {"events": 9, "kept": None}
    with create_session() as session:
        session.execute(delete(AssetWatcherModel))
    assert versions() == {"kept": None}


def test_the_place_of_the_watcher_that_looks_at_each_version_is_shown(memory: ApiServer) -> None:
    table = "s3://lake/events"
    watch("all", DeltaTableVersionTrigger(table))
    watch("unwell", DeltaTableHealthTrigger(table, small_files=3))
    remember("all", "delta_versions.03", {table: [6, 7]})
    remember("unwell", "delta_health.03", {table: {"version": 9, "over": []}})
    (row,) = memory.get(TABLES).json()["tables"]
    assert row["watch"] == {"asset": "all", "version": 7}


def test_only_what_a_watcher_itself_has_kept_is_shown(memory: ApiServer) -> None:
    watch("events", DeltaTableVersionTrigger("s3://lake/*"))
    watch("unwell", DeltaTableHealthTrigger("s3://lake/*", small_files=3))
    remember("events", "delta_versions.03", {"s3://lake/forged": [6, 7]}, by="api")
    remember("events", "their.03", {"s3://lake/of-another-program": [6, 7]})
    remember("events", "delta_versionsX03", {"s3://lake/of-another-key": [6, 7]})
    remember("events", "deltaXversions.03", {"s3://lake/of-another-key": [6, 7]})
    remember("events", "delta_health.03", {"s3://lake/of-another-kind": {"version": 1}})
    remember("nobody watches it", "delta_versions.03", {"s3://lake/unwatched": [6, 7]})
    deep: Any = None
    for _ in range(400):
        deep = [deep]
    broken = ([1], "text", None, deep, {"s3://lake/odd\0": {"version": "seven"}})
    for number, value in enumerate(broken):
        remember("unwell", f"delta_health.{number:02d}", value)
    (row,) = memory.get(TABLES).json()["tables"]
    assert (row["table"], row["watch"]["version"]) == ("s3://lake/odd\\x00", None)


def test_what_watchers_remember_is_read_twice_a_minute_at_most(api: ApiServer) -> None:
    from sqlalchemy.orm import Session

    from airflow_delta.monitoring.metadata_queries import MetadataQueries

    watch("events", DeltaTableVersionTrigger("s3://lake/events"))
    remember("events", "delta_versions.03", {"s3://lake/events": [6, 7]})
    queries = MetadataQueries(90)
    with Session(api.engine) as session:
        with counted_queries(api.engine) as first:
            known = queries.read(session)
        with counted_queries(api.engine) as second:
            assert queries.read(session) is known
    read = [sum("asset_state_store" in text for text in texts) for texts in (first, second)]
    assert read == [1, 0]
    assert len(second) <= 3


def test_tables_without_news_of_their_watchers_stay_the_same_objects(memory: ApiServer) -> None:
    from sqlalchemy.orm import Session

    from airflow_delta.monitoring.metadata_queries import MetadataQueries

    watch("events", DeltaTableVersionTrigger("s3://lake/*"))
    places = {f"s3://lake/{number}": [number, number] for number in range(20)}
    remember("events", "delta_versions.03", places)
    queries = MetadataQueries(90, seconds_between_watches=0)
    with Session(memory.engine) as session:
        before = queries.read(session).tables
    remember("events", "delta_versions.03", {**places, "s3://lake/7": [99, 99]})
    with Session(memory.engine) as session:
        after = queries.read(session).tables
    assert [one.address for name, one in after.items() if one is not before[name]] == ["s3://lake/7"]


# -- what Airflow forgets and renames --------------------------------------------------------------------------------


def tell(table: str, dag_id: str = "nightly", age_hours: float = 0) -> None:
    at_ms = int(time.time() * 1000 - age_hours * HOUR_MS)
    add_record(record_of_health(health_document(table)), at_ms, dag_id=dag_id)


def names(api: ApiServer) -> set[str]:
    return {row["name"] for row in api.get(TABLES).json()["tables"]}


@pytest.mark.parametrize("deleted", ["task_state_store", "dag_run"])
def test_what_airflow_db_clean_deletes_is_not_shown_any_more(api: ApiServer, deleted: str) -> None:
    from airflow.models.dagrun import DagRun
    from airflow.models.task_state_store import TaskStateStoreModel
    from airflow.utils.db_cleanup import run_cleanup
    from airflow.utils.session import create_session
    from sqlalchemy import update

    tell("s3://lake/old", age_hours=72)
    with create_session() as session:  # the record has expired, and its run is old
        then = datetime.now(timezone.utc) - timedelta(hours=72)
        session.execute(update(TaskStateStoreModel).values(expires_at=then))
        session.execute(update(DagRun).values(start_date=then))
    tell("s3://lake/new", age_hours=1)
    assert names(api) == {"old", "new"}
    run_cleanup(
        clean_before_timestamp=datetime.now(timezone.utc) - timedelta(hours=48),  # type: ignore[arg-type]
        table_names=[deleted],
        confirm=False,
        skip_archive=True,
        error_on_cleanup_failure=True,
    )
    assert names(api) == {"new"}


def test_after_a_dag_was_renamed_its_tables_come_back_with_its_next_run(api: ApiServer) -> None:
    from airflow.models.dag import DagModel
    from airflow.utils.session import create_session
    from sqlalchemy import delete

    tell("s3://lake/one", age_hours=2)
    tell("s3://lake/two", age_hours=2)
    with create_session() as session:  # a user has deleted the DAG of the old name
        session.execute(delete(DagModel).where(DagModel.dag_id == "nightly"))
    add_dags("every_night")
    assert names(api) == set()
    tell("s3://lake/one", "every_night")
    assert names(api) == {"one"}
