"""`dry_run` is an argument that Airflow renders and shows, and a method that may be called."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from airflow.sdk import DAG, BaseOperator
from airflow.sdk.execution_time.task_runner import _serialize_rendered_fields
from airflow.serialization.serialized_objects import DagSerialization

from airflow_delta.operators import DeltaOptimizeOperator


def optimize(**arguments: Any) -> DeltaOptimizeOperator:
    return DeltaOptimizeOperator(task_id="optimize", table="/t", **arguments)


@pytest.mark.parametrize(
    ("value", "shown"), [(True, True), (False, False), ("{{ params.only_plan }}", "yes")]
)
def test_rendered_templates_show_it_under_its_name(value: bool | str, shown: bool | str) -> None:
    task = optimize(dry_run=value)
    task.render_template_fields({"params": {"only_plan": "yes"}})
    assert _serialize_rendered_fields(task)["dry_run"] == shown
    assert task.value_of("dry_run") is (shown in (True, "yes"))


def test_the_method_of_the_base_class_can_be_called(capsys: pytest.CaptureFixture[str]) -> None:
    task = optimize(dry_run=True)
    task.dry_run()
    assert "Dry run" in capsys.readouterr().out
    assert DeltaOptimizeOperator.dry_run is BaseOperator.dry_run


def test_copies_of_a_task_keep_it() -> None:
    given: Any = optimize(dry_run=True)
    for task in (copy.copy(given), copy.deepcopy(given)):
        assert task.dry_run == True  # noqa: E712 - it equals the value, and is not the value
        assert task.value_of("dry_run") is True
        task.dry_run = False
        assert not task.dry_run
    assert given.dry_run


def test_a_serialised_dag_holds_the_value_and_the_task_that_it_comes_from() -> None:
    with DAG("d", schedule=None) as dag:
        decide = DeltaOptimizeOperator(task_id="decide", table="/t", dry_run=True)
        DeltaOptimizeOperator(task_id="act", table="/t", dry_run=decide.output)  # type: ignore[arg-type]
        DeltaOptimizeOperator.partial(task_id="mapped", dry_run=decide.output).expand(table=["/a", "/b"])
    encoded = json.loads(json.dumps(DagSerialization.to_dict(dag)))
    tasks = {task["__var"]["task_id"]: task["__var"] for task in encoded["dag"]["tasks"]}
    assert tasks["decide"]["dry_run"] is True
    assert dag.get_task("act").upstream_task_ids == {"decide"}
    assert dag.get_task("mapped").upstream_task_ids == {"decide"}
