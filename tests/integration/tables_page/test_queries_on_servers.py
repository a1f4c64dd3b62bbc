"""What tasks and watchers have reported is read from PostgreSQL and MariaDB as it is from SQLite, where the other tests read it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from threading import Barrier
from typing import TYPE_CHECKING, Any

import pytest
from tests.support import ROOT
from tests.support.records import health_document
from tests.support.runs.metadata_database import counted_queries, entry_of, run_number
from tests.support.servers.mariadb import running_mariadb

from airflow_delta.monitoring.metadata_queries import MetadataQueries
from airflow_delta.monitoring.record import Source, record_of_health, record_of_report, table_id
from airflow_delta.triggers import DeltaTableVersionTrigger
from airflow_delta.watch_memory import VERSIONS, shard_key, shard_of
from delta_maintenance.contract import ErrorReport, JobReport

if TYPE_CHECKING:
    from sqlalchemy.engine import Engine
    from sqlalchemy.orm import Session

pytestmark = pytest.mark.airflow

NOW = datetime(2026, 11, 1, tzinfo=timezone.utc)


@pytest.fixture(scope="module")
def new_mariadb() -> Iterator[Callable[[], str]]:
    with running_mariadb() as make:
        yield make


@pytest.fixture(scope="module", params=["new_database", "new_mariadb"], ids=["postgresql", "mariadb"])
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    yield from database_of_airflow(request.getfixturevalue(request.param)())


@pytest.fixture(scope="module")
def sqlite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    yield from database_of_airflow(f"sqlite:///{tmp_path_factory.mktemp('sqlite') / 'airflow.db'}")


def database_of_airflow(url: str) -> Iterator[Engine]:
    from sqlalchemy import create_engine

    # By a process of its own: Airflow chooses the collation of names when its models are imported. For MySQL it is this one.
    collation = {"AIRFLOW__DATABASE__SQL_ENGINE_COLLATION_FOR_IDS": "utf8mb3_bin"}
    subprocess.run(
        [sys.executable, "-m", "tests.support.runs.metadata_database", url],
        env={**os.environ, **(collation if url.startswith("mysql") else {})},
        cwd=ROOT,
        check=True,
    )
    # As Airflow's own sessions.
    isolation = {} if url.startswith("sqlite") else {"isolation_level": "READ COMMITTED"}
    made = create_engine(url, **isolation)
    yield made
    made.dispose()


def test_tasks_that_end_together_all_leave_their_records(engine: Engine) -> None:
    from airflow._shared.state import TaskScope
    from airflow.models.task_state_store import TaskStateStoreModel
    from airflow.state.metastore import MetastoreBackend
    from sqlalchemy import delete, func, select
    from sqlalchemy.orm import sessionmaker

    begin = sessionmaker(engine).begin
    with begin() as session:
        run_number(session, "crowd", "run")
    together, tasks, rounds = Barrier(12), 12, 5

    def end(map_index: int) -> None:
        """What Airflow's API server does when an instance of a mapped task leaves a record."""
        scope = TaskScope("crowd", "run", "health", map_index)
        record = record_of_health(health_document(f"s3://lake/table-{map_index}"))
        for number in range(rounds):
            key = entry_of(record, 0, 0, try_number=number)["key"]
            together.wait(60)
            with begin() as session:
                MetastoreBackend().set(scope, key, json.dumps(record), session=session)

    with ThreadPoolExecutor(tasks) as pool:
        list(pool.map(end, range(tasks)))
    row = TaskStateStoreModel
    with begin() as session:
        crowd = select(func.count()).where(row.dag_id == "crowd")
        assert session.scalar(crowd) == tasks * rounds
        session.execute(delete(row))


def add_records(engine: Engine, records: list[Any], hours_ago: float, **source: Any) -> None:
    from airflow.models.task_state_store import TaskStateStoreModel
    from sqlalchemy import insert
    from sqlalchemy.orm import Session

    at_ms = int((NOW - timedelta(hours=hours_ago)).timestamp() * 1000)
    with Session(engine) as session, session.begin():
        run = run_number(session, "nightly", f"{hours_ago} hours ago")
        names = {"run_id": f"{hours_ago} hours ago", **source}
        entries = [entry_of(record, at_ms, run, **names) for record in records]
        session.execute(insert(TaskStateStoreModel), entries)


