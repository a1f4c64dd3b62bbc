"""The constructors of operators and sensors agree with the rows of their arguments, and Airflow can do with them what it does with any."""

from __future__ import annotations

import copy
import inspect
import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from airflow.sdk import DAG, BaseOperator, BaseSensorOperator
from airflow.sdk.execution_time.task_runner import _serialize_rendered_fields
from airflow.serialization.serialized_objects import DagSerialization

from airflow_delta import operators, sensors
from airflow_delta.fleet import DeltaMaintenanceOperator
from airflow_delta.fleet.arguments import PolicySource
from airflow_delta.operators import DeltaCheckpointOperator, DeltaOptimizeOperator
from airflow_delta.operators.arguments import CheckedArguments, Members
from delta_maintenance.options import Option, PlanDigest, Predicate, Queries
from delta_maintenance.vacuum.options import PrintedPlan

WHERE = "day = '{{ params.day }}'"
KINDS: list[Any] = [
    *(getattr(package, name) for package in (operators, sensors) for name in package.__all__),
    DeltaMaintenanceOperator,
]
#: Arguments that are objects for Airflow, and no options.
NOT_OPTIONS = {"deferrable", "launcher", "poke_interval"}
#: Arguments without which there is no task, besides the table.
REQUIRED: dict[Any, dict[str, Any]] = {
    **{kind: {"small_files": 1} for kind in KINDS if "tombstones" in kind.arguments},
    DeltaMaintenanceOperator: {"policy": {}, "state": "/state"},
    operators.DeltaDropFeatureOperator: {"feature": "deletionVectors"},
    operators.DeltaExpireOperator: {"column": "at"},
}
RENDERERS = {
    Predicate: "sql",
    Queries: "sql",
    Members: "json",
    PlanDigest: "json",
    PrintedPlan: "json",
    PolicySource: "json",
}
each_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)


def levels(kind: type[CheckedArguments]) -> Iterator[type]:
    """A class and its base classes of this provider."""
    return (base for base in kind.__mro__ if base.__module__.startswith("airflow_delta."))


def parameters(kind: type[CheckedArguments]) -> dict[str, inspect.Parameter]:
    """The keyword arguments of a class and its base classes, the nearest first."""
    found: dict[str, inspect.Parameter] = {}
    for level in levels(kind):
        # Airflow gives a class without an __init__ one that calls the one of its base class.
        init = vars(level).get("__init__")
        if init is not None and init.__module__ == level.__module__:
            for name, parameter in inspect.signature(init).parameters.items():
                if parameter.kind is parameter.KEYWORD_ONLY:
                    found.setdefault(name, parameter)
    return found


def documented(kind: type[CheckedArguments]) -> dict[str, str]:
    """The lines of the docstrings of a class and its base classes about arguments, the nearest first."""
    found: dict[str, str] = {}
    for level in levels(kind):
        for name, text in re.findall(
            r":param (\w+): (.*?)(?=:param|\n\n|\Z)", level.__doc__ or "", re.DOTALL
        ):
            found.setdefault(name, " ".join(text.split()))
    return found


def default_of(row: Option) -> Any:
    required = row.required and row.argument_default is None
    return inspect.Parameter.empty if required else row.argument_default


def made(**arguments: Any) -> DeltaOptimizeOperator:
    return DeltaOptimizeOperator(**{"task_id": "optimize", "table": "/data/t", **arguments})


@each_kind
def test_the_signature_has_the_arguments_and_defaults_of_the_rows(kind: type[CheckedArguments]) -> None:
    found = {name: one.default for name, one in parameters(kind).items() if name not in NOT_OPTIONS}
    assert found == {row.argument: default_of(row) for row in kind.arguments.values()}


@each_kind
def test_an_argument_takes_none_where_its_row_does(kind: type[CheckedArguments]) -> None:
    found = parameters(kind)
    for row in kind.arguments.values():
        annotation = found[row.argument].annotation
        assert annotation == "Any" or ("None" in annotation) is not row.required, row.argument


@each_kind
def test_the_attributes_are_the_arguments(kind: Any) -> None:
    rows = [row for row in kind.arguments.values() if row.templates == "whole"]
    given: dict[str, Any] = {row.argument: f"{{{{ params.{row.name} }}}}" for row in rows}
    task = kind(task_id="t", **given)
    assert {row.argument: getattr(task, row.attribute) for row in rows} == given


@each_kind
def test_the_template_fields_are_the_attributes_that_may_be_templates(kind: Any) -> None:
    rows = kind.arguments.values()
    fields = [row.attribute for row in rows if row.templates != "none"]
    assert sorted(kind.template_fields) == sorted(fields)
    assert kind.template_fields_renderers == {
        row.attribute: RENDERERS[type(row.kind)]
        for row in rows
        if type(row.kind) in RENDERERS and row.attribute in fields
    }


