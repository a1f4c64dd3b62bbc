from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException

from airflow_delta.assets import MAINTENANCE_ALIAS
from airflow_delta.operators import DeltaVacuumOperator
from airflow_delta.runners.job_runner import JobRunner
from airflow_delta.testing import FakeJobRunner, committed
from delta_maintenance.contract import ErrorReport, JobReport, JobSpec
from delta_maintenance.vacuum.options import ApprovedPlan, VacuumOptions

MakeContext = Callable[..., dict[str, Any]]
PLAN = {"cutoffMs": 7, "numFilesToDelete": 2, "sizeOfDataToDelete": 30, "reasons": {}}


class Operator(DeltaVacuumOperator):
    """With a runner that runs nothing."""

    def __init__(self, *, runner: FakeJobRunner | None = None, **kwargs: Any) -> None:
        super().__init__(**{"task_id": "vacuum", "table": "s3://lake/events", **kwargs})
        self.local = runner or FakeJobRunner(committed)

    def local_runner(self, storage_options: Mapping[str, Any]) -> JobRunner:
        return self.local


def run(operator: Operator, context: dict[str, Any]) -> dict[str, Any]:
    # Airflow refuses an execute() that its task runner did not call.
    return DeltaVacuumOperator.execute.__wrapped__(operator, context)  # type: ignore[attr-defined, no-any-return]


def test_what_is_wanted_reaches_the_job(make_context: MakeContext) -> None:
    runner = FakeJobRunner(committed)
    operator = Operator(
        runner=runner,
        retain_hours="24",
        retention_check="False",
        where="day < '2026-01-01'",
        require_proof=True,
        output="s3://lake/lists/events.json",
        approved_plan={"operation": "vacuum", "plan": PLAN},
        quarantine="yes",
        purge_quarantine_hours="168",
    )
    context = make_context()
    run(operator, context)
    (spec,) = runner.specs
    assert spec.operation == "vacuum"
    options = VacuumOptions.from_mapping(spec.options)
    assert options == VacuumOptions(
        retain_hours=24.0,
        retention_check=False,
        where="day < '2026-01-01'",
        require_proof=True,
        output="s3://lake/lists/events.json",
        approved=ApprovedPlan(7, 2, 30),
        quarantine=True,
        purge_quarantine_hours=168.0,
    )
    (event,) = context["outlet_events"][MAINTENANCE_ALIAS].asset_alias_events
    assert event.extra["operation"] == "vacuum"


def test_left_alone_it_asks_for_what_the_table_says(make_context: MakeContext) -> None:
    runner = FakeJobRunner(committed)
    run(Operator(runner=runner, lite=True), make_context())
    assert VacuumOptions.from_mapping(runner.specs[0].options) == VacuumOptions(lite=True)


@pytest.mark.parametrize("text", ['{"plan": %s}', "%s"])
def test_an_approved_plan_may_be_the_text_of_one(text: str, make_context: MakeContext) -> None:
    for spelling in (str(PLAN), str(PLAN).replace("'", '"')):
        runner = FakeJobRunner(committed)
        operator = Operator(runner=runner)
        operator.approved_plan = text % spelling
        run(operator, make_context())
        assert runner.specs[0].options["approved"] == {
            name: PLAN[name] for name in ("cutoffMs", "numFilesToDelete", "sizeOfDataToDelete")
        }


@pytest.mark.parametrize(
    "wrong",
    [
        {"retain_hours": -1},
        {"retain_hours": "week"},
        {"retain_hours": True},
        {"lite": "perhaps"},
        {"approved_plan": "{}"},
        {"approved_plan": {"plan": {"cutoffMs": "x"}}},
    ],
)
def test_what_makes_no_sense_is_refused_when_the_dag_is_parsed(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Operator(**wrong)


def test_a_template_is_judged_when_it_is_known(make_context: MakeContext) -> None:
    operator = Operator(retain_hours="{{ params.hours }}")
    operator.retain_hours = "-3"
    with pytest.raises(AirflowFailException, match="retain_hours"):
        run(operator, make_context())


def test_a_refusal_fails_for_good(make_context: MakeContext) -> None:
    def refused(spec: JobSpec) -> JobReport:
        error = ErrorReport("VacuumRefused", "The plan has grown.", "refused", retryable=False)
        return JobReport(spec.operation, spec.table, "failed", run_id=spec.run_id, error=error)

    with pytest.raises(AirflowFailException, match="The plan has grown"):
        run(Operator(runner=FakeJobRunner(refused)), make_context())
