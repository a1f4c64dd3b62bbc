"""A private AIRFLOW_HOME before anything imports Airflow, and the context that a task is given."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

_HOME = tempfile.TemporaryDirectory(prefix="airflow-delta-tests-")
os.environ["AIRFLOW_HOME"] = _HOME.name
os.environ["AIRFLOW__CORE__UNIT_TEST_MODE"] = "True"
os.environ["AIRFLOW__CORE__LOAD_EXAMPLES"] = "False"

from airflow.sdk.execution_time.context import OutletEventAccessors  # noqa: E402

from airflow_delta.testing import FakeStateStore  # noqa: E402


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
