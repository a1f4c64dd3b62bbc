"""The records of tasks are read from PostgreSQL as they are from SQLite, where the other tests read them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, timezone
from threading import Barrier
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.records import health_document
from tests.support.runs.metadata_database import counted_queries

from airflow_delta.assets import MONITORING_ASSET
from airflow_delta.monitoring.feed import Feed
from airflow_delta.monitoring.record import FAILURE_KEY, record_of_health, record_of_report
from delta_maintenance.contract import ErrorReport, JobReport

if TYPE_CHECKING:
    from sqlalchemy.engine import Engine

pytestmark = pytest.mark.airflow

NOW = datetime(2026, 11, 1, tzinfo=timezone.utc)


@pytest.fixture(scope="module")
def engine(new_database: Callable[[], str]) -> Iterator[Engine]:
    import airflow.models
    from airflow.models.base import Base
    from sqlalchemy import create_engine

    airflow.models.import_all_models()  # type: ignore[no-untyped-call]
    made = create_engine(new_database())
    Base.metadata.create_all(made)
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
    with engine.begin() as connection:
        # Without the task instance that Airflow would have.
        connection.execute(text("SET session_replication_role = replica"))
        connection.execute(
            insert(XComModel).values(dag_run_id=1, key=FAILURE_KEY, value=value, timestamp=NOW, **names)
        )


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
        assert (len(first), len(second)) == (5, 5)
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
