"""The context that Airflow gives to a task, as far as our operators and sensors use it."""

from __future__ import annotations

import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from airflow.sdk import Asset

    from airflow_delta.testing import FakeStateStore


@pytest.fixture
def make_context(supervisor: Supervisor) -> Callable[..., dict[str, Any]]:
    """Makes a task's context; with the store of an earlier one, that of another try of the same task instance."""
    from airflow.sdk.execution_time.context import OutletEventAccessors

    from airflow_delta.testing import FakeStateStore

    def make(store: FakeStateStore | None = None, max_tries: int = 0, **instance: Any) -> dict[str, Any]:
        names: dict[str, Any] = {"dag_id": "nightly", "task_id": "optimize", "run_id": "manual__1"}
        names |= {"xcom_push": lambda key, value: None, "map_index": -1, "try_number": 1, **instance}
        states = {names["run_id"]: {names["task_id"]: "running"}}
        names.setdefault("get_task_states", lambda **_: states)
        return {
            "ti": SimpleNamespace(**names, max_tries=max_tries),
            "task_state_store": store or FakeStateStore(),
            "outlet_events": OutletEventAccessors(),
        }

    return make


def reported(context: dict[str, Any]) -> list[dict[str, Any]]:
    """The records that a task has left in its state store, the oldest first."""
    from airflow_delta.monitoring.record import KEY_PREFIX

    values = context["task_state_store"].values
    return [json.loads(value) for key, value in values.items() if key.startswith(KEY_PREFIX)]


class Supervisor:
    """Answers the question for an asset as Airflow's supervisor does."""

    def __init__(self) -> None:
        self.assets: dict[str, Asset] = {}

    def send(self, message: Any) -> Any:
        from airflow.sdk.exceptions import ErrorType
        from airflow.sdk.execution_time.comms import AssetResult, ErrorResponse

        found = self.assets.get(message.uri)
        if found is None:
            return ErrorResponse(error=ErrorType.ASSET_NOT_FOUND, detail={})
        return AssetResult(name=found.name, uri=found.uri, group="asset")


@pytest.fixture
def supervisor(monkeypatch: pytest.MonkeyPatch) -> Supervisor:
    """The supervisor of a task in this process; it knows no asset."""
    from airflow.sdk.execution_time import context, task_runner

    made = Supervisor()
    monkeypatch.setattr(task_runner, "SUPERVISOR_COMMS", made, raising=False)
    monkeypatch.setattr(context._AssetRefResolutionMixin, "_asset_ref_cache", {})
    return made
