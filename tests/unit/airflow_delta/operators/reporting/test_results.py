from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from airflow.sdk import Asset, AssetAlias
from airflow.sdk.exceptions import AirflowFailException, AirflowRuntimeError, ErrorType
from airflow.sdk.execution_time.comms import ErrorResponse
from tests.support.runs.task_context import Supervisor

from airflow_delta.assets import (
    DATA_ALIAS,
    MAINTENANCE_ALIAS,
    MONITORING_ALIAS,
    maintenance_asset,
    shared_maintenance_asset,
)
from airflow_delta.operators import DeltaOptimizeOperator
from airflow_delta.operators.reporting.results import TOLD, emit, events_of
from delta_maintenance.contract import STATUSES, JobReport

MakeContext = Callable[..., dict[str, Any]]
TABLE = "s3://lake/events"
NIGHTLY = AssetAlias("nightly")


def report(status: str, version: int | None = None) -> JobReport:
    return JobReport("optimize", TABLE, status, version=version, metrics={"numAddedFiles": 1})


def operator(**arguments: Any) -> DeltaOptimizeOperator:
    return DeltaOptimizeOperator(task_id="optimize", table=TABLE, **arguments)


def emitted(context: dict[str, Any], alias: AssetAlias) -> list[str]:
    return [event.dest_asset_key.name for event in context["outlet_events"][alias].asset_alias_events]


def tell(context: dict[str, Any], told: JobReport, task: DeltaOptimizeOperator) -> None:
    emit(context, told, task)  # type: ignore[arg-type]


def test_which_reports_are_told() -> None:
    told = {
        which: {
            status
            for status in STATUSES
            if events_of(report(status, 3), TABLE, told=which, alias=None, with_data=False)
        }
        for which in TOLD
    }
    assert told["none"] == set()
    assert told["changes"] == {"committed", "written", "cleaned", "restored", "already_done"}
    assert told["all"] == set(STATUSES) - {"begun", "failed", "needs_spark"}


def test_each_table_has_an_asset_of_its_own_unless_they_share_one() -> None:
    own, shared = (
        events_of(report("committed", 3), table, told="changes", alias=alias, with_data=False)[0]
        for table, alias in ((TABLE, None), ("s3://lake/orders", "nightly"))
    )
    assert (own.asset, own.aliases) == (maintenance_asset(TABLE), (MAINTENANCE_ALIAS,))
    assert (shared.asset, shared.aliases) == (
        shared_maintenance_asset("nightly"),
        (MAINTENANCE_ALIAS, NIGHTLY),
    )
    assert shared.extra["table"] == "s3://lake/orders", "the event says which table"


@pytest.mark.parametrize("status", STATUSES)
def test_the_data_asset_hears_of_commits_only_and_only_if_asked_for(status: str) -> None:
    for with_data in (False, True):
        events = events_of(report(status, 3), TABLE, told="none", alias=None, with_data=with_data)
        expected = [(DATA_ALIAS,)] if with_data and status in ("committed", "already_done") else []
        assert [event.aliases for event in events] == expected


def test_an_operator_has_the_aliases_of_its_events_as_outlets() -> None:
    assert operator().outlets == [MAINTENANCE_ALIAS, MONITORING_ALIAS]
    assert operator(asset_alias="nightly").outlets == [MAINTENANCE_ALIAS, NIGHTLY, MONITORING_ALIAS]
    assert operator(emit_data_asset=True).outlets == [MAINTENANCE_ALIAS, DATA_ALIAS, MONITORING_ALIAS]
    assert operator(outlets=[MAINTENANCE_ALIAS]).outlets == [MAINTENANCE_ALIAS, MONITORING_ALIAS]


def test_an_alias_that_a_template_names_becomes_an_outlet_when_the_task_runs(
    make_context: MakeContext, supervisor: Supervisor
) -> None:
    task = operator(asset_alias="{{ params.alias }}", emit_data_asset="{{ params.wake }}")
    assert task.outlets == [MAINTENANCE_ALIAS, MONITORING_ALIAS]
    task.asset_alias, task.emit_data_asset = "nightly", "true"
    context = make_context()
    tell(context, report("committed", 3), task)
    assert task.outlets == [MAINTENANCE_ALIAS, MONITORING_ALIAS, NIGHTLY, DATA_ALIAS]
    assert emitted(context, NIGHTLY) == ["delta-maintenance:nightly"]


def test_the_data_asset_is_the_one_that_a_dag_has_declared_under_whatever_name(
    make_context: MakeContext, supervisor: Supervisor
) -> None:
    context = make_context()
    tell(context, report("committed", 3), operator(emit_data_asset=True))
    assert emitted(context, DATA_ALIAS) == [TABLE]
    supervisor.assets[TABLE] = Asset(name="lake events", uri=TABLE)
    context = make_context()
    tell(context, report("committed", 3), operator(emit_data_asset=True))
    assert emitted(context, DATA_ALIAS) == ["lake events"]
    assert emitted(context, MAINTENANCE_ALIAS) == ["delta-maintenance:s3://lake/events"]


def test_an_error_of_airflow_itself_is_not_taken_for_an_absent_asset(
    make_context: MakeContext, supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = ErrorResponse(error=ErrorType.API_SERVER_ERROR, detail={"status_code": 500})
    monkeypatch.setattr(supervisor, "send", lambda message: broken)
    with pytest.raises(AirflowRuntimeError):
        tell(make_context(), report("committed", 3), operator(emit_data_asset=True))


def test_the_setting_decides_where_the_operator_does_not(
    make_context: MakeContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    def told(setting: str, status: str, **arguments: Any) -> bool:
        monkeypatch.setenv("AIRFLOW__DELTA__EMIT_EVENTS", setting)
        context = make_context()
        tell(context, report(status, 3), operator(**arguments))
        return bool(emitted(context, MAINTENANCE_ALIAS))

    assert told("all", "nothing_to_do")
    assert not told("none", "committed")
    assert told("none", "committed", emit_events="changes")
    assert not told("all", "committed", emit_events="none")


def test_a_setting_that_makes_no_sense_is_refused_before_the_job_starts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AIRFLOW__DELTA__EMIT_EVENTS", "sometimes")
    with pytest.raises(AirflowFailException, match=r"\[delta\] emit_events is 'sometimes'"):
        operator().check_all()


def test_a_table_of_which_airflow_takes_no_asset_makes_no_event_and_no_failure(
    make_context: MakeContext, capsys: pytest.CaptureFixture[str]
) -> None:
    task = DeltaOptimizeOperator(task_id="optimize", table=f"/{'t' * 2000}")
    context = make_context()
    tell(context, report("committed", 3), task)
    assert emitted(context, MAINTENANCE_ALIAS) == []
    assert "No event is emitted" in capsys.readouterr().out


def test_the_name_of_a_maintenance_asset_is_ascii_which_mysql_needs() -> None:
    assert maintenance_asset("/data/größe").name == "delta-maintenance:/data/gr%C3%B6%C3%9Fe"
    assert maintenance_asset("/data/\udce9").name == "delta-maintenance:/data/%E9"
