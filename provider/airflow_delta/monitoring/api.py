"""The API of the page *Delta tables*: JSON about tables and runs, read only, and the page's script.

* Every route wants a token of Airflow, and the routes with data the permission to read assets. A record is shown to callers who
  may read the DAG that left it, what a watcher remembers to all of them.
* A table is named by a digest of its address, a run by the number of its event. No address of the caller is opened.
* Answers forbid a browser to run them, to frame them, and to guess their type.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from hashlib import sha256
from importlib.resources import files
from typing import Annotated, Literal
from weakref import WeakKeyDictionary

from airflow.configuration import conf
from fastapi import Depends, FastAPI, HTTPException, Path, Query, Request
from fastapi.responses import JSONResponse, Response
from sqlalchemy.orm import Session

from airflow_delta.monitoring import answers
from airflow_delta.monitoring.access import (
    AUTHENTICATED,
    MAY_READ_ASSETS,
    maintenance_dag,
    metadata_session,
    readable_dags,
)
from airflow_delta.monitoring.feed import Feed
from airflow_delta.monitoring.fleet import Wish, page_of, row_of, source_of
from airflow_delta.monitoring.record import RUN, Source
from airflow_delta.monitoring.remembered_fleets import Fleet, RememberedFleets
from airflow_delta.monitoring.table_view import run_line, run_view, table_view

#: Most tables of one answer.
MAX_LIMIT = 100
SCRIPT = "delta-tables.js"
_DAYS = 90
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
MaintenanceDag = Annotated[str | None, Depends(maintenance_dag)]
Name = Annotated[str, Query(min_length=1, max_length=250)]
Identity = Annotated[str, Path(pattern="^[0-9a-f]{24}$", description="`id` of a table, from the fleet")]
EventNumber = Annotated[int, Path(ge=1, le=2**63 - 1, description="`number` of a run, from its table")]
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


def wish_of(
    status: StatusName | None = None,
    search: Annotated[str, Query(max_length=500, description="part of the address")] = "",
    sort: SortName = "urgency",
    order: Literal["asc", "desc"] = "asc",
    offset: Annotated[int, Query(ge=0, le=10**9)] = 0,
    limit: Annotated[int, Query(ge=1, le=MAX_LIMIT)] = 50,
) -> Wish:
    return Wish(status, search, sort, order == "desc", offset, limit)


def make_app(feed: Feed, days: int) -> FastAPI:
    """
    :param days: how far back `feed` looks.
    """
    # Without FastAPI's pages of documentation, which load scripts from elsewhere.
    app = FastAPI(
        title="Delta tables",
        description="What maintenance tasks have told of Delta tables. Read only.",
        version="1",
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
    )

    fleets = RememberedFleets()
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
        wish: Annotated[Wish, Depends(wish_of)],
        dag_id: Annotated[
            str | None, Query(max_length=250, description="tables that this DAG has told of")
        ] = None,
    ) -> answers.Fleet:
        """The tables that tasks have told of: counts by status, and a page of those that the query chooses."""
        told = feed.read(session)
        fleet = fleets.fleet(told, readable)
        if dag_id is not None:
            of_dag = {
                table: row
                for table, row in fleet.rows.items()
                if readable(dag_id) and dag_id in told.tables[table].dags
            }
            fleet = Fleet.of(of_dag)
        found = fleet.chosen(wish)
        return answers.Fleet(
            counts=dict(fleet.counts),
            total=len(found),
            offset=wish.offset,
            tables=[answers.Row(**row) for row in page_of(found, wish)],
            broken=[
                answers.BrokenEvent(time_ms=one.time_ms, why=one.why, **source_of(one.source))
                for one in told.broken
                if not one.source.dag_id or readable(one.source.dag_id)
            ],
            days=days,
            maintenance_dag=startable,
        )

    @app.get("/v1/tables/{identity}", dependencies=[MAY_READ_ASSETS])
    def read_table(
        identity: Identity, session: SessionOfRequest, readable: Readable, startable: MaintenanceDag
    ) -> answers.TableView:
        """One table: its newest reading of health, the readings over time, and its runs."""
        told = feed.read(session)
        table = told.addresses.get(identity)
        records, failures = [], []
        watch = None
        if table is not None:
            watch = told.tables[table].watch
            records = [one for one in feed.history(session, table) if readable(one.source.dag_id)]
            failures = [one for one in told.failures if one.table == table and readable(one.source.dag_id)]
        if table is None or not (records or failures or watch):
            raise HTTPException(
                404, "No task has told of such a table, or you may not read its DAG; and no watcher knows it."
            )
        return answers.TableView(**table_view(table, records, failures, watch), maintenance_dag=startable)

    @app.get("/v1/runs/{number}", dependencies=[MAY_READ_ASSETS])
    def read_run(number: EventNumber, session: SessionOfRequest, readable: Readable) -> answers.RunView:
        """One run: its report, and the readings of health before and after it."""
        record = feed.record(session, number)
        if record is None or record.kind != RUN or not readable(record.source.dag_id):
            raise HTTPException(404, "There is no such run, or you may not read its DAG.")
        around = [one for one in feed.history(session, record.table) if readable(one.source.dag_id)]
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
        """What one task instance has told: its runs and readings, with the state of their tables."""
        if not readable(dag_id):
            raise HTTPException(404, "There is no such DAG, or you may not read it.")
        told = feed.of_task(session, Source(dag_id, run_id, task_id, map_index))
        rows = fleets.fleet(feed.read(session), readable).rows
        return answers.TaskView(
            told=[
                answers.Told(
                    kind=one.kind,
                    row=answers.Row(**(rows.get(one.table) or row_of(one.table, [one], []))),
                    run=answers.RunLine(**run_line(one)) if one.kind == RUN else None,
                )
                for one in told
            ]
        )

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


def configured_app() -> FastAPI:
    """The app as Airflow's configuration wants it."""
    days = max(1, conf.getint("delta", "monitoring_days", fallback=_DAYS))
    return make_app(Feed(days), days)
