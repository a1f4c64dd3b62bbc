"""Large rewrites of a fleet on Spark: the session beside the task, and jobs that outlive it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowException, AirflowFailException, TaskDeferred
from deltalake import DeltaTable
from msgspec.structs import replace
from tests.support.tables.small_tables import write_days

from airflow_delta.fleet import DeltaMaintenanceOperator
from airflow_delta.fleet.fleet_task import TaskKilled
from airflow_delta.fleet.maintain import DeltaFleetMaintainOperator
from airflow_delta.runners.job_runner import JobCannotStart
from airflow_delta.testing import FakeDetachedRunner, FakeStateStore
from delta_maintenance.contract import JobReport, JobSpec
from delta_maintenance.fleet.account.night import Night
from delta_maintenance.fleet.policy.reading import policy_of
from delta_maintenance.fleet.run import FleetNight, account_for
from delta_maintenance.job import JobSite, run_job
from delta_maintenance.progress import SilentProgress

MakeContext = Callable[..., dict[str, Any]]
pytestmark = pytest.mark.usefixtures("settled_deferrals")


class Operator(DeltaFleetMaintainOperator):
    """The operator with a cluster that is not there."""

    def __init__(self, *, runner: FakeDetachedRunner, **kwargs: Any) -> None:
        super().__init__(task_id="maintain", spark_above="1KiB", spark_conn_id="cluster", **kwargs)
        self.fake = runner

    def spark_runner(self, storage_options: Mapping[str, Any]) -> Any:
        return self.fake


def by_this_process(spec: JobSpec) -> JobReport:
    """What a cluster would do."""
    assert spec.engine == "spark"
    return run_job(replace(spec, engine="local"), JobSite(), SilentProgress())


class Fleet:
    """A night over one table with six small files, of which each test makes tries of the task ``maintain``."""

    def __init__(self, directory: Path, make_context: MakeContext) -> None:
        self.table, self.state = directory / "lake" / "events", directory / "state"
        write_days(self.table, files=6)
        self.policy = {
            "tables": {"include": [f"{directory}/lake/**"]},
            "healthy": {"small_files": 2},
            "disruption": {"quiet": "0m"},
            "jitter": "0m",
            "trust": {"new_table": "auto"},
        }
        self.fleet = FleetNight(policy_of(self.policy), str(self.state), JobSite(), SilentProgress())
        self.night = self.fleet.begin()
        self.store = FakeStateStore()
        self._make_context = make_context

    def try_of(self, runner: FakeDetachedRunner, **arguments: Any) -> Operator:
        return Operator(runner=runner, night=self.night.run_id, units=[0], state=str(self.state), **arguments)

    def context(self, try_number: int = 1) -> Any:
        return self._make_context(self.store, task_id="maintain", try_number=try_number)

    def account(self) -> Night:
        return account_for(self.night, self.fleet.store, JobSite(), SilentProgress())

    def num_files(self) -> int:
        return len(DeltaTable(str(self.table)).file_uris())


@pytest.fixture
def fleet(tmp_path: Path, make_context: MakeContext) -> Fleet:
    return Fleet(tmp_path, make_context)


def run(operator: Operator, context: Any) -> Any:
    # Airflow refuses an execute() that its task runner did not call.
    return DeltaFleetMaintainOperator.execute.__wrapped__(operator, context)  # type: ignore[attr-defined]


def complete(operator: Operator, context: Any) -> Any:
    resumed: Any = operator
    resumed.execute = lambda given: run(operator, given)
    return operator.execute_complete(context, {"text": "FINISHED"})


def test_a_large_rewrite_runs_in_a_spark_session_beside_the_task(
    tmp_path: Path, make_context: MakeContext
) -> None:
    fleet = Fleet(tmp_path, make_context)
    task = DeltaFleetMaintainOperator(
        task_id="maintain", night=fleet.night.run_id, units=[0], state=str(fleet.state), spark_above="1KiB"
    )
    assert task.execute(fleet.context()) == {"done": 1, "not_begun": 0}
    assert task.spark_application is not None
    assert fleet.num_files() == 2
    (outcome,) = fleet.account().outcomes
    assert (outcome.run.operation, outcome.run.status) == ("optimize", "committed")


def test_smaller_work_stays_in_the_process(fleet: Fleet) -> None:
    runner = FakeDetachedRunner()
    task = fleet.try_of(runner)
    task.spark_above = "1GiB"
    assert run(task, fleet.context()) == {"done": 1, "not_begun": 0}
    assert (runner.submissions, fleet.num_files()) == ([], 2)


def test_a_deferred_task_goes_on_when_its_job_is_over(fleet: Fleet) -> None:
    runner = FakeDetachedRunner(by_this_process)
    with pytest.raises(TaskDeferred):
        run(fleet.try_of(runner, deferrable=True), fleet.context())
    assert fleet.num_files() == 6
    assert complete(fleet.try_of(runner, deferrable=True), fleet.context()) == {"done": 1, "not_begun": 0}
    assert (len(runner.submissions), fleet.num_files()) == (1, 2)


def test_another_try_goes_on_with_the_job_of_a_killed_worker(fleet: Fleet) -> None:
    runner = FakeDetachedRunner(by_this_process, looks=3)
    with pytest.raises(TaskDeferred):  # and nobody resumes it
        run(fleet.try_of(runner, deferrable=True), fleet.context())
    assert run(fleet.try_of(runner), fleet.context(2)) == {"done": 1, "not_begun": 0}
    assert (len(runner.submissions), fleet.num_files()) == (1, 2)


def test_a_job_that_fails_after_a_deferral_fails_the_task_and_another_try_submits_again(fleet: Fleet) -> None:
    runner = FakeDetachedRunner(None, by_this_process)
    with pytest.raises(TaskDeferred):
        run(fleet.try_of(runner, deferrable=True), fleet.context())
    with pytest.raises(AirflowException, match="ended without a report"):
        complete(fleet.try_of(runner, deferrable=True), fleet.context())
    assert run(fleet.try_of(runner), fleet.context(2)) == {"done": 1, "not_begun": 0}
    assert len(runner.submissions) == 2


def test_a_task_that_is_killed_cancels_its_job_and_the_night_says_what_was_interrupted(fleet: Fleet) -> None:
    class Killed(FakeDetachedRunner):
        def submit(self, spec: JobSpec, run_key: str, submission_id: str) -> Any:
            super().submit(spec, run_key, submission_id)
            task.on_kill()  # as a signal handler does in the middle of it

    runner = Killed(by_this_process)
    task = fleet.try_of(runner)
    with pytest.raises(TaskKilled):
        run(task, fleet.context())
    assert runner.cancelled == runner.submissions != []
    night = fleet.account()
    assert (night.outcomes, [one.reason for one in night.not_begun]) == ((), ["interrupted"])


def test_a_spark_that_cannot_be_used_fails_the_table_for_good(fleet: Fleet) -> None:
    with pytest.raises(AirflowFailException, match=r"events: OPTIMIZE: no such cluster"):
        run(fleet.try_of(FakeDetachedRunner(JobCannotStart("no such cluster"))), fleet.context())
    (outcome,) = fleet.account().outcomes
    assert outcome.run.kind == "refused"


def test_one_table_runs_on_spark_in_its_slot(fleet: Fleet) -> None:
    class One(DeltaMaintenanceOperator):
        def spark_runner(self, storage_options: Mapping[str, Any]) -> Any:
            return runner

    runner = FakeDetachedRunner(by_this_process, looks=3)
    with DAG("nightly", schedule=None):
        task = One(
            task_id="maintain",
            table=str(fleet.table),
            policy=fleet.policy,
            state=f"{fleet.state}-of-one",
            spark_above="1KiB",
            spark_conn_id="cluster",
        )
    report = DeltaMaintenanceOperator.execute.__wrapped__(task, fleet.context())  # type: ignore[attr-defined]
    assert [one["run"]["status"] for one in report["done"]] == ["committed"]
    assert (len(runner.submissions), fleet.num_files()) == (1, 2)


def test_properties_of_a_spark_that_nobody_names_are_refused() -> None:
    with pytest.raises(ValueError, match="Name a connection, or leave spark_conf out"):
        DeltaFleetMaintainOperator(
            task_id="maintain",
            night="n",
            units=[0],
            state="/state",
            spark_conf={"spark.executor.memory": "4g"},
        )
