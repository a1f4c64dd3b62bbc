"""Tables by their names in a Glue catalog: the command line, operators, sensors, triggers and the hook."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import Asset
from airflow.sdk.exceptions import AirflowException, AirflowFailException
from tests.support.runs.task_context import Supervisor, reported
from tests.support.servers.glue import GlueServer
from tests.support.servers.process import free_port
from tests.support.tables.small_tables import write_days

from airflow_delta.assets import DATA_ALIAS, MAINTENANCE_ALIAS
from airflow_delta.hooks.delta_table import DeltaTableHook
from airflow_delta.hooks.watched_store import WatchedStore
from airflow_delta.operators.doctor import DeltaDoctorOperator
from airflow_delta.operators.optimize import DeltaOptimizeOperator
from airflow_delta.operators.table_health import DeltaTableHealthOperator
from airflow_delta.sensors import DeltaTableHealthSensor, DeltaTableVersionSensor
from airflow_delta.testing import FakeStateStore
from airflow_delta.triggers.table_version import DeltaTableVersionTrigger
from delta_log import Table
from delta_log.catalog.lookup import locate
from delta_log.errors import AccessDenied, InvalidRequest, NotDelta, NotInCatalog, StorageError
from delta_maintenance.cli.main import main
from delta_maintenance.fleet.discovery import discover

MakeContext = Callable[..., Any]


@pytest.fixture
def table(tmp_path: Path) -> Path:
    write_days(tmp_path / "events")
    return tmp_path / "events"


@pytest.fixture
def name(glue: GlueServer, table: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The table's name in the catalog of the connection ``lake``."""
    monkeypatch.setenv("AIRFLOW_CONN_LAKE", glue.connection)
    return glue.register(f"file://{table}")


@pytest.fixture
def free_database(glue: GlueServer) -> str:
    name = f"d_{uuid.uuid4().hex[:12]}"
    glue.client().create_database(DatabaseInput={"Name": name})
    return name


def printed(capsys: pytest.CaptureFixture[str]) -> Any:
    return json.loads(capsys.readouterr().out)


