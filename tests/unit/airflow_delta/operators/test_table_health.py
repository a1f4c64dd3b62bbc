from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException
from tests.support.tables.written_log import add, write_log

from airflow_delta.operators import DeltaTableHealthOperator

MakeContext = Callable[..., dict[str, Any]]


def run(context: dict[str, Any], table: Path, **arguments: Any) -> dict[str, Any]:
    operator = DeltaTableHealthOperator(task_id="health", table=str(table), **arguments)
    return DeltaTableHealthOperator.execute.__wrapped__(operator, context)  # type: ignore[attr-defined, no-any-return]


@pytest.fixture
def table(tmp_path: Path) -> Path:
    write_log(tmp_path / "t", [add(f"{number}.parquet", 100) for number in range(5)])
    return tmp_path / "t"


def test_the_xcom_is_the_document_and_the_log_tells_it(
    table: Path, make_context: MakeContext, capsys: pytest.CaptureFixture[str]
) -> None:
    document = run(make_context(), table, small_files="4")
    assert json.loads(json.dumps(document)) == document
    assert (document["table"], document["status"]) == (str(table), "attention")
    (advice,) = document["recommendations"]
    assert (advice["operator"], advice["arguments"]) == ("DeltaOptimizeOperator", {})
    assert "OPTIMIZE would merge 5 of 5 files; the limit is 4." in capsys.readouterr().out
    assert run(make_context(), table, small_files=5)["status"] == "healthy"


def test_its_limits_may_be_templates_and_are_checked_early_where_they_are_known(table: Path) -> None:
    with pytest.raises(ValueError, match="deleted_rows_ratio: 2 is not"):
        DeltaTableHealthOperator(task_id="health", table=str(table), deleted_rows_ratio=2)
    assert {"small_files", "reclaimable_size", "table"} <= set(DeltaTableHealthOperator.template_fields)
    DeltaTableHealthOperator(task_id="health", table=str(table), small_files="{{ params.limit }}")


def test_what_cannot_pass_fails_for_good(
    table: Path, tmp_path: Path, make_context: MakeContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(AirflowFailException, match="is not a Delta table"):
        run(make_context(), tmp_path / "nothing")
    with pytest.raises(AirflowFailException, match="is above the target size"):
        run(make_context(), table, target_size="1MiB", min_file_size="2MiB")
    monkeypatch.setenv("AIRFLOW__DELTA__ALLOWED_ROOTS", str(tmp_path / "elsewhere"))
    with pytest.raises(AirflowFailException, match="outside of the allowed roots"):
        run(make_context(), table)
