from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowException, AirflowFailException
from tests.support.runs.task_context import reported
from tests.support.tables.written_log import add, write_log

from airflow_delta.assets import MAINTENANCE_ALIAS
from airflow_delta.monitoring.record import KEY_PREFIX, Record, Source, read_record
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


def told(context: dict[str, Any]) -> list[Record]:
    """The records that a task has left."""
    return [read_record(record, Source("nightly", "run", "task"), 0) for record in reported(context)]


@pytest.fixture
def context(make_context: MakeContext) -> dict[str, Any]:
    return make_context()


def test_a_run_that_changed_nothing_is_told_to_the_page_and_to_no_follower(
    context: dict[str, Any],
) -> None:
    optimize(context, JobReport("optimize", TABLE, "nothing_to_do", read_version=3))
    (record,) = told(context)
    assert (record.table, record.operation, record.status) == (TABLE, "optimize", "nothing_to_do")
    assert record.body["lines"]
    assert context["outlet_events"][MAINTENANCE_ALIAS].asset_alias_events == []


def test_a_reading_of_health_is_told_whole(context: dict[str, Any], tmp_path: Path) -> None:
    write_log(tmp_path / "t", [add("1.parquet", 100)])
    read_of(context, tmp_path / "t")
    (record,) = told(context)
    assert (record.kind, record.status, record.body["facts"]["numFiles"]) == ("health", "healthy", 1)


def test_a_failure_is_reported_with_its_error(context: dict[str, Any]) -> None:
    error = ErrorReport("CommitFailed", "Another writer was faster.", "conflict")
    with pytest.raises(AirflowException):
        optimize(context, JobReport("optimize", TABLE, "failed", error=error))
    (record,) = told(context)
    assert (record.table, record.status, record.body["error"]["message"]) == (TABLE, "failed", error.message)


def test_a_job_that_leaves_no_report_is_a_failure_too(context: dict[str, Any]) -> None:
    with pytest.raises(AirflowException):
        optimize(context, JobError("The job of https://u:secret@host/ ended without a report."))
    message = told(context)[0].body["error"]["message"]
    assert message.endswith("ended without a report.")
    assert "secret" not in message


def test_a_table_that_cannot_be_read_is_a_failure_too(context: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(AirflowFailException):
        read_of(context, tmp_path / "absent")
    assert told(context)[0].operation == "health"


def test_each_try_leaves_a_record_of_its_own(context: dict[str, Any]) -> None:
    for number, status in ((1, "failed"), (2, "committed")):
        context["ti"].try_number = number
        with suppress(AirflowException):
            optimize(context, JobReport("optimize", TABLE, status))
    assert [record.status for record in told(context)] == ["failed", "committed"]


def test_the_setting_turns_it_off(context: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__DELTA__MONITORING", "False")
    optimize(context, JobReport("optimize", TABLE, "nothing_to_do"))
    with pytest.raises(AirflowException):
        optimize(context, JobReport("optimize", TABLE, "failed"))
    assert told(context) == []


def test_airflow_keeps_a_record_as_long_as_the_page_shows_it(
    context: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW__DELTA__MONITORING_DAYS", "7")
    optimize(context, JobReport("optimize", TABLE, "nothing_to_do"))
    (retention,) = [
        held for key, held in context["task_state_store"].retentions.items() if key.startswith(KEY_PREFIX)
    ]
    assert retention == timedelta(days=7)


def test_a_task_that_cannot_leave_its_record_goes_on(context: dict[str, Any]) -> None:
    del context["task_state_store"]
    optimize(context, JobReport("optimize", TABLE, "nothing_to_do"))
