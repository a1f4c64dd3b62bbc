"""What a DAG names lies below the allowed roots, or nothing is opened."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import AssetWatcher
from airflow.sdk.exceptions import AirflowFailException, TaskDeferred
from tests.support.runs.tail_runs import TailedTable
from tests.support.runs.triggerer import Triggerer, in_a_loop

from airflow_delta.assets import maintenance_asset
from airflow_delta.hooks import DeltaTableHook
from airflow_delta.hooks.watched_store import watched_store
from airflow_delta.operators import (
    DeltaAnalyzeOperator,
    DeltaCheckpointOperator,
    DeltaGenerateOperator,
    DeltaOptimizeOperator,
    DeltaReorgPurgeOperator,
    DeltaRepairOperator,
    DeltaRestoreOperator,
    DeltaVacuumOperator,
)
from airflow_delta.operators.base import DeltaJobOperator
from airflow_delta.sensors import (
    DeltaDeletionVectorRatioSensor,
    DeltaTableHealthSensor,
    DeltaTableVersionSensor,
)
from airflow_delta.testing import FakeAssetStateStore, FakeJobRunner, FakeStateStore, committed
from airflow_delta.triggers import DeltaDeletionVectorRatioTrigger, DeltaTableVersionTrigger
from delta_log.errors import InvalidRequest

pytestmark = pytest.mark.usefixtures("settled_deferrals")

MakeContext = Callable[..., dict[str, Any]]
SETTING = "AIRFLOW__DELTA__ALLOWED_ROOTS"
SECRET = "wJalrXUtnFEMI"
WITH_SECRET = f"s3://AKIAKEY:{SECRET}@lake/t"
OPERATORS = [
    DeltaOptimizeOperator,
    DeltaReorgPurgeOperator,
    DeltaVacuumOperator,
    DeltaCheckpointOperator,
    DeltaRestoreOperator,
    DeltaGenerateOperator,
    DeltaRepairOperator,
    DeltaAnalyzeOperator,
]
SENSORS: list[Callable[..., Any]] = [
    DeltaTableVersionSensor,
    DeltaDeletionVectorRatioSensor,
    lambda **more: DeltaTableHealthSensor(small_files=1, **more),
]


@pytest.fixture(autouse=True)
def fresh_stores() -> None:
    """A triggerer keeps the clients of a connection, and the roots with them."""
    watched_store.cache_clear()


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """A root with a table in it, a table outside, and a link from the root to that."""
    for name in ("root/t", "outside/t"):
        TailedTable(name, str(tmp_path / name)).create()
    (tmp_path / "root" / "way_out").symlink_to(tmp_path / "outside")
    return tmp_path


def connect(monkeypatch: pytest.MonkeyPatch, **extra: Any) -> DeltaTableHook:
    monkeypatch.setenv("AIRFLOW_CONN_LAKE", json.dumps({"conn_type": "delta", "extra": extra}))
    return DeltaTableHook("lake")


def execute(operator: DeltaJobOperator, context: dict[str, Any]) -> FakeJobRunner:
    """Runs the operator with a runner that runs nothing."""
    runner = FakeJobRunner(committed)
    operator.local_runner = lambda _options: runner  # type: ignore[method-assign, assignment]
    # Airflow refuses an execute() that its task runner did not call.
    DeltaJobOperator.execute.__wrapped__(operator, context)  # type: ignore[attr-defined]
    return runner


def of_a_sensor() -> Any:
    instance = SimpleNamespace(dag_id="d", task_id="t", run_id="r", map_index=-1, max_tries=0)
    instance.xcom_pull = lambda **_: []
    instance.xcom_push = lambda *_: None
    return {"ti": instance, "task_state_store": FakeStateStore()}


@pytest.mark.parametrize(
    ("value", "roots"),
    [
        ("s3://lake/a", ("s3://lake/a",)),
        (" s3://lake/a/ ,\n/data/lake\n", ("s3://lake/a/", "/data/lake")),
        (["s3://lake/a,b", "/data"], ("s3://lake/a,b", "/data")),
    ],
)
def test_roots_are_a_list_or_a_text(
    monkeypatch: pytest.MonkeyPatch, value: Any, roots: tuple[str, ...]
) -> None:
    assert connect(monkeypatch, allowed_roots=value).allowed_roots == {"connection 'lake'": roots}
    if isinstance(value, str):
        monkeypatch.setenv(SETTING, value)
        assert DeltaTableHook().allowed_roots == {"Airflow's setting [delta] allowed_roots": roots}


@pytest.mark.parametrize(
    "value", [" ", ",", [], [" "], {"a": 1}, 7, [7], "relative", "s3://", "s3://lake/../x", WITH_SECRET]
)
def test_roots_that_are_none_are_no_open_gate(monkeypatch: pytest.MonkeyPatch, value: Any) -> None:
    with pytest.raises(AirflowFailException, match="allowed_roots of connection 'lake'") as caught:
        connect(monkeypatch, allowed_roots=value).require_allowed("s3://lake/a")
    assert SECRET not in str(caught.value)


def test_a_setting_that_came_out_empty_is_no_open_gate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SETTING, "")
    with pytest.raises(AirflowFailException, match="are set and name no address"):
        DeltaTableHook().require_allowed("/data")


def test_without_roots_there_is_no_fence_and_an_empty_field_of_the_form_sets_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert DeltaTableHook().allowed_roots == {}
    for value in ("", None):
        hook = connect(monkeypatch, allowed_roots=value)
        assert hook.allowed_roots == {}
        hook.require_allowed("s3://anywhere/at/all")


def test_a_connection_narrows_the_setting_and_cannot_widen_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SETTING, "s3://lake")
    hook = connect(monkeypatch, allowed_roots="s3://lake/sales, s3://elsewhere")
    hook.require_allowed("s3://lake/sales/t", "s3a://lake/sales")
    for address, who in (
        ("s3://lake/hr", "connection 'lake'"),
        ("s3://elsewhere/t", r"Airflow's setting \[delta\] allowed_roots"),
    ):
        with pytest.raises(AirflowFailException, match=f"{address} is outside of the allowed roots of {who}"):
            hook.require_allowed("s3://lake/sales/t", address)
    DeltaTableHook().require_allowed("s3://lake/hr")


def test_the_hook_opens_no_table_outside(monkeypatch: pytest.MonkeyPatch, lake: Path) -> None:
    hook = connect(monkeypatch, allowed_roots=f"{lake}/root", test_table=f"{lake}/outside/t")
    assert hook.get_table(f"{lake}/root/t").snapshot().version == 0
    assert "allowed_roots" not in hook.storage_options
    for address in (f"{lake}/outside/t", f"{lake}/root/way_out/t", f"{lake}/root/../outside/t", "relative"):
        with pytest.raises(AirflowFailException, match=r"\[(OutsideAllowedRoots|InvalidRequest)\]"):
            hook.get_table(address)
    works, said = hook.test_connection()
    assert not works
    assert "outside of the allowed roots" in said


@pytest.mark.parametrize("kind", OPERATORS)
def test_an_operator_starts_no_job_outside(
    monkeypatch: pytest.MonkeyPatch, make_context: MakeContext, lake: Path, kind: Any
) -> None:
    monkeypatch.setenv(SETTING, f"{lake}/root")
    for address in (f"{lake}/outside/t", f"{lake}/root/way_out/t", "/", "s3://lake/t"):
        context = make_context()
        with pytest.raises(AirflowFailException, match=f"outside of the allowed roots of .*: {lake}/root"):
            execute(kind(task_id="t", table=address), context)
        assert context["task_state_store"].get("delta_maintenance_run") is None
    runner = execute(kind(task_id="t", table=f"{lake}/root/t"), make_context())
    assert runner.specs[0].allowed_roots == {"Airflow's setting [delta] allowed_roots": (f"{lake}/root",)}


@pytest.mark.parametrize(
    ("kind", "more"),
    [
        (DeltaOptimizeOperator, {"output": "s3://other/plan.json"}),
        (DeltaReorgPurgeOperator, {"output": "s3://lake/a"}),
        (DeltaVacuumOperator, {"output": "/tmp/plan.json"}),
        (DeltaVacuumOperator, {"inventory": "s3://other/list.parquet"}),
        (DeltaVacuumOperator, {"inventory": "s3://lake/a/manifest.json"}),
    ],
)
def test_every_other_place_is_held_against_the_roots_too(
    monkeypatch: pytest.MonkeyPatch, make_context: MakeContext, kind: Any, more: Mapping[str, str]
) -> None:
    monkeypatch.setenv(SETTING, "s3://lake/a")
    with pytest.raises(AirflowFailException, match="outside of the allowed roots"):
        execute(kind(task_id="t", table="s3://lake/a/t", **more), make_context())
    within = {name: f"s3://lake/a/b/c/{name}.json" for name in more}
    assert execute(kind(task_id="t", table="s3://lake/a/t", **within), make_context()).specs


@pytest.mark.parametrize("deferrable", [False, True])
@pytest.mark.parametrize("kind", SENSORS)
def test_a_sensor_looks_at_no_table_outside(
    monkeypatch: pytest.MonkeyPatch, lake: Path, kind: Any, *, deferrable: bool
) -> None:
    connect(monkeypatch, allowed_roots=[f"{lake}/root"])
    for address in (f"{lake}/outside/t", f"{lake}/root/way_out/t"):
        sensor = kind(task_id="t", table=address, delta_conn_id="lake", deferrable=deferrable, timeout=5)
        with pytest.raises(AirflowFailException, match="outside of the allowed roots of connection 'lake'"):
            sensor.execute(of_a_sensor())


def test_a_trigger_looks_again_where_it_runs(monkeypatch: pytest.MonkeyPatch, lake: Path) -> None:
    connect(monkeypatch)
    sensor = DeltaTableVersionSensor(
        task_id="t", table=f"{lake}/outside/t", delta_conn_id="lake", deferrable=True, baseline=0
    )
    with pytest.raises(TaskDeferred) as caught:
        sensor.execute(of_a_sensor())
    # The triggerer is another process, and roots may have been set in between.
    watched_store.cache_clear()
    connect(monkeypatch, allowed_roots=f"{lake}/root")

    async def events() -> list[Any]:
        return [event.payload async for event in caught.value.trigger.run()]

    (event,) = asyncio.run(events())
    assert (event["status"], "outside of the allowed roots" in event["message"]) == ("refused", True)


@pytest.mark.parametrize("address", ["{lake}/outside/t", "{lake}/*", "{lake}/root/way_out/*"])
def test_a_watcher_of_a_table_outside_tells_nothing_and_says_why(
    monkeypatch: pytest.MonkeyPatch, lake: Path, caplog: pytest.LogCaptureFixture, address: str
) -> None:
    monkeypatch.setenv(SETTING, f"{lake}/root")
    trigger = DeltaTableVersionTrigger(address.format(lake=lake), poll_interval=0.05, start_from="earliest")

    @in_a_loop
    async def watch() -> None:
        async with Triggerer(trigger, FakeAssetStateStore()) as triggerer:
            await triggerer.wait_for(lambda: "outside of the allowed roots" in caplog.text)
            assert triggerer.events == []

    watch()


@pytest.mark.parametrize("kind", [*OPERATORS, *SENSORS])
@pytest.mark.parametrize("table", ["relative/t", "./t", "~/t", "file:t", WITH_SECRET])
def test_a_relative_path_or_a_credential_is_refused_when_the_dag_is_parsed(kind: Any, table: str) -> None:
    with pytest.raises(ValueError, match="table: .*(relative path|carries credentials)") as caught:
        kind(task_id="t", table=table)
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize("kind", [DeltaTableVersionTrigger, DeltaDeletionVectorRatioTrigger])
@pytest.mark.parametrize("table", ["relative/t", WITH_SECRET, ["/data/t", WITH_SECRET]])
def test_so_it_is_by_triggers(kind: Any, table: Any) -> None:
    with pytest.raises(ValueError, match="relative path|carries credentials") as caught:
        AssetWatcher(name="w", trigger=kind(table))
    assert SECRET not in str(caught.value)


def test_no_asset_has_a_credential_in_its_name() -> None:
    with pytest.raises(InvalidRequest, match="carries credentials"):
        maintenance_asset(WITH_SECRET)


@pytest.mark.parametrize("field", ["table", "output", "inventory"])
def test_a_rendered_credential_ends_the_task_before_its_fields_are_stored(field: str) -> None:
    """Airflow stores what it shows as Rendered Templates right after it has rendered."""
    arguments: dict[str, Any] = {"table": "/data/t", field: "{{ params.address }}"}
    operator = DeltaVacuumOperator(task_id="t", **arguments)
    with pytest.raises(AirflowFailException, match=f"{field}: .*carries credentials") as caught:
        operator.render_template_fields({"params": {"address": WITH_SECRET}})
    assert SECRET not in str(caught.value)
    sensor = DeltaTableVersionSensor(task_id="t", table="{{ params.address }}")
    with pytest.raises(AirflowFailException, match="carries credentials"):
        sensor.render_template_fields({"params": {"address": WITH_SECRET}})
    sensor = DeltaTableVersionSensor(task_id="t", table="{{ params.address }}")
    sensor.render_template_fields({"params": {"address": "/data/t"}})
    assert sensor.table == "/data/t"


def test_what_a_job_writes_is_shown_without_credentials() -> None:
    from airflow_delta.runners.job_output import JobOutput, LogLine

    output = JobOutput("a nonce")
    assert list(output.sort([f"GET {WITH_SECRET} failed\n"])) == [
        LogLine("debug", "GET s3://***@lake/t failed")
    ]
    assert SECRET not in str(output.last_lines)


def test_the_setting_is_part_of_what_airflow_lists() -> None:
    from airflow_delta.provider_info import CONNECTION_FIELDS, get_provider_info

    assert get_provider_info()["config"]["delta"]["options"]["allowed_roots"]["default"] is None
    assert "allowed_roots" in CONNECTION_FIELDS
    assert SETTING not in os.environ
