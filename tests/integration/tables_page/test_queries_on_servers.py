"""What tasks and watchers have reported is read from PostgreSQL and MariaDB as it is from SQLite, where the other tests read it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, timezone
from threading import Barrier
from typing import TYPE_CHECKING, Any

import pytest
from tests.support import ROOT
from tests.support.records import health_document
from tests.support.runs.metadata_database import counted_queries, entry_of, run_number
from tests.support.servers.mariadb import running_mariadb

from airflow_delta.monitoring.metadata_queries import MetadataQueries
from airflow_delta.monitoring.record import record_of_health, record_of_report, table_id
from airflow_delta.triggers import DeltaTableVersionTrigger
from airflow_delta.watch_memory import VERSIONS, shard_key, shard_of
from delta_maintenance.contract import ErrorReport, JobReport

if TYPE_CHECKING:
    from sqlalchemy.engine import Engine

pytestmark = pytest.mark.airflow

NOW = datetime(2026, 11, 1, tzinfo=timezone.utc)


@pytest.fixture(scope="module")
def new_mariadb() -> Iterator[Callable[[], str]]:
    with running_mariadb() as make:
        yield make


@pytest.fixture(scope="module", params=["new_database", "new_mariadb"], ids=["postgresql", "mariadb"])
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    from sqlalchemy import create_engine

    url = request.getfixturevalue(request.param)()
    # By a process of its own: Airflow chooses the collation of names when its models are imported. For MySQL it is this one.
    collation = {"AIRFLOW__DATABASE__SQL_ENGINE_COLLATION_FOR_IDS": "utf8mb3_bin"}
    subprocess.run(
        [sys.executable, "-m", "tests.support.runs.metadata_database", url],
        env={**os.environ, **(collation if url.startswith("mysql") else {})},
        cwd=ROOT,
        check=True,
    )
    # As Airflow's own sessions.
    made = create_engine(url, isolation_level="READ COMMITTED")
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
