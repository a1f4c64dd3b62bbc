"""The API of the page *Delta tables*: JSON about tables, runs and fleets, read only, and the page's script.

* Every route wants a token of Airflow, and the routes with data the permission to read assets. A record is shown to callers who
  may read the DAG that left it, what a watcher remembers to all of them.
* A table is named by a digest of its address, a run by the number of its record. No address of the caller is opened.
* Airflow promises nothing about its modules for authentication and permissions, so no other module imports them.
* Answers forbid a browser to run them, to frame them, and to guess their type.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterator
from hashlib import sha256
from importlib.resources import files
from typing import Annotated, Literal
from weakref import WeakKeyDictionary

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.resource_details import (
    AssetDetails,
    DagAccessEntity,
    DagDetails,
)
from airflow.api_fastapi.core_api.security import GetUserDep, requires_access_asset, requires_authenticated
from airflow.configuration import conf
from airflow.utils.session import create_session
from fastapi import APIRouter, Depends, FastAPI, HTTPException, Path, Query, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse
from sqlalchemy.orm import Session

from airflow_delta.monitoring import answers
from airflow_delta.monitoring.fleet import FleetQuery, page_of, row_of, source_of
from airflow_delta.monitoring.fleet_cache import Fleet, FleetCache
from airflow_delta.monitoring.fleets import answers as fleet_answers
from airflow_delta.monitoring.fleets.queries import FleetQueries, KeptFleet
from airflow_delta.monitoring.fleets.rows import TablesQuery, chosen, csv_of
from airflow_delta.monitoring.fleets.shown import line_of, night_of
from airflow_delta.monitoring.metadata_queries import MetadataQueries
from airflow_delta.monitoring.record import DEFAULT_DAYS, RUN, Source, table_id
from airflow_delta.monitoring.table_view import run_line, run_view, table_view

#: Refuses a caller without a token of this Airflow.
AUTHENTICATED = Depends(requires_authenticated())
#: Refuses a caller who may not see assets.
MAY_READ_ASSETS = Depends(requires_access_asset("GET"))


def readable_dags(user: GetUserDep) -> Callable[[str], bool]:
    """Whether a DAG is one that the caller may read. Airflow shows the events of other DAGs to no caller either."""
    dag_ids = get_auth_manager().get_authorized_dag_ids(user=user, method="GET")
    return dag_ids.__contains__


def maintenance_dag(user: GetUserDep) -> str | None:
    """The DAG of the setting ``maintenance_dag``, if the caller may start it."""
    dag_id = (conf.get("delta", "maintenance_dag", fallback=None) or "").strip()
    if not dag_id:
        return None
    may_start = get_auth_manager().is_authorized_dag(
        method="POST", access_entity=DagAccessEntity.RUN, details=DagDetails(id=dag_id), user=user
    )
    return dag_id if may_start else None


def may_change_assets(user: GetUserDep) -> Callable[[int], bool]:
    """Whether the caller may write to the state store of an asset with Airflow's REST API."""

    def may_change(asset_id: int) -> bool:
        details = AssetDetails(id=str(asset_id))
        return bool(get_auth_manager().is_authorized_asset(method="PUT", details=details, user=user))

    return may_change


def metadata_session() -> Iterator[Session]:
    with create_session(scoped=False) as session:
        yield session


_LOG = logging.getLogger(__name__)
#: Most tables of one answer.
MAX_LIMIT = 100
SCRIPT = "delta-tables.js"
#: Requests that are answered at a time in one process. The others wait without a thread, since Airflow's own routes share the
#: threads: forty people who open the page while records are read for the first time must not keep the API server from its work.
_MOST_AT_ONCE = 4
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "private, no-store",
}

SessionOfRequest = Annotated[Session, Depends(metadata_session)]
Readable = Annotated[Callable[[str], bool], Depends(readable_dags)]
Changeable = Annotated[Callable[[int], bool], Depends(may_change_assets)]
MaintenanceDag = Annotated[str | None, Depends(maintenance_dag)]
Name = Annotated[str, Query(min_length=1, max_length=250)]
OfAsset = Annotated[str, Query(max_length=1_500, description="tables of the asset with this name and URI")]
Identity = Annotated[str, Path(pattern="^[0-9a-f]{24}$", description="`id` of a table, from the fleet")]
AssetNumber = Annotated[int, Path(ge=1, le=2**31 - 1, description="`asset_id` of a fleet, from the list")]
RunNumber = Annotated[int, Path(ge=1, le=2**63 - 1, description="`number` of a run, from its table")]
StatusName = Literal["unreadable", "critical", "attention", "unsupported", "unknown", "healthy", "failing"]
SortName = Literal[
    "urgency",
    "table",
    "size_bytes",
    "num_files",
    "small_files",
    "deleted_rows_ratio",
    "commits_since_checkpoint",
    "reclaimable_bytes",
    "read_ms",
    "last_work",
]


