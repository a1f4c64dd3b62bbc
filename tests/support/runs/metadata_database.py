"""Airflow's API server in this process, on a metadata database of its own, for tests of routes that a plugin adds."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from itertools import count
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airflow.triggers.base import BaseEventTrigger
    from fastapi.testclient import TestClient
    from sqlalchemy.engine import Engine
    from sqlalchemy.orm import Session

_NUMBERS = count()


def make_tables(url: str | None = None) -> Engine:
    """Make the tables of Airflow's metadata database, as far as they are not there.

    :param url: of the database; ``None``: where the tests' settings say.
    """
    import airflow.models
    from airflow import settings
    from airflow.models.base import Base
    from sqlalchemy import create_engine

    airflow.models.import_all_models()  # type: ignore[no-untyped-call]
    engine = settings.engine if url is None else create_engine(url)
    assert engine is not None
    Base.metadata.create_all(engine)
    return engine


@dataclass
class ApiServer:
    """The API server with all plugins that are installed."""

    client: TestClient
    engine: Engine

    def token(self, role: str = "viewer") -> str:
        from airflow.api_fastapi.app import get_auth_manager
        from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser

        user = SimpleAuthManagerUser(username=role, role=None if role == "stranger" else role)
        return str(get_auth_manager().generate_jwt(user))

    def get(self, path: str, role: str | None = "viewer", **parameters: Any) -> Any:
        headers = {} if role is None else {"Authorization": f"Bearer {self.token(role)}"}
        return self.client.get(path, params=parameters or None, headers=headers)


def start_api_server() -> ApiServer:
    engine = make_tables()
    from airflow.api_fastapi.app import create_app
    from fastapi.testclient import TestClient

    return ApiServer(TestClient(create_app(apps="core")), engine)


def add_dags(*dag_ids: str) -> None:
    from airflow.models.dag import DagModel
    from airflow.models.dagbundle import DagBundleModel
    from airflow.utils.session import create_session

    with create_session() as session:
        session.merge(DagBundleModel(name="tests"))
        session.flush()
        for dag_id in dag_ids:
            dag = DagModel(dag_id=dag_id, bundle_name="tests", fileloc="", is_stale=False)  # type: ignore[no-untyped-call]
            session.merge(dag)


def asset_id_of(name: str) -> int:
    """The number of an asset, which is made if it is not there."""
    from airflow.models.asset import AssetModel
    from airflow.utils.session import create_session
    from sqlalchemy import select

    with create_session() as session:
        found = session.scalar(select(AssetModel).where(AssetModel.name == name))
        if found is None:
            found = AssetModel(name=name, uri=name, group="asset", extra={})
            session.add(found)
            session.flush()
        return int(found.id)


def run_number(session: Session, dag_id: str, run_id: str) -> int:
    """The number of a run of a DAG, which is made if it is not there."""
    from airflow.models.dagrun import DagRun
    from sqlalchemy import insert, select

    names = {"dag_id": dag_id, "run_id": run_id}
    number = select(DagRun.id).filter_by(**names)
    if session.scalar(number) is None:
        now = datetime.now(timezone.utc)
        made = {"run_type": "manual", "state": "success", "run_after": now, "span_status": "ended"}
        # Airflow 3.3 wants a span status, and 3.4 has none.
        columns = {name: value for name, value in made.items() if name in DagRun.__table__.columns}
        session.execute(insert(DagRun).values(**names, **columns))
    return int(session.scalar(number) or 0)


def entry_of(record: Any, at_ms: int, run: int, key: str | None = None, **source: Any) -> dict[str, Any]:
    """The columns of the entry that a task leaves in its state store.

    :param record: value of the entry.
    :param run: number of the run of the DAG.
    :param key: key of the entry; ``None``: the key of the record.
    """
    from airflow_delta.monitoring.record import Source, key_of, read_record

    try_number, map_index = source.pop("try_number", 1), source.pop("map_index", -1)
    return {
        "dag_run_id": run,
        "dag_id": "nightly",
        "run_id": "run",
        "task_id": "task",
        "key": key or key_of(read_record(record, Source("", "", "", map_index), 0), try_number),
        "value": json.dumps(record),
        "updated_at": datetime.fromtimestamp(at_ms / 1000, timezone.utc),
        **source,
    }


def add_record(record: Any, at_ms: int, key: str | None = None, **source: Any) -> int:
    """Write what a task leaves in its state store; the number of the entry. Each one is of another run, unless `source` names it."""
    from airflow.models.task_state_store import TaskStateStoreModel
    from airflow.utils.session import create_session
    from sqlalchemy import insert

    source = {"dag_id": "nightly", "run_id": f"run at {at_ms} {next(_NUMBERS)}", **source}
    with create_session() as session:
        run = run_number(session, source["dag_id"], source["run_id"])
        entry = entry_of(record, at_ms, run, key, **source)
        made = session.execute(insert(TaskStateStoreModel).values(**entry))
        return int(made.inserted_primary_key[0])  # type: ignore[attr-defined]


def watch(asset: str, trigger: BaseEventTrigger) -> None:
    """Give an asset a watcher, as Airflow does for the assets of the DAGs that are not paused."""
    from airflow.models.asset import AssetWatcherModel
    from airflow.models.trigger import Trigger
    from airflow.utils.session import create_session

    asset_id = asset_id_of(asset)
    with create_session() as session:
        row = Trigger.from_object(trigger)
        session.add(row)
        session.flush()
        session.add(AssetWatcherModel(name="watcher", asset_id=asset_id, trigger_id=row.id))


def remember(asset: str, key: str, value: Any, *, by: str = "watcher") -> None:
    """Write an entry of an asset's state store, as Airflow does for a watcher (`watcher`) or for a caller of its REST API (`api`)."""
    from airflow.utils.session import create_session

    asset_id = asset_id_of(asset)
    with create_session() as session:
        _set_state(session, asset_id, key, value, by)


