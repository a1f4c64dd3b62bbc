"""The context that a task is given."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.execution_time.context import OutletEventAccessors

from airflow_delta.testing import FakeStateStore


@pytest.fixture
def make_context() -> Callable[..., dict[str, Any]]:
    """A task's context; pass the store of an earlier one for another try of the same task instance."""

    def make(store: FakeStateStore | None = None, max_tries: int = 0, **instance: Any) -> dict[str, Any]:
        names = {"dag_id": "nightly", "task_id": "optimize", "run_id": "manual__1", **instance}
        return {
            "ti": SimpleNamespace(**names, max_tries=max_tries),
            "task_state_store": store or FakeStateStore(),
            "outlet_events": OutletEventAccessors(),
        }

    return make