def query_of(
    status: StatusName | None = None,
    search: Annotated[str, Query(max_length=500, description="part of the address")] = "",
    sort: SortName = "urgency",
    order: Literal["asc", "desc"] = "asc",
    offset: Annotated[int, Query(ge=0, le=10**9)] = 0,
    limit: Annotated[int, Query(ge=1, le=MAX_LIMIT)] = 50,
) -> FleetQuery:
    return FleetQuery(status, search, sort, order == "desc", offset, limit)


FleetSortName = Literal[
    "urgency",
    "gain",
    "table",
    "size_bytes",
    "num_files",
    "small_files",
    "reclaimable_bytes",
    "written_ms",
    "unhealthy_since_ms",
]


def tables_query_of(  # noqa: PLR0913, PLR0917 - each is a parameter of the route
    state: Annotated[
        str, Query(max_length=50, description="state of the tables, `late` or `unhealthy`")
    ] = "",
    search: Annotated[
        str, Query(max_length=500, description="part of the address, of the owner, or of a reason")
    ] = "",
    prefix: Annotated[str, Query(max_length=2_000, description="beginning of the address")] = "",
    owner: Annotated[str, Query(max_length=500, description="owner; `-`: none")] = "",
    idle_days: Annotated[
        int, Query(ge=0, le=10_000, description="days without a write by another program")
    ] = 0,
    sort: FleetSortName = "urgency",
    order: Literal["asc", "desc"] = "asc",
    offset: Annotated[int, Query(ge=0, le=10**9)] = 0,
    limit: Annotated[int, Query(ge=1, le=MAX_LIMIT)] = 50,
) -> TablesQuery:
    return TablesQuery(state, search, prefix, owner, idle_days, sort, order == "desc", offset, limit)


def make_app(queries: MetadataQueries, days: int) -> FastAPI:
    """
    :param days: number of days that `queries` look back.
    """
    # Without FastAPI's pages of documentation, which load scripts from elsewhere.
    app = FastAPI(
        title="Delta tables",
        description="What maintenance tasks have reported of Delta tables. Read only.",
        version="1",
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
    )

    fleets = FleetCache()
    places: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()

    @app.middleware("http")
    async def with_headers(request: Request, answer: Callable[[Request], Awaitable[Response]]) -> Response:
        async with places.setdefault(asyncio.get_running_loop(), asyncio.Semaphore(_MOST_AT_ONCE)):
            response = await answer(request)
        for name, value in _HEADERS.items():
            response.headers.setdefault(name, value)
        return response

    @app.get("/v1/tables", dependencies=[MAY_READ_ASSETS])
    def read_tables(
        session: SessionOfRequest,
        readable: Readable,
        startable: MaintenanceDag,
        query: Annotated[FleetQuery, Depends(query_of)],
        dag_id: Annotated[
            str | None, Query(max_length=250, description="tables that this DAG has reported of")
        ] = None,
        asset_name: OfAsset = "",
        asset_uri: OfAsset = "",
    ) -> answers.Fleet:
        """The tables that tasks have reported of: counts by status, and a page of those that the query chooses."""
        state = queries.read(session)
        fleet = fleets.fleet(state, readable)
        if dag_id is not None:
            of_dag = {
                table: row
                for table, row in fleet.rows.items()
                if readable(dag_id) and dag_id in state.tables[table].dags
            }
            fleet = Fleet.of(of_dag)
        if asset_name or asset_uri:
            fleet = fleet.of_asset(asset_name, asset_uri)
        found = fleet.chosen(query)
        return answers.Fleet(
            counts=dict(fleet.counts),
            total=len(found),
            offset=query.offset,
            tables=[answers.Row(**row) for row in page_of(found, query)],
            broken=[
                answers.BrokenRecord(time_ms=one.time_ms, why=one.why, **source_of(one.source))
                for one in state.broken
                if readable(one.source.dag_id)
            ],
            days=days,
            maintenance_dag=startable,
        )

    @app.get("/v1/tables/{identity}", dependencies=[MAY_READ_ASSETS])
    def read_table(
        identity: Identity, session: SessionOfRequest, readable: Readable, startable: MaintenanceDag
    ) -> answers.TableView:
        """One table: its newest reading of health, the readings over time, and its runs."""
        table = queries.read(session).tables.get(identity)
        records = [one for one in queries.history(session, identity) if readable(one.source.dag_id)]
        if table is None or not (records or table.watch):
            raise HTTPException(
                404,
                "No task has reported of such a table, or you may not read its DAG; and no watcher knows it.",
            )
        return answers.TableView(**table_view(table.address, records, table.watch), maintenance_dag=startable)

    @app.get("/v1/runs/{number}", dependencies=[MAY_READ_ASSETS])
    def read_run(number: RunNumber, session: SessionOfRequest, readable: Readable) -> answers.RunView:
        """One run: its report, and the readings of health before and after it."""
        record = queries.record(session, number)
        if record is None or record.kind != RUN or not readable(record.source.dag_id):
            raise HTTPException(404, "There is no such run, or you may not read its DAG.")
        history = queries.history(session, table_id(record.table))
        around = [one for one in history if readable(one.source.dag_id)]
        return answers.RunView(**run_view(record, around))

    @app.get("/v1/task", dependencies=[MAY_READ_ASSETS])
    def read_task(
        session: SessionOfRequest,
        readable: Readable,
        dag_id: Name,
        run_id: Name,
        task_id: Name,
        map_index: Annotated[int, Query(ge=-1, le=2**31 - 1)] = -1,
    ) -> answers.TaskView:
        """What one task instance has reported: its runs and readings, with the state of their tables."""
        if not readable(dag_id):
            raise HTTPException(404, "There is no such DAG, or you may not read it.")
        reported = queries.of_task(session, Source(dag_id, run_id, task_id, map_index))
        rows = fleets.fleet(queries.read(session), readable).rows
        return answers.TaskView(
            told=[
                answers.ReportedTable(
                    kind=one.kind,
                    row=answers.Row(**(rows.get(table_id(one.table)) or row_of(one.table, [one], []))),
                    run=answers.RunLine(**run_line(one)) if one.kind == RUN else None,
                )
                for one in reported
            ]
        )

    app.include_router(fleet_routes())

    @app.get("/openapi.json", dependencies=[AUTHENTICATED], include_in_schema=False)
    def read_description() -> JSONResponse:
        return JSONResponse(app.openapi())

    @app.get(f"/{SCRIPT}", dependencies=[AUTHENTICATED], include_in_schema=False)
    def read_script(request: Request) -> Response:
        content = files("airflow_delta.monitoring").joinpath("static", SCRIPT).read_bytes()
        tag = f'"{sha256(content).hexdigest()[:32]}"'
        # A browser asks each time, and gets the script when a release has another.
        headers = {"ETag": tag, "Cache-Control": "private, no-cache"}
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=headers)
        return Response(content, media_type="text/javascript", headers=headers)

    return app