def _set_state(session: Session, asset_id: int, key: str, value: Any, by: str, **source: Any) -> None:
    from airflow._shared.state import AssetScope, AssetStateStoreWriterKind
    from airflow.state.metastore import MetastoreBackend

    MetastoreBackend().set_asset_state_store(
        AssetScope(asset_id=asset_id),
        key,
        json.dumps(value),
        kind=AssetStateStoreWriterKind(by),
        session=session,
        **source,
    )


class OfTask:
    """The state store of an asset, as the last task of a fleet writes to it for the first time.

    :param url: metadata database, in which the asset is; ``None``: where the tests' settings say, and it is made.
    """

    def __init__(self, asset: str, dag_id: str = "nightly", *, url: str | None = None) -> None:
        self._asset, self._dag_id = asset, dag_id
        self._url = url

    def get(self, key: str, default: Any = None) -> Any:
        return default

    def set(self, key: str, value: Any) -> None:
        from airflow.models.asset import AssetModel
        from airflow.utils.session import create_session
        from sqlalchemy import create_engine, select
        from sqlalchemy.orm import Session

        source = {"dag_id": self._dag_id, "run_id": "run", "task_id": "fleet.account", "map_index": -1}
        if self._url is None:
            asset_id = asset_id_of(self._asset)
            with create_session() as session:
                _set_state(session, asset_id, key, value, "task", **source)
        else:
            with Session(create_engine(self._url)) as session, session.begin():
                found = session.scalar(select(AssetModel.id).where(AssetModel.name == self._asset))
                assert found is not None, self._asset
                _set_state(session, found, key, value, "task", **source)

    def delete(self, key: str) -> None:
        raise AssertionError(key)


@contextmanager
def counted_queries(engine: Engine) -> Iterator[list[str]]:
    """The statements that are sent to the database meanwhile."""
    from sqlalchemy import event

    statements: list[str] = []

    def note(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        statements.append(statement)

    event.listen(engine, "before_cursor_execute", note)
    try:
        yield statements
    finally:
        event.remove(engine, "before_cursor_execute", note)


if __name__ == "__main__":
    make_tables(sys.argv[1])
