"""A connection that cannot open a table ends the task before anything is started, whatever kind of task it is."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException

from airflow_delta.hooks.watched_store import watched_store
from airflow_delta.operators import (
    DeltaCheckpointOperator,
    DeltaDoctorOperator,
    DeltaOptimizeOperator,
    DeltaReorgPurgeOperator,
    DeltaTableHealthOperator,
    DeltaVacuumOperator,
)
from airflow_delta.sensors import DeltaDeletionVectorRatioSensor, DeltaTableVersionSensor
from airflow_delta.testing import FakeStateStore
from airflow_delta.triggers import DeltaTableVersionTrigger

pytestmark = pytest.mark.usefixtures("settled_deferrals")

OPERATORS = [
    DeltaOptimizeOperator,
    DeltaReorgPurgeOperator,
    DeltaVacuumOperator,
    DeltaCheckpointOperator,
    DeltaTableHealthOperator,
    DeltaDoctorOperator,
]
SENSORS = [DeltaTableVersionSensor, DeltaDeletionVectorRatioSensor]
ELSEWHERE = "abfss://container@account.dfs.core.windows.net/t"
SECRET = "hidden-secret-key"


@pytest.fixture(autouse=True)
def aws(monkeypatch: pytest.MonkeyPatch) -> None:
    connection = {"conn_type": "aws", "login": "AKIA", "password": SECRET}
    monkeypatch.setenv("AIRFLOW_CONN_AWS_LAKE", json.dumps(connection))
    watched_store.cache_clear()


def of_a_sensor() -> Any:
    instance = SimpleNamespace(dag_id="d", task_id="t", run_id="r", map_index=-1, max_tries=0)
    instance.xcom_pull = lambda **_: []
    instance.xcom_push = lambda *_: None
    return {"ti": instance, "task_state_store": FakeStateStore()}


@pytest.mark.parametrize("kind", OPERATORS)
def test_an_operator_refuses_it(kind: Any, make_context: Callable[..., dict[str, Any]]) -> None:
    operator = kind(task_id="t", table=ELSEWHERE, delta_conn_id="aws_lake")
    context = make_context()
    with pytest.raises(AirflowFailException, match="is for s3:// addresses"):
        kind.execute.__wrapped__(operator, context)
    assert context["task_state_store"].get("delta_maintenance_run") is None


@pytest.mark.parametrize("deferrable", [False, True])
@pytest.mark.parametrize("kind", SENSORS)
def test_a_sensor_refuses_it(kind: Any, *, deferrable: bool) -> None:
    sensor = kind(task_id="t", table=ELSEWHERE, delta_conn_id="aws_lake", deferrable=deferrable, timeout=5)
    with pytest.raises(AirflowFailException, match="is for s3:// addresses"):
        sensor.execute(of_a_sensor())


def test_a_trigger_refuses_it_and_is_stored_without_a_secret() -> None:
    trigger = DeltaTableVersionTrigger(ELSEWHERE, "aws_lake", 0.05, baseline=0, awaited={"version": 9})
    assert SECRET not in repr(trigger.serialize())
    assert "aws_lake" in repr(trigger.serialize())

    async def events() -> list[Any]:
        return [event.payload async for event in trigger.run()]

    (event,) = asyncio.run(events())
    assert (event["status"], event["type"]) == ("refused", "UnusableConnection")
    assert "is for s3:// addresses" in event["message"]
