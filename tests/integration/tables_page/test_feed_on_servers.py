"""What tasks and watchers have told is read from PostgreSQL and MariaDB as it is from SQLite, where the other tests read it."""

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
from tests.support.runs.metadata_database import counted_queries
from tests.support.servers.mariadb import running_mariadb

from airflow_delta.assets import MONITORING_ASSET
from airflow_delta.monitoring.feed import Feed
from airflow_delta.monitoring.record import FAILURE_KEY, record_of_health, record_of_report
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


def asset_rows(engine: Engine) -> list[int]:
    """How many rows there are of the asset, of its alias, of what binds them, and of active assets."""
    from airflow.models.asset import AssetActive, AssetAliasModel, AssetModel, alias_association_table
    from sqlalchemy import func, select
    from sqlalchemy.orm import Session

    tables = (AssetModel, AssetAliasModel, alias_association_table, AssetActive)
    with Session(engine) as session:
        return [session.scalar(select(func.count()).select_from(table)) or 0 for table in tables]


def test_the_rows_of_the_asset_are_made_once_by_whoever_comes_first(engine: Engine) -> None:
    from airflow.models.asset import alias_association_table
    from sqlalchemy import delete
    from sqlalchemy.orm import sessionmaker

    from airflow_delta.monitoring.asset_rows import make_asset_rows

    begin = sessionmaker(engine).begin
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: make_asset_rows(begin), range(8)))
    assert asset_rows(engine) == [1, 1, 1, 1]
    # A DAG may declare the asset, which binds it to no alias.
    with begin() as session:
        session.execute(delete(alias_association_table))
    make_asset_rows(begin)
    make_asset_rows(begin)
    assert asset_rows(engine) == [1, 1, 1, 1]


def test_tasks_that_end_together_all_leave_their_events(engine: Engine) -> None:
    from types import SimpleNamespace

    from airflow.assets.manager import asset_manager
    from airflow.models.asset import AssetEvent
    from sqlalchemy import func, select
    from sqlalchemy.orm import sessionmaker

    from airflow_delta.assets import MONITORING_ALIAS
    from airflow_delta.monitoring.asset_rows import make_asset_rows

    begin = sessionmaker(engine).begin
    make_asset_rows(begin)
    together, tasks, rounds = Barrier(12), 12, 5

    def end(map_index: int) -> None:
        """What Airflow's API server does when an instance of a mapped task has succeeded."""
        names = {"dag_id": "crowd", "run_id": "run", "task_id": "health", "map_index": map_index}
        for _ in range(rounds):
            together.wait(60)
            with begin() as session:
                asset_manager.register_asset_change(
                    task_instance=SimpleNamespace(**names),  # type: ignore[arg-type]
                    asset=MONITORING_ASSET,  # type: ignore[arg-type]
                    extra=record_of_health(health_document(f"s3://lake/table-{map_index}")),
                    source_alias_names=[MONITORING_ALIAS.name],
                    session=session,
                )

    with ThreadPoolExecutor(tasks) as pool:
        list(pool.map(end, range(tasks)))
    with begin() as session:
        crowd = select(func.count()).where(AssetEvent.source_dag_id == "crowd")
        assert session.scalar(crowd) == tasks * rounds
        session.query(AssetEvent).filter(AssetEvent.source_dag_id == "crowd").delete()


def add_events(engine: Engine, extras: list[Any], hours_ago: float) -> None:
    from airflow.models.asset import AssetEvent, AssetModel
    from sqlalchemy import insert, select
    from sqlalchemy.orm import Session

    with Session(engine) as session, session.begin():
        name = MONITORING_ASSET.name
        if session.scalar(select(AssetModel.id).where(AssetModel.name == name)) is None:
            session.add(AssetModel(name=name, uri=name, group="asset", extra={}))
            session.flush()
        asset_id = session.scalar(select(AssetModel.id).where(AssetModel.name == name))
        common = {
            "asset_id": asset_id,
            "source_dag_id": "nightly",
            "source_run_id": "run",
            "source_task_id": "task",
            "timestamp": NOW - timedelta(hours=hours_ago),
        }
        session.execute(insert(AssetEvent), [{**common, "extra": extra} for extra in extras])


def add_failure(engine: Engine, table: str) -> None:
    from airflow.models.xcom import XComModel
    from sqlalchemy import insert, text

    error = ErrorReport("StorageError", "The store is away.")
    value = record_of_report(JobReport("optimize", table, "failed", error=error), [])
    names = {"dag_id": "nightly", "run_id": "run", "task_id": "task", "map_index": -1}
    row = insert(XComModel).values(dag_run_id=1, key=FAILURE_KEY, value=value, timestamp=NOW, **names)
    # Without the task instance that Airflow would have.
    lax, strict = ("SET LOCAL session_replication_role = replica", None)
    if engine.dialect.name == "mysql":
        lax, strict = "SET foreign_key_checks = 0", "SET foreign_key_checks = 1"
    with engine.begin() as connection:
        connection.execute(text(lax))
        connection.execute(row)
        if strict is not None:
            connection.execute(text(strict))


def test_records_are_read_and_new_ones_cost_the_same_queries_whatever_their_number(engine: Engine) -> None:
    from sqlalchemy.orm import Session

    feed = Feed(90, lambda: NOW)
    old = [record_of_health(health_document(f"s3://lake/table-{number}", "critical")) for number in range(3)]
    add_events(engine, [*old, {"text": "\0", "table": "a zero that PostgreSQL's functions refuse"}], 30)
    add_failure(engine, "s3://lake/table-0")
    with Session(engine) as session:
        with counted_queries(engine) as first:
            told = feed.read(session)
        assert len(told.tables) == 3
        assert [one.why for one in told.broken] == ["it has no record_version 1"]
        (failure,) = told.failures
        assert (failure.table, failure.status) == ("s3://lake/table-0", "failed")
        new = [record_of_health(health_document(f"s3://lake/table-{number}")) for number in range(3_000)]
        add_events(engine, new, 1)
        with counted_queries(engine) as second:
            told = feed.read(session)
        assert (len(first), len(second)) == (7, 5)
        with counted_queries(engine) as third:
            assert feed.read(session) is told
        assert len(third) == 3
        assert not any("extra" in statement for statement in third)
        assert len(told.tables) == 3_000
        assert len(told.broken) == 1
        assert {record.status for one in told.tables.values() for record in one.newest.values()} == {
            "healthy"
        }
        history = feed.history(session, "s3://lake/table-1")
        assert [record.status for record in history] == ["critical", "healthy"]
        assert feed.record(session, history[0].number or 0) == history[0]


def test_what_watchers_remember_is_read_with_a_few_queries(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    monkeypatch.setattr("airflow_delta.monitoring.feed.SECONDS_BETWEEN_WATCHES", 0.0)
    feed = Feed(90, lambda: NOW)

    def watches(session: Session) -> dict[str, int | None]:
        found = feed.read(session).tables
        return {name: one.watch.version for name, one in found.items() if one.watch is not None}

    with Session(engine) as session:
        feed.read(session)
        with counted_queries(engine) as again:
            assert watches(session) == dict.fromkeys(tables, 7)
        assert len(again) <= 5
    with Session(engine) as session, session.begin():
        remember(session, changed, tables[5], 8)
    with Session(engine) as session:
        assert watches(session) == {**dict.fromkeys(tables, 7), tables[5]: 8}
