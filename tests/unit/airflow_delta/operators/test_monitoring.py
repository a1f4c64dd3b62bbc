from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowException, AirflowFailException
from tests.support.runs.task_context import Supervisor
from tests.support.tables.written_log import add, write_log

from airflow_delta.assets import MAINTENANCE_ALIAS, MONITORING_ALIAS, MONITORING_ASSET
from airflow_delta.monitoring.record import FAILURE_KEY, Source, read_record
from airflow_delta.operators import DeltaOptimizeOperator, DeltaTableHealthOperator
from airflow_delta.runners.job_runner import JobError
from airflow_delta.testing import FakeJobRunner
from delta_maintenance.contract import ErrorReport, JobReport

MakeContext = Callable[..., dict[str, Any]]
TABLE = "s3://lake/events"


class OptimizeWith(DeltaOptimizeOperator):
    """Runs its job with a fake."""

    runner: FakeJobRunner

    def local_runner(self, storage_options: Any) -> FakeJobRunner:
        return self.runner


def optimize(context: dict[str, Any], outcome: JobReport | JobError) -> None:
    operator = OptimizeWith(task_id="optimize", table=TABLE, engine="local")
    operator.runner = FakeJobRunner(outcome)
    OptimizeWith.execute.__wrapped__(operator, context)  # type: ignore[attr-defined]


def read_of(context: dict[str, Any], table: Path) -> None:
    operator = DeltaTableHealthOperator(task_id="health", table=str(table))
    DeltaTableHealthOperator.execute.__wrapped__(operator, context)  # type: ignore[attr-defined]


def told(context: dict[str, Any]) -> list[Any]:
    """The records among a task's events."""
    events = context["outlet_events"][MONITORING_ALIAS].asset_alias_events
    assert all(event.dest_asset_key.name == MONITORING_ASSET.name for event in events)
    return [read_record(event.extra, Source("nightly", "run", "task"), 0) for event in events]


@pytest.fixture
def pushed() -> dict[str, Any]:
    return {}


@pytest.fixture
def context(make_context: MakeContext, pushed: dict[str, Any]) -> dict[str, Any]:
    def push(key: str, value: Any) -> None:
        pushed[key] = value

    return make_context(xcom_push=push)


def test_a_run_that_changed_nothing_is_told_to_the_page_and_to_no_follower(
    context: dict[str, Any], pushed: dict[str, Any]
) -> None:
    optimize(context, JobReport("optimize", TABLE, "nothing_to_do", read_version=3))
    (record,) = told(context)
    assert (record.table, record.operation, record.status) == (TABLE, "optimize", "nothing_to_do")
    assert record.body["lines"]
    assert context["outlet_events"][MAINTENANCE_ALIAS].asset_alias_events == []
    assert pushed == {}


def test_a_reading_of_health_is_told_whole(context: dict[str, Any], tmp_path: Path) -> None:
    write_log(tmp_path / "t", [add("1.parquet", 100)])
    read_of(context, tmp_path / "t")
    (record,) = told(context)
    assert (record.kind, record.status, record.body["facts"]["numFiles"]) == ("health", "healthy", 1)


def test_a_failure_is_left_as_an_xcom_since_a_task_that_fails_has_no_events(
    context: dict[str, Any], pushed: dict[str, Any]
) -> None:
    error = ErrorReport("CommitFailed", "Another writer was faster.", "conflict")
    with pytest.raises(AirflowException):
        optimize(context, JobReport("optimize", TABLE, "failed", error=error))
    record = read_record(pushed[FAILURE_KEY], Source("nightly", "run", "task"), 0)
    assert (record.table, record.status, record.body["error"]["message"]) == (TABLE, "failed", error.message)
    assert told(context) == []


def test_a_job_that_leaves_no_report_is_a_failure_too(
    context: dict[str, Any], pushed: dict[str, Any]
) -> None:
    with pytest.raises(AirflowException):
        optimize(context, JobError("The job of https://u:secret@host/ ended without a report."))
    message = pushed[FAILURE_KEY]["report"]["error"]["message"]
    assert message.endswith("ended without a report.")
    assert "secret" not in message


def test_a_table_that_cannot_be_read_is_a_failure_too(
    context: dict[str, Any], pushed: dict[str, Any], tmp_path: Path
) -> None:
    with pytest.raises(AirflowFailException):
        read_of(context, tmp_path / "absent")
    assert pushed[FAILURE_KEY]["report"]["operation"] == "health"


def test_the_setting_turns_it_off(
    context: dict[str, Any], pushed: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW__DELTA__MONITORING", "False")
    optimize(context, JobReport("optimize", TABLE, "nothing_to_do"))
    with pytest.raises(AirflowException):
        optimize(context, JobReport("optimize", TABLE, "failed"))
    assert (told(context), pushed) == ([], {})


def test_a_task_whose_page_cannot_be_told_goes_on(context: dict[str, Any]) -> None:
    context["outlet_events"] = {MAINTENANCE_ALIAS: context["outlet_events"][MAINTENANCE_ALIAS]}
    optimize(context, JobReport("optimize", TABLE, "nothing_to_do"))


def test_a_task_never_makes_the_asset_and_says_what_makes_it(
    context: dict[str, Any], supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    supervisor.assets.clear()
    monkeypatch.setattr(
        OptimizeWith, "log", SimpleNamespace(warning=lambda text, *_, **__: said.append(text), info=print)
    )
    optimize(context, JobReport("optimize", TABLE, "nothing_to_do"))
    assert told(context) == []
    assert any("scheduler makes it when it starts" in text for text in said)


def test_operators_have_the_alias_of_the_page_as_outlet() -> None:
    for operator in (
        DeltaOptimizeOperator(task_id="optimize", table=TABLE),
        DeltaTableHealthOperator(task_id="health", table=TABLE),
    ):
        assert MONITORING_ALIAS in operator.outlets
