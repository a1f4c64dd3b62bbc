"""An operator's template fields are those that it was given; its class has all of them."""

from __future__ import annotations

import copy
from typing import Any

from airflow.sdk import DAG, BaseOperator
from airflow.sdk.execution_time.task_runner import _serialize_rendered_fields
from airflow.serialization.serialized_objects import DagSerialization

from airflow_delta.operators import DeltaOptimizeOperator

WHERE = "day = '{{ params.day }}'"


def made(**arguments: Any) -> DeltaOptimizeOperator:
    return DeltaOptimizeOperator(**{"task_id": "optimize", "table": "/data/t", **arguments})


def test_rendered_templates_show_what_was_given_also_where_it_is_the_default() -> None:
    task = made(where=WHERE, engine="auto", dry_run=False, target_size=None)
    task.render_template_fields({"params": {"day": "2026-01-01"}})
    assert _serialize_rendered_fields(task) == {
        "table": "/data/t",
        "engine": "auto",
        "dry_run": False,
        "where": "day = '2026-01-01'",
        "target_size": None,
    }


def test_a_default_of_the_dag_is_given() -> None:
    with DAG("nightly", schedule=None, default_args={"where": WHERE, "engine": "local"}):
        task = made()
    assert task.template_fields == ("table", "engine", "where")


def test_an_attribute_that_is_assigned_later_is_rendered_and_waits_for_the_task_that_it_names() -> None:
    with DAG("nightly", schedule=None):
        first = BaseOperator(task_id="first")
        task = made()
        task.where, task.max_bytes = WHERE, first.output  # type: ignore[assignment]
    assert task.template_fields == ("table", "where", "max_bytes")
    assert task.upstream_task_ids == {"first"}
    task.max_bytes = None
    task.render_template_fields({"params": {"day": "2026-01-01"}})
    assert task.where == "day = '2026-01-01'"


def test_what_rendered_to_nothing_is_still_shown() -> None:
    with DAG("native", schedule=None, render_template_as_native_obj=True):
        task = made(target_size="{{ params.size }}")
    task.render_template_fields({"params": {"size": None}})
    assert _serialize_rendered_fields(task) == {"table": "/data/t", "target_size": None}


def test_a_copy_has_the_same_fields() -> None:
    task = made(where=WHERE)
    for other in (copy.copy(task), copy.deepcopy(task), task.prepare_for_execution()):
        assert other.template_fields == ("table", "where")
        assert other.where == WHERE


def test_a_serialised_dag_holds_what_was_given_and_no_more() -> None:
    with DAG("nightly", schedule=None) as dag:
        made(where=WHERE)
    task: Any = DagSerialization.from_dict(DagSerialization.to_dict(dag)).get_task("optimize")
    assert list(task.template_fields) == ["table", "where"]
    assert task.template_fields_renderers == {"where": "sql"}
    assert (task.table, task.where) == ("/data/t", WHERE)


def test_a_mapped_operator_may_be_given_every_field() -> None:
    tables = [{"table": "/data/{{ params.day }}", "where": WHERE}, {"table": "/data/u"}]
    with DAG("nightly", schedule=None):
        first = BaseOperator(task_id="first")
        mapped: Any = DeltaOptimizeOperator.partial(
            task_id="optimize", max_bytes=first.output, max_files="{{ params.files }}"
        ).expand_kwargs(tables)
    assert mapped.template_fields == DeltaOptimizeOperator.template_fields
    assert mapped.upstream_task_ids == {"first"}
    one, other = (mapped.unmap(each) for each in tables)
    assert set(one.template_fields) == {"table", "where", "max_bytes", "max_files"}
    assert set(other.template_fields) == {"table", "max_bytes", "max_files"}
    one.max_bytes = None
    # As Airflow renders it: with the fields of the mapped operator.
    one._do_render_template_fields(
        one, mapped.template_fields, {"params": {"day": "d1", "files": 7}}, one.get_template_env(), set()
    )
    assert (one.table, one.where, one.max_files) == ("/data/d1", "day = 'd1'", "7")


def test_a_subclass_may_name_its_own_fields() -> None:
    class Nightly(DeltaOptimizeOperator):
        template_fields = (*DeltaOptimizeOperator.template_fields, "moon")
        template_fields_renderers = {**DeltaOptimizeOperator.template_fields_renderers, "moon": "sql"}  # noqa: RUF012 - as in Airflow

        def __init__(self, *, moon: str, **kwargs: Any) -> None:
            super().__init__(**kwargs)
            self.moon = moon

    task = Nightly(task_id="optimize", table="/data/t", moon="{{ params.moon }}", where=WHERE)
    task.render_template_fields({"params": {"day": "d1", "moon": "full"}})
    assert (task.moon, task.where) == ("full", "day = 'd1'")
    assert _serialize_rendered_fields(task)["moon"] == "full"
