"""The context that Airflow gives to a task, as far as our operators and sensors use it."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from airflow_delta.testing import FakeStateStore


@pytest.fixture
def make_context() -> Callable[..., dict[str, Any]]:
    """Makes a task's context; with the store of an earlier one, that of another try of the same task instance."""
    from airflow.sdk.execution_time.context import OutletEventAccessors

    from airflow_delta.testing import FakeStateStore

    def make(store: FakeStateStore | None = None, max_tries: int = 0, **instance: Any) -> dict[str, Any]:
        names: dict[str, Any] = {"dag_id": "nightly", "task_id": "optimize", "run_id": "manual__1"}
        names |= {"xcom_push": lambda key, value: None, **instance}
        return {
            "ti": SimpleNamespace(**names, max_tries=max_tries),
            "task_state_store": store or FakeStateStore(),
            "outlet_events": OutletEventAccessors(),
        }

    return make