def test_records_are_read_and_new_ones_cost_the_same_queries_whatever_their_number(engine: Engine) -> None:
    from sqlalchemy.orm import Session

    queries = MetadataQueries(90, lambda: NOW)
    old = [record_of_health(health_document(f"s3://lake/table-{number}", "critical")) for number in range(3)]
    add_records(engine, old, 30)
    add_records(engine, [{"text": "\0"}], 30, key="delta_record.1.of another release")
    error = ErrorReport("StorageError", "The store is away.")
    failed = JobReport("optimize", "s3://lake/table-0", "failed", error=error)
    add_records(engine, [record_of_report(failed, [])], 29)
    with Session(engine) as session:
        with counted_queries(engine) as first:
            state = queries.read(session)
        assert len(state.tables) == 3
        assert [one.why for one in state.broken] == ["it has no record_version 1"]
        (failure,) = state.tables[table_id("s3://lake/table-0")].failed.values()
        assert (failure.table, failure.status) == ("s3://lake/table-0", "failed")
        new = [record_of_health(health_document(f"s3://lake/table-{number}")) for number in range(3_000)]
        add_records(engine, new, 1)
        with counted_queries(engine) as second:
            state = queries.read(session)
        assert (len(first), len(second)) == (4, 3)
        with counted_queries(engine) as third:
            assert queries.read(session) is state
        assert len(third) == 1
        assert "value" not in third[0]
        assert len(state.tables) == 3_000
        assert len(state.broken) == 1
        newest = (record for one in state.tables.values() for record in one.newest.values())
        assert {record.status for record in newest} == {"healthy"}
        history = queries.history(session, table_id("s3://lake/table-1"))
        assert [record.status for record in history] == ["critical", "healthy"]
        assert queries.record(session, history[0].number) == history[0]
        assert queries.of_task(session, history[0].source) != []


def test_what_watchers_remember_is_read_with_a_few_queries(engine: Engine) -> None:
    from airflow.models.asset import AssetModel, AssetWatcherModel
    from airflow.models.asset_state_store import AssetStateStoreModel
    from airflow.models.trigger import Trigger
    from sqlalchemy.orm import Session

    def remember(session: Session, asset_id: int, table: str, version: int) -> None:
        session.merge(
            AssetStateStoreModel(
                asset_id=asset_id,
                key=shard_key(VERSIONS, shard_of(table)),
                value=json.dumps({table: [version, version]}),
                updated_at=NOW,
                last_updated_by_kind="watcher",
            )
        )

    tables = [f"s3://watched/{number}" for number in range(600)]
    with Session(engine) as session, session.begin():
        assets = [AssetModel(table, f"x-news:{table}", group="asset") for table in tables]
        triggers = [Trigger.from_object(DeltaTableVersionTrigger(table)) for table in tables]
        session.add_all([*assets, *triggers])
        session.flush()
        for table, asset, trigger in zip(tables, assets, triggers, strict=True):
            session.add(AssetWatcherModel(name="news", asset_id=asset.id, trigger_id=trigger.id))
            remember(session, asset.id, table, 7)
        changed = assets[5].id
    queries = MetadataQueries(90, lambda: NOW, seconds_between_watches=0)

    def watches(session: Session) -> dict[str, int | None]:
        found = queries.read(session).tables
        return {one.address: one.watch.version for one in found.values() if one.watch is not None}

    with Session(engine) as session:
        queries.read(session)
        with counted_queries(engine) as again:
            assert watches(session) == dict.fromkeys(tables, 7)
        assert len(again) <= 5
    with Session(engine) as session, session.begin():
        remember(session, changed, tables[5], 8)
    with Session(engine) as session:
        assert watches(session) == {**dict.fromkeys(tables, 7), tables[5]: 8}


