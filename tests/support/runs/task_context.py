"""The context that Airflow gives to a task, as far as our operators and sensors use it."""

from __future__ import annotations

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
        names |= {"xcom_push": lambda key, value: None, "map_index": -1, **instance}
        states = {names["run_id"]: {names["task_id"]: "running"}}
        names.setdefault("get_task_states", lambda **_: states)
        return {
            "ti": SimpleNamespace(**names, max_tries=max_tries),
            "task_state_store": store or FakeStateStore(),
            "outlet_events": OutletEventAccessors(),
        }

    return make


class Supervisor:
    """Answers the question for an asset as Airflow's supervisor does."""

    def __init__(self, *assets: Asset) -> None:
        self.assets = {asset.uri: asset for asset in assets}

    def send(self, message: Any) -> Any:
        from airflow.sdk.exceptions import ErrorType
        from airflow.sdk.execution_time.comms import AssetResult, ErrorResponse, GetAssetByName

        by_name = {asset.name: asset for asset in self.assets.values()}
        found = (
            by_name.get(message.name) if isinstance(message, GetAssetByName) else self.assets.get(message.uri)
        )
        if found is None:
            return ErrorResponse(error=ErrorType.ASSET_NOT_FOUND, detail={})
        return AssetResult(name=found.name, uri=found.uri, group="asset")


@pytest.fixture
def supervisor(monkeypatch: pytest.MonkeyPatch) -> Supervisor:
    """The supervisor of a task in this process; it knows the asset of the page *Delta tables*."""
    from airflow.sdk.execution_time import context, task_runner

    from airflow_delta.assets import MONITORING_ASSET

    made = Supervisor(MONITORING_ASSET)
    monkeypatch.setattr(task_runner, "SUPERVISOR_COMMS", made, raising=False)
    monkeypatch.setattr(context._AssetRefResolutionMixin, "_asset_ref_cache", {})
    return made
