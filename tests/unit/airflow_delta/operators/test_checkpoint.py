from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from airflow_delta.assets import MAINTENANCE_ALIAS
from airflow_delta.operators import DeltaCheckpointOperator
from airflow_delta.runners.job_runner import JobRunner
from airflow_delta.testing import FakeJobRunner
from delta_maintenance.contract import JobReport, JobSpec

MakeContext = Callable[..., dict[str, Any]]


class Operator(DeltaCheckpointOperator):
    """With a runner that runs nothing."""

    def __init__(self, *, local: FakeJobRunner, **kwargs: Any) -> None:
        super().__init__(task_id="checkpoint", table="s3://lake/events", **kwargs)
        self.local = local

    def local_runner(self, storage_options: Mapping[str, Any]) -> JobRunner:
        return self.local


def run(operator: Operator, context: dict[str, Any]) -> dict[str, Any]:
    return DeltaCheckpointOperator.execute.__wrapped__(operator, context)  # type: ignore[attr-defined, no-any-return]


def written(spec: JobSpec) -> JobReport:
    return JobReport(
        spec.operation, spec.table, "written", run_id=spec.run_id, version=7, metrics={"size": 3}
    )


def test_it_is_local_and_writes_where_it_is_due(make_context: MakeContext) -> None:
    runner, context = FakeJobRunner(written), make_context()
    report = run(Operator(local=runner), context)
    (spec,) = runner.specs
    assert (spec.operation, spec.engine, spec.options) == ("checkpoint", "local", {"if_due": True})
    assert (report["status"], report["version"]) == ("written", 7)
    (event,) = context["outlet_events"][MAINTENANCE_ALIAS].asset_alias_events
    assert (event.extra["operation"], event.extra["version"]) == ("checkpoint", 7)


def test_its_options_may_be_templates_and_are_checked_early_where_they_are_known(
    make_context: MakeContext,
) -> None:
    runner = FakeJobRunner(written, written)
    run(Operator(local=runner, policy="v2", if_due="false"), make_context())
    assert runner.specs[0].options == {"policy": "v2"}
    run(Operator(local=runner, policy="v2", top_format="parquet", full="true"), make_context())
    assert runner.specs[1].options == {"policy": "v2", "top_format": "parquet", "full": True, "if_due": True}
    with pytest.raises(ValueError, match="avro"):
        Operator(local=runner, top_format="avro")
    assert {"policy", "top_format", "full", "if_due", "table"} <= set(DeltaCheckpointOperator.template_fields)
    Operator(local=runner, policy="{{ params.policy }}")
    with pytest.raises(ValueError, match="classic, v2"):
        Operator(local=runner, policy="v3")


def test_looking_after_the_log_is_asked_for_by_switches(make_context: MakeContext) -> None:
    names = ("compact_log", "cleanup_log", "repair_checksum")
    runner = FakeJobRunner(written)
    run(Operator(local=runner, **dict.fromkeys(names, "true")), make_context())
    assert runner.specs[0].options == {"if_due": True, **dict.fromkeys(names, True)}
    assert set(names) <= set(DeltaCheckpointOperator.template_fields)
    for name in names:
        Operator(local=runner, **{name: "{{ params.upkeep }}"})
        with pytest.raises(ValueError, match=f"{name}: 'perhaps'"):
            Operator(local=runner, **{name: "perhaps"})


def test_a_log_that_was_cleaned_is_an_event(make_context: MakeContext) -> None:
    def cleaned(spec: JobSpec) -> JobReport:
        metrics = {"numDeletedFiles": 3, "sizeOfDeletedData": 100}
        return JobReport(spec.operation, spec.table, "cleaned", run_id=spec.run_id, metrics=metrics)

    context = make_context()
    report = run(Operator(local=FakeJobRunner(cleaned), cleanup_log=True), context)
    assert report["status"] == "cleaned"
    (event,) = context["outlet_events"][MAINTENANCE_ALIAS].asset_alias_events
    assert event.extra["metrics"]["numDeletedFiles"] == 3