def test_what_is_asked_often_reads_a_part_of_the_entries_by_an_index(engine: Engine) -> None:
    check_plans(engine)


def test_sqlite_too_reads_a_part_of_the_entries_by_an_index(sqlite: Engine) -> None:
    check_plans(sqlite)


def check_plans(engine: Engine) -> None:
    """Compare plans on a state store in which one entry of twenty is a record: what tasks keep for themselves stays there, too."""
    from airflow.models.task_state_store import TaskStateStoreModel
    from sqlalchemy import delete, insert, text
    from sqlalchemy.orm import Session

    now_ms = int(NOW.timestamp() * 1000)
    record = record_of_health(health_document("s3://lake/events"))
    with Session(engine) as session, session.begin():
        session.execute(delete(TaskStateStoreModel))
        entries = []
        for day in range(20):
            run = run_number(session, "nightly", f"night {day}")
            common = {"run_id": f"night {day}", "task_id": "health"}
            for index in range(100):
                entries.append(entry_of(record, now_ms, run, map_index=index, **common))
                others = (f"own_state_{index}_{number}" for number in range(19))
                entries += [entry_of({}, now_ms, run, key=key, **common) for key in others]
        session.execute(insert(TaskStateStoreModel), entries)
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        table = "TABLE task_state_store" if engine.dialect.name == "mysql" else "task_state_store"
        connection.execute(text(f"ANALYZE {table}"))
    queries, identity = MetadataQueries(90, lambda: NOW), table_id("s3://lake/events")
    with Session(engine) as session:
        queries.read(session)
        asks: dict[str, Callable[[], object]] = {
            "is anything new": lambda: queries.read(session),
            "one table": lambda: queries.history(session, identity),
            "one run": lambda: queries.record(session, queries.history(session, identity)[0].number),
            "one task instance": lambda: queries.of_task(session, Source("nightly", "night 7", "health", 3)),
        }
        for name, ask in asks.items():
            with sent_queries(engine) as sent:
                assert ask() not in (None, []), name
            for statement, parameters in sent:
                plan = plan_of(session, statement, parameters)
                assert reads_by_an_index(engine.dialect.name, plan), (name, statement, plan)
    add_records(engine, [record_of_health(health_document("s3://lake/orders"))], 0)
    with Session(engine) as session:
        with sent_queries(engine) as sent:
            assert queries.history(session, identity)
        # Whether anything is new, the new keys, the newest values, and those of the table.
        assert len(sent) == 4
        for statement, parameters in sent:
            plan = plan_of(session, statement, parameters)
            assert reads_by_an_index(engine.dialect.name, plan), ("news", statement, plan)


@contextmanager
def sent_queries(engine: Engine) -> Iterator[list[tuple[str, Any]]]:
    """The statements on task state stores that are sent to the database meanwhile, with their parameters."""
    from sqlalchemy import event

    sent: list[tuple[str, Any]] = []

    def note(_connection: Any, _cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
        # What watchers remember is read again after half a minute, which may pass meanwhile, from tables with a row for each watcher.
        if "task_state_store" in statement:
            sent.append((statement, parameters))

    event.listen(engine, "before_cursor_execute", note)
    try:
        yield sent
    finally:
        event.remove(engine, "before_cursor_execute", note)


def plan_of(session: Session, statement: str, parameters: Any) -> list[str]:
    explain = "EXPLAIN QUERY PLAN" if session.get_bind().dialect.name == "sqlite" else "EXPLAIN"
    return [
        str(tuple(row)) for row in session.connection().exec_driver_sql(f"{explain} {statement}", parameters)
    ]


def reads_by_an_index(dialect: str, plan: list[str]) -> bool:
    """Whether no line of a plan reads the whole table or a whole index."""
    whole = {"postgresql": ("Seq Scan",), "mysql": ("'ALL'", "'index'"), "sqlite": ("SCAN",)}[dialect]
    return not any(word in line for word in whole for line in plan)
