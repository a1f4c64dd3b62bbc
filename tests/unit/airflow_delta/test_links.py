from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowException
from msgspec.structs import replace

from airflow_delta.links import SparkApplicationLink, TableLink, TablePageLink, spark_url
from airflow_delta.monitoring.record import table_id
from airflow_delta.operators import DeltaOptimizeOperator
from airflow_delta.runners.job_output import JobProgress
from airflow_delta.runners.job_runner import JobLost, JobRunner
from airflow_delta.testing import FakeJobRunner
from delta_maintenance.contract import JobReport, SparkApplication

SPARK: SparkApplication = {"application_id": "app-2026/1", "ui_url": "http://worker:4040", "version": "4.2.0"}
HISTORY = "https://history.example.org/history/{application_id}/jobs/"
REPORT = JobReport("optimize", "s3://lake/events", "committed", spark=SPARK)


def link(kind: Any, report: JobReport | None) -> str:
    operator = DeltaOptimizeOperator(task_id="optimize", table="s3://lake/events")
    operator.report = report
    return str(kind().get_link(operator, ti_key=None))


def test_the_link_leads_to_the_history_server_if_there_is_one_else_to_the_ui(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert link(SparkApplicationLink, REPORT) == "http://worker:4040"
    monkeypatch.setenv("AIRFLOW__DELTA__SPARK_HISTORY_URL", HISTORY)
    assert link(SparkApplicationLink, REPORT) == "https://history.example.org/history/app-2026%2F1/jobs/"
    assert link(SparkApplicationLink, replace(REPORT, spark=None)) == ""
    assert link(SparkApplicationLink, None) == ""


def test_a_task_shows_the_ui_while_its_job_runs_and_keeps_the_application_of_a_job_that_was_lost(
    make_context: Callable[..., dict[str, Any]],
) -> None:
    pushed: dict[str, str] = {}
    context = make_context(xcom_push=lambda key, value: pushed.update({key: value}))
    ready = JobProgress(message="Spark is ready", spark=SPARK)
    runner = FakeJobRunner(JobLost("killed"), progress=[ready, replace(ready, message="more")])

    class Operator(DeltaOptimizeOperator):
        def local_runner(self, storage_options: Mapping[str, Any]) -> JobRunner:
            return runner

    operator = Operator(task_id="optimize", table="s3://lake/events", engine="local")
    with pytest.raises(AirflowException, match="killed"):
        # Airflow refuses an execute() that its task runner did not call.
        DeltaOptimizeOperator.execute.__wrapped__(operator, context)  # type: ignore[attr-defined]
    assert pushed[SparkApplicationLink().xcom_key] == "http://worker:4040"
    ended: Any = None
    assert SparkApplicationLink().get_link(operator, ti_key=ended) == "http://worker:4040"


def test_a_page_of_the_table_is_linked_if_the_installation_has_one(monkeypatch: pytest.MonkeyPatch) -> None:
    assert link(TableLink, REPORT) == ""
    monkeypatch.setenv("AIRFLOW__DELTA__TABLE_URL", "https://catalog.example.org/tables?uri={table}")
    assert link(TableLink, REPORT) == "https://catalog.example.org/tables?uri=s3%3A%2F%2Flake%2Fevents"


def test_a_task_leads_to_its_table_on_the_page_where_that_is_turned_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    address = f"/plugin/delta-tables?table={table_id('s3://lake/events')}"
    assert link(TablePageLink, REPORT) == address
    monkeypatch.setenv("AIRFLOW__API__BASE_URL", "https://example.org/airflow/")
    assert link(TablePageLink, REPORT) == f"/airflow{address}"
    monkeypatch.setenv("AIRFLOW__DELTA__MONITORING", "False")
    assert link(TablePageLink, REPORT) == ""


def kept_links(operator: Any) -> list[str]:
    """The links whose addresses Airflow keeps as XComs when the task has ended."""
    return [link.name for link in operator.operator_extra_links]


@pytest.mark.parametrize("result", [REPORT, replace(REPORT, spark=None), JobLost("killed")])
def test_a_task_that_has_ended_keeps_the_links_that_lead_somewhere(
    monkeypatch: pytest.MonkeyPatch, make_context: Callable[..., dict[str, Any]], result: Any
) -> None:
    class Operator(DeltaOptimizeOperator):
        def local_runner(self, storage_options: Mapping[str, Any]) -> JobRunner:
            return FakeJobRunner(result)

    operator = Operator(task_id="optimize", table="s3://lake/events", engine="local")
    assert kept_links(operator) == ["Spark application", "Table", "Delta tables"]
    for table_url, more in ((None, []), ("https://catalog.example.org/{table}", ["Table"])):
        if table_url is not None:
            monkeypatch.setenv("AIRFLOW__DELTA__TABLE_URL", table_url)
        with suppress(AirflowException):
            # Airflow refuses an execute() that its task runner did not call.
            DeltaOptimizeOperator.execute.__wrapped__(operator, make_context())  # type: ignore[attr-defined]
        spark = ["Spark application"] if result is REPORT else []
        assert kept_links(operator) == [*spark, *more, "Delta tables"]
    assert kept_links(Operator) == ["Spark application", "Table", "Delta tables"]


@pytest.mark.parametrize("url", ["javascript:alert(1)", "file:///etc/passwd", "", None])
def test_no_link_leads_a_browser_to_anything_but_a_page(url: str | None) -> None:
    assert spark_url({**SPARK, "ui_url": url}, None) == ""
    assert spark_url({"ui_url": url}, HISTORY) == ""