def test_every_command_takes_a_name_and_shows_where_it_led(
    glue: GlueServer, name: str, table: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--storage-options", json.dumps(glue.storage_options)]
    for command in ("inspect", "history", "health", "optimize", "vacuum", "checkpoint", "cleanup-log"):
        assert main([command, name, *options, "--json"]) == 0
        found = printed(capsys)
        assert (found["table"], found["location"]) == (name, str(table)), command
    assert main(["doctor", "--table", name, *options, "--json"]) == 0
    checks = {check["name"]: check for check in printed(capsys)["checks"]}
    assert checks["catalog"]["message"] == f"{name} is at {table}"
    assert checks["store.list"]["status"] == checks["table"]["status"] == "ok"
    assert main(["inspect", name, *options]) == 0
    assert f"location        {table}" in capsys.readouterr().out


def test_what_is_no_delta_table_is_refused_with_what_it_is(glue: GlueServer, tmp_path: Path) -> None:
    view = {"TableType": "VIRTUAL_VIEW", "ViewOriginalText": "SELECT 1"}
    for address, why in (
        (glue.register("s3://lake/t", {"table_type": "ICEBERG"}), "of the format ICEBERG"),
        (glue.register("s3://lake/t", {"classification": "csv"}), "none of the properties"),
        (glue.register(None, {}, **view), "it is a view"),
        (glue.register("glue://sales.other"), "another name as its location"),
    ):
        with pytest.raises(NotDelta, match=why) as refused:
            locate(address, glue.storage_options)
        assert not refused.value.retryable
    for address, what in (("glue://sales.absent", "Table absent"), ("glue://absent.t", "Database absent")):
        with pytest.raises(NotInCatalog, match=f"{address} is not in the catalog .*{what}"):
            locate(address, glue.storage_options)
    assert locate(glue.register("wasbs://c@acc.blob.core.windows.net/t/"), glue.storage_options) == (
        "abfss://c@acc.dfs.core.windows.net/t"
    )


def test_a_refusal_names_the_right_the_identity_and_the_region_and_an_outage_can_be_retried(
    glue: GlueServer, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = glue.user_without_rights()
    with glue.looking_at_rights():
        for options in (
            mine,
            glue.storage_options,
        ):  # a user that the catalog knows, and one that it does not
            refused = f"{name}: access was denied to access key …{options['key'][-4:]}"
            with pytest.raises(AccessDenied, match=refused) as denied:
                locate(name, options)
            assert f"glue:GetTable on the catalog, the database {glue.database}" in str(denied.value.right)
            assert not denied.value.retryable
            assert options["secret"] not in str(denied.value)
    away = {"region": "eu-central-1", "endpoint_url": f"http://127.0.0.1:{free_port()}"}
    with pytest.raises(StorageError, match="Glue does not answer at") as failed:
        locate(name, {**glue.storage_options, "glue": away})
    assert failed.value.retryable
    monkeypatch.delenv("AWS_DEFAULT_REGION", raising=False)
    with pytest.raises(InvalidRequest, match="no AWS region"):
        locate(name, {"glue": {"endpoint_url": glue.endpoint_url}})
    with pytest.raises(InvalidRequest, match='"glue" is no object'):
        locate(name, {"glue": {"host": "x"}})


def test_the_delta_tables_of_a_database_are_found_with_their_places(
    glue: GlueServer, table: Path, free_database: str
) -> None:
    server = dataclasses.replace(glue, database=free_database)
    one = server.register(f"file://{table}")
    others = [server.register(f"s3://lake/{number}") for number in range(3)]
    bad = server.register("s3://[lake/t")
    server.register("s3://lake/t", {"table_type": "ICEBERG"})
    server.register(None, {}, TableType="VIRTUAL_VIEW", ViewOriginalText="SELECT 1")
    link = server.register(
        None, {}, TargetTable={"DatabaseName": free_database, "Name": one.rpartition(".")[2]}
    )
    lost = server.register(None, {}, TargetTable={"DatabaseName": free_database, "Name": "absent"})
    found = discover([f"glue://{free_database}.*"], [others[0]], server.storage_options)
    places = {table.table: table.location for table in found.tables}
    assert places.keys() == {one, *others[1:]}
    assert places[one] == str(table)
    assert places[others[2]] == "s3://lake/2"
    # The link leads to a table that is there already.
    assert link not in places
    assert {unread.table: unread.error.type for unread in found.unlisted} == {
        lost: "NotInCatalog",
        bad: "InvalidRequest",
    }
    again = discover(
        [str(table), one, f"glue://{free_database}.{one[-6:]}*", link], (), server.storage_options
    )
    assert [(table.table, table.location) for table in again.tables] == [(str(table), str(table))]
    assert again.without_tables == (f"glue://{free_database}.{one[-6:]}*",)


def test_a_database_that_cannot_be_listed_is_told_and_others_are_found(glue: GlueServer, name: str) -> None:
    (unread,) = discover(["glue://absent.*", name], (), glue.storage_options).unlisted
    assert (unread.table, unread.error.type) == ("glue://absent.*", "NotInCatalog")
    mine = glue.user_without_rights()
    with glue.looking_at_rights():
        (denied,) = discover(["glue://sales.*"], (), mine).unlisted
    assert denied.error.type == "AccessDenied"
    assert f"glue:GetTables on the catalog, the database {glue.database}" in denied.error.message


def test_an_operator_maintains_the_place_and_everything_airflow_keeps_goes_by_the_name(
    name: str, table: Path, make_context: MakeContext, supervisor: Supervisor
) -> None:
    asset = Asset(f"file://{table}")
    supervisor.assets[str(table)] = asset
    context = make_context()
    operator = DeltaOptimizeOperator(
        task_id="optimize", table=name, delta_conn_id="lake", engine="local", emit_data_asset=True
    )
    report = operator.execute(context)
    assert (report["status"], report["table"], report["location"]) == ("committed", name, str(table))
    assert Table(str(table)).snapshot().transactions.keys() == {f"airflow:nightly:optimize:optimize:{name}"}
    events = context["outlet_events"]
    (told,) = events[MAINTENANCE_ALIAS].asset_alias_events
    assert told.dest_asset_key.uri == f"delta-maintenance:{name}"
    assert told.extra["location"] == str(table)
    assert [event.dest_asset_key.uri for event in events[DATA_ALIAS].asset_alias_events] == [asset.uri]
    (record,) = reported(context)
    assert (record["table"], record["report"]["location"]) == (name, str(table))
    # Another try of the same work finds its transaction, and commits nothing.
    again = operator.execute(make_context(context["task_state_store"]))
    assert again["status"] == "already_done"


def test_a_retry_goes_to_the_place_where_the_table_is_by_then(
    glue: GlueServer,
    name: str,
    table: Path,
    tmp_path: Path,
    make_context: MakeContext,
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = FakeStateStore()
    operator = DeltaOptimizeOperator(task_id="optimize", table=name, delta_conn_id="lake", engine="local")
    operator.execute(make_context(store))
    write_days(tmp_path / "moved")
    glue.move(name, f"file://{tmp_path}/moved")
    report = operator.execute(make_context(store))
    assert (report["status"], report["location"]) == ("committed", f"{tmp_path}/moved")
    # A task that comes back from a deferral has its job at the earlier place, and needs no catalog to collect it.
    glue.drop(name)
    hook = DeltaTableHook("lake")
    assert operator._located(make_context(store), hook, is_resumed=True) == f"{tmp_path}/moved"
    with pytest.raises(AirflowFailException, match="is not in the catalog"):
        operator.execute(make_context(store))


def test_the_allowed_roots_hold_for_the_place_and_not_for_the_name(
    glue: GlueServer,
    name: str,
    table: Path,
    tmp_path: Path,
    make_context: MakeContext,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AIRFLOW__DELTA__ALLOWED_ROOTS", f"{tmp_path}/events, s3://lake/sales")
    operator = DeltaOptimizeOperator(
        task_id="o", table=name, delta_conn_id="lake", engine="local", dry_run=True
    )
    assert operator.execute(make_context())["status"] == "planned"
    outside = glue.register(f"file://{tmp_path}/elsewhere")
    for task in (
        DeltaOptimizeOperator(task_id="o", table=outside, delta_conn_id="lake", engine="local"),
        DeltaTableHealthOperator(task_id="h", table=outside, delta_conn_id="lake"),
        DeltaDoctorOperator(task_id="d", table=outside, delta_conn_id="lake"),
    ):
        with pytest.raises(
            AirflowFailException, match=f"{tmp_path}/elsewhere is outside of the allowed roots"
        ):
            task.execute(make_context())
    assert not (tmp_path / "elsewhere").exists()
    with pytest.raises(AirflowFailException, match="outside of the allowed roots"):
        WatchedStore("lake").open(outside)
    monkeypatch.setenv("AIRFLOW__DELTA__ALLOWED_ROOTS", name)
    with pytest.raises(AirflowFailException, match="a name in a catalog, which may lead to any place"):
        operator.execute(make_context())


def test_a_catalog_that_is_down_fails_the_try_and_not_the_task(
    glue: GlueServer, name: str, make_context: MakeContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    down = glue.connection.replace(glue.endpoint_url, f"http://127.0.0.1:{free_port()}")
    monkeypatch.setenv("AIRFLOW_CONN_LAKE", down)
    operator = DeltaOptimizeOperator(task_id="o", table=name, delta_conn_id="lake", engine="local")
    with pytest.raises(AirflowException, match="Glue does not answer") as failed:
        operator.execute(make_context())
    assert not isinstance(failed.value, AirflowFailException)


def test_the_health_operator_and_the_hook_take_a_name(
    name: str, table: Path, make_context: MakeContext
) -> None:
    document = DeltaTableHealthOperator(task_id="h", table=name, delta_conn_id="lake").execute(make_context())
    assert (document["table"], document["location"]) == (name, str(table))
    hook = DeltaTableHook("lake")
    assert hook.get_table(name).snapshot().num_files == Table(str(table)).snapshot().num_files
    assert "glue" not in hook.storage_options


def test_sensors_and_watchers_follow_a_name_to_another_place(
    glue: GlueServer, name: str, table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow_delta.hooks import watched_store

    monkeypatch.setattr(watched_store, "_SECONDS_BETWEEN_LOOKUPS", 0.0)
    watched_store.watched_store.cache_clear()
    trigger = DeltaTableVersionTrigger(name, "lake", baseline=Table(str(table)).snapshot().version)
    wait = trigger.wait()
    assert wait.look() is None
    # The whole table moves, with its log; what comes next is at the new place.
    moved = tmp_path / "moved"
    table.rename(moved)
    glue.move(name, f"file://{moved}")
    write_days(moved, files=1)
    outcome = asyncio.run(trigger.store.run(wait.look))
    assert outcome is not None
    assert outcome["range"]["table"] == name
    assert outcome["range"]["lastVersion"] == Table(str(moved)).snapshot().version
    # An outage of the catalog does not move a table that is known.
    monkeypatch.setenv("AIRFLOW_CONN_LAKE", glue.connection.replace(glue.endpoint_url, "http://127.0.0.1:9"))
    trigger.store._hook = DeltaTableHook("lake")
    assert trigger.store.open(name).uri == str(moved)


def test_a_sensor_waits_for_a_name_that_the_catalog_does_not_have_yet(
    glue: GlueServer, name: str, table: Path, make_context: MakeContext
) -> None:
    from airflow_delta.hooks.watched_store import watched_store

    watched_store.cache_clear()
    glue.drop(name)
    sensor = DeltaTableHealthSensor(task_id="s", table=name, delta_conn_id="lake", small_files=1)
    versions = DeltaTableVersionSensor(task_id="v", table=name, delta_conn_id="lake", start_from="earliest")
    context: Any = make_context(map_index=-1, xcom_pull=lambda **_: [])
    assert sensor.look(context) is None
    assert versions.look(context) is None
    glue.client().create_table(
        DatabaseName=glue.database,
        TableInput={
            "Name": name.rpartition(".")[2],
            "Parameters": {"table_type": "delta"},
            "StorageDescriptor": {"Location": f"file://{table}"},
        },
    )
    found = sensor.look(context)
    assert found is not None
    assert found["finding"]["table"] == name
    seen = versions.look(context)
    assert seen is not None
    assert seen["status"] == "found"


@pytest.mark.parametrize("given", ["glue://events", "hms://host:9083/sales.events"])
def test_a_wrong_name_is_refused_when_the_dag_is_parsed(given: str) -> None:
    for make in (
        lambda: DeltaOptimizeOperator(task_id="o", table=given),
        lambda: DeltaTableVersionSensor(task_id="s", table=given),
        lambda: DeltaTableVersionTrigger(given),
    ):
        with pytest.raises(ValueError, match="is not a name in a catalog"):
            make()


def test_a_connection_of_another_cloud_has_no_identity_for_glue(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_LAKE", json.dumps({"conn_type": "google_cloud_platform"}))
    with pytest.raises(AirflowFailException, match="looked up with an identity of AWS"):
        DeltaTableHook("lake").locate("glue://sales.events")
