from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowException, AirflowFailException
from tests.support.tables.small_tables import write_days

from airflow_delta.operators import DeltaDoctorOperator

MakeContext = Callable[..., dict[str, Any]]


def run(context: dict[str, Any], table: Path | str, **arguments: Any) -> dict[str, Any]:
    operator = DeltaDoctorOperator(task_id="doctor", table=str(table), **arguments)
    return DeltaDoctorOperator.execute.__wrapped__(operator, context)  # type: ignore[attr-defined, no-any-return]


def context_with_xcoms(make_context: MakeContext) -> tuple[dict[str, Any], dict[str, Any]]:
    context, pushed = make_context(), {}
    context["ti"].xcom_push = lambda key, value: pushed.update({key: value})
    return context, pushed


def test_the_xcom_is_the_document_and_each_check_is_a_line_of_the_log(
    tmp_path: Path, make_context: MakeContext, capsys: pytest.CaptureFixture[str]
) -> None:
    write_days(tmp_path / "t", files=2)
    document = run(make_context(), tmp_path / "t")
    assert json.loads(json.dumps(document)) == document
    assert (document["table"], document["status"]) == (str(tmp_path / "t"), "ok")
    log = capsys.readouterr().out
    for check in document["checks"]:
        assert f"{check['name']} ok: " in log
    assert "table ok: version 1, 2 files" in log


def test_a_check_that_failed_fails_the_task_and_the_xcom_says_which(
    tmp_path: Path, make_context: MakeContext, capsys: pytest.CaptureFixture[str]
) -> None:
    context, pushed = context_with_xcoms(make_context)
    with pytest.raises(AirflowException, match="1 check failed. store.list: There is no directory") as raised:
        run(context, tmp_path / "nothing")
    assert not isinstance(raised.value, AirflowFailException)
    assert pushed["return_value"]["status"] == "failure"
    assert "store.list failure: There is no directory" in capsys.readouterr().out


def test_a_wrong_request_fails_for_good(
    tmp_path: Path, make_context: MakeContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_days(tmp_path / "t", files=1)
    with pytest.raises(AirflowFailException, match="There is no Airflow connection 'nowhere'"):
        run(make_context(), tmp_path / "t", spark_conn_id="nowhere")
    with pytest.raises(AirflowFailException, match="There is no Airflow connection 'nowhere'"):
        run(make_context(), tmp_path / "t", delta_conn_id="nowhere")
    monkeypatch.setenv("AIRFLOW__DELTA__ALLOWED_ROOTS", str(tmp_path / "elsewhere"))
    with pytest.raises(AirflowFailException, match="outside of the allowed roots"):
        run(make_context(), tmp_path / "t")


def test_a_spark_that_does_not_answer_is_a_failed_check(
    tmp_path: Path, make_context: MakeContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection = {
        "conn_type": "spark_connect",
        "host": "localhost",
        "port": 1,
        "extra": {"token": "hidden-token"},
    }
    monkeypatch.setenv("AIRFLOW_CONN_SPARK", json.dumps(connection))
    write_days(tmp_path / "t", files=1)
    context, pushed = context_with_xcoms(make_context)
    with pytest.raises(AirflowException, match="spark.answer"):
        run(context, tmp_path / "t", spark_conn_id="spark")
    assert "hidden-token" not in json.dumps(pushed)


def test_its_arguments_are_checked_early_where_they_are_known() -> None:
    with pytest.raises(ValueError, match="executor_credentials"):
        DeltaDoctorOperator(task_id="doctor", table="/t", executor_credentials="none")
    DeltaDoctorOperator(task_id="doctor", table="{{ params.table }}", executor_credentials="ambient")