@each_kind
def test_the_docstrings_have_a_line_for_each_argument(kind: type[CheckedArguments]) -> None:
    lines = documented(kind)
    assert set(lines) == set(parameters(kind))
    ends = {"whole": "(templated)", "members": "(its values templated)", "none": "."}
    for row in kind.arguments.values():
        assert lines[row.argument].endswith(ends[row.templates]), row.argument


@each_kind
def test_a_known_value_is_checked_when_the_dag_is_parsed(kind: Any) -> None:
    with pytest.raises(ValueError, match="table: 'relative' is a relative path"):
        kind(task_id="t", table="relative", **REQUIRED.get(kind, {}))


def test_a_default_of_the_dag_reaches_the_arguments_of_every_level() -> None:
    given = {"table": "/data/t", "where": WHERE, "engine": "spark", "full": True, "deferrable": False}
    with DAG("nightly", schedule=None, default_args=given):
        task = DeltaOptimizeOperator(task_id="optimize")
        checkpoint = DeltaCheckpointOperator(task_id="checkpoint", full=False)
    assert (task.table, task.where, task.engine, task.full) == ("/data/t", WHERE, "spark", True)
    assert (checkpoint.engine, checkpoint.full) == ("spark", False)


def test_an_attribute_that_is_assigned_later_is_rendered_and_waits_for_the_task_that_it_names() -> None:
    with DAG("nightly", schedule=None):
        first = BaseOperator(task_id="first")
        task = made()
        task.where, task.max_bytes = WHERE, first.output  # type: ignore[assignment]
    assert task.upstream_task_ids == {"first"}
    task.max_bytes = None
    task.render_template_fields({"params": {"day": "2026-01-01"}})
    assert task.where == "day = '2026-01-01'"


def test_a_copy_has_the_same_arguments() -> None:
    task = made(where=WHERE, dry_run=True)
    for other in (copy.copy(task), copy.deepcopy(task), task.prepare_for_execution()):
        assert (other.where, other.dry_run) == (WHERE, True)
        other.dry_run = False
    assert task.dry_run is True


def test_a_serialised_dag_holds_the_arguments_and_the_tasks_that_they_come_from() -> None:
    with DAG("nightly", schedule=None) as dag:
        decide = made(task_id="decide", where=WHERE, dry_run=True)
        made(task_id="act", dry_run=decide.output)
        DeltaOptimizeOperator.partial(task_id="mapped", dry_run=decide.output).expand(table=["/a", "/b"])
    restored = DagSerialization.from_dict(json.loads(json.dumps(DagSerialization.to_dict(dag))))
    task: Any = restored.get_task("decide")
    assert (task.table, task.where, task.dry_run) == ("/data/t", WHERE, True)
    assert task.template_fields_renderers == DeltaOptimizeOperator.template_fields_renderers
    assert restored.get_task("act").upstream_task_ids == {"decide"}
    assert restored.get_task("mapped").upstream_task_ids == {"decide"}


@pytest.mark.parametrize(
    ("value", "shown"), [(True, True), (False, False), ("{{ params.only_plan }}", "yes")]
)
def test_rendered_templates_show_dry_run_under_its_name(value: bool | str, shown: bool | str) -> None:
    task = made(dry_run=value)
    task.render_template_fields({"params": {"only_plan": "yes"}})
    assert _serialize_rendered_fields(task)["dry_run"] == shown
    assert task.value_of("dry_run") is (shown in (True, "yes"))


def test_a_mapped_operator_takes_the_arguments_of_every_level() -> None:
    tables = [{"table": "/data/{{ params.day }}", "where": WHERE}, {"table": "/data/u"}]
    with DAG("nightly", schedule=None, default_args={"rewrite": "copy", "layout": "pack"}):
        first = BaseOperator(task_id="first")
        mapped: Any = DeltaOptimizeOperator.partial(
            task_id="optimize", max_bytes=first.output, max_files="{{ params.files }}"
        ).expand_kwargs(tables)
        with pytest.raises(TypeError, match="unexpected keyword argument 'retain_hours'"):
            DeltaOptimizeOperator.partial(task_id="other", retain_hours=7)
    assert mapped.template_fields == DeltaOptimizeOperator.template_fields
    assert mapped.upstream_task_ids == {"first"}
    one, other = (mapped.unmap(each) for each in tables)
    assert (other.table, other.where, other.rewrite, other.layout) == ("/data/u", None, "copy", "pack")
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


def test_no_argument_hides_a_method_or_property_of_airflow_but_dry_run() -> None:
    hidden = {
        name
        for kind in KINDS
        for name in kind.arguments
        if hasattr(BaseSensorOperator, name) or hasattr(BaseOperator, name)
    }
    assert hidden == {"dry_run"}