def fleet_routes() -> APIRouter:
    """The routes of fleets."""
    router, fleet_queries = APIRouter(), FleetQueries()

    def readable_fleet(session: Session, readable: Callable[[str], bool], number: int) -> KeptFleet:
        fleet = fleet_queries.read(session).get(number)
        if fleet is None or not readable(fleet.source.dag_id):
            raise HTTPException(404, "No task has told of such a fleet, or you may not read its DAG.")
        if fleet.view is None:
            raise HTTPException(404, f"The newest night of the fleet cannot be read: {fleet.broken}")
        return fleet

    @router.get("/v1/fleets", dependencies=[MAY_READ_ASSETS])
    def read_fleets(
        session: SessionOfRequest,
        readable: Readable,
        dag_id: Annotated[str, Query(max_length=250, description="fleets of this DAG")] = "",
    ) -> fleet_answers.Fleets:
        """The fleets, with the figures of their newest nights."""
        found = [
            fleet
            for fleet in fleet_queries.read(session).values()
            if readable(fleet.source.dag_id) and dag_id in ("", fleet.source.dag_id)
        ]
        found.sort(key=lambda fleet: fleet.asset)
        return fleet_answers.Fleets(
            fleets=[fleet_answers.FleetLine(**line_of(fleet, _now_ms())) for fleet in found]
        )

    @router.get("/v1/fleets/{asset_id}", dependencies=[MAY_READ_ASSETS])
    def read_fleet(
        asset_id: AssetNumber,
        session: SessionOfRequest,
        readable: Readable,
        changeable: Changeable,
        query: Annotated[TablesQuery, Depends(tables_query_of)],
        group: Literal["", "owner", "prefix"] = "",
    ) -> fleet_answers.Fleet:
        """The newest night of one fleet: budget, alerts, forecast, and a page of the tables that the query chooses."""
        fleet = readable_fleet(session, readable, asset_id)
        assert fleet.view is not None
        night = night_of(fleet, fleet.view, query, group, _now_ms())
        return fleet_answers.Fleet(**night, may_change=changeable(asset_id))

    @router.get(
        "/v1/fleets/{asset_id}/tables.csv",
        dependencies=[MAY_READ_ASSETS],
        response_class=StreamingResponse,
        responses={200: {"content": {"text/csv": {"schema": {"type": "string"}}}}},
    )
    def read_fleet_as_csv(
        asset_id: AssetNumber,
        session: SessionOfRequest,
        readable: Readable,
        query: Annotated[TablesQuery, Depends(tables_query_of)],
    ) -> StreamingResponse:
        """All tables that the query chooses, as CSV."""
        fleet = readable_fleet(session, readable, asset_id)
        assert fleet.view is not None
        lines = csv_of(chosen(fleet.view.tables, query, _now_ms()))
        headers = {"Content-Disposition": 'attachment; filename="fleet.csv"'}
        return StreamingResponse(lines, media_type="text/csv; charset=utf-8", headers=headers)

    return router


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def configured_app() -> FastAPI:
    """The app as Airflow's configuration wants it."""
    days = max(1, conf.getint("delta", "monitoring_days", fallback=DEFAULT_DAYS))
    if conf.getboolean("state_store", "clear_on_success", fallback=False):
        _LOG.warning(
            "The page Delta tables shows failed runs only: [state_store] clear_on_success makes Airflow delete the record of each task "
            "that succeeds. Set it to False."
        )
    return make_app(MetadataQueries(days), days)
