"""A job that outlives its task: submitted once, waited for with or without a slot, found again by the next try."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

import pytest
from airflow.sdk.exceptions import (
    AirflowException,
    AirflowFailException,
    AirflowRuntimeError,
    AirflowTaskTimeout,
    ErrorType,
    TaskDeferred,
)
from airflow.sdk.execution_time.comms import ErrorResponse

from airflow_delta.operators import DeltaOptimizeOperator, DeltaVacuumOperator
from airflow_delta.runners.detached import DetachedRunner
from airflow_delta.runners.job_output import JobProgress
from airflow_delta.runners.job_runner import JobCannotStart, JobLost
from airflow_delta.testing import FakeDetachedRunner, FakeJobRunner, FakeStateStore, committed
from airflow_delta.triggers.job import DeltaJobTrigger
from delta_maintenance.contract import ErrorReport, JobReport, JobSpec

pytestmark = pytest.mark.usefixtures("settled_deferrals")

MakeContext = Callable[..., dict[str, Any]]


class Operator(DeltaOptimizeOperator):
    def __init__(self, *, runner: FakeDetachedRunner | FakeJobRunner, **kwargs: Any) -> None:
        super().__init__(**{"task_id": "optimize", "table": "s3://lake/events", "engine": "spark", **kwargs})
        self.fake = runner

    def spark_runner(self, storage_options: Mapping[str, Any]) -> Any:
        return self.fake


def run(operator: Operator, context: dict[str, Any]) -> dict[str, Any]:
    # Airflow refuses an execute() that its task runner did not call.
    return DeltaOptimizeOperator.execute.__wrapped__(operator, context)  # type: ignore[attr-defined, no-any-return]


def complete(operator: Operator, context: Any, event: dict[str, Any]) -> dict[str, Any]:
    return operator.execute_complete(context, event)


def failed(spec: JobSpec) -> JobReport:
    return JobReport(
        spec.operation, spec.table, "failed", run_id=spec.run_id, error=ErrorReport("E", "broke")
    )


def stored_job(context: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = context["task_state_store"].get("delta_maintenance_job")
    return found


def event_of(trigger: DeltaJobTrigger) -> Any:
    async def first() -> Any:
        async for event in trigger.run():
            return event.payload
        raise AssertionError("no event")

    return asyncio.run(first())


def rebuilt(trigger: Any) -> DeltaJobTrigger:
    path, kwargs = trigger.serialize()
    assert path == "airflow_delta.triggers.job.DeltaJobTrigger"
    return DeltaJobTrigger(**kwargs)


def test_a_task_that_may_not_be_deferred_waits_in_its_slot(make_context: MakeContext) -> None:
    runner = FakeDetachedRunner(committed, looks=3, progress=JobProgress(1, 2, 10, 20, "rewriting"))
    context = make_context(try_number=1)
    assert run(Operator(runner=runner), context)["status"] == "committed"
    (submission,) = runner.submissions
    assert stored_job(context)["handle"] == {"id": submission}
    assert runner.cancelled == []


def test_a_deferred_task_collects_the_report_when_the_trigger_says_that_the_job_is_over(
    make_context: MakeContext,
) -> None:
    runner = FakeDetachedRunner(committed, looks=2)
    context = make_context(try_number=1)
    operator = Operator(runner=runner, deferrable=True, execution_timeout=timedelta(minutes=10))
    with pytest.raises(TaskDeferred) as deferred:
        run(operator, context)
    assert 590 < deferred.value.timeout.total_seconds() < 601
    assert deferred.value.method_name == "execute_complete"
    event = event_of(rebuilt(deferred.value.trigger))
    assert event == {"text": "FINISHED"}
    assert complete(operator, context, event)["status"] == "committed"
    assert len(runner.submissions) == 1


def test_a_job_that_needs_another_wait_is_deferred_again(make_context: MakeContext) -> None:
    class InTwoRounds(FakeDetachedRunner):
        rounds = 0

        def collect(self, handle: Any, spec: JobSpec, run_key: str) -> Any:
            self.rounds += 1
            return {**handle, "round": 2} if self.rounds == 1 else super().collect(handle, spec, run_key)

    runner = InTwoRounds(committed)
    context = make_context(try_number=1)
    operator = Operator(runner=runner, deferrable=True)
    with pytest.raises(TaskDeferred):
        run(operator, context)
    with pytest.raises(TaskDeferred) as again:
        complete(operator, context, {"text": ""})
    assert again.value.trigger.handle["round"] == 2
    assert again.value.timeout is None
    assert complete(operator, context, {"text": ""})["status"] == "committed"


@pytest.mark.parametrize("looks", [3, 0], ids=["at work", "over"])
def test_a_retry_goes_on_with_the_job_of_the_try_whose_worker_died(
    make_context: MakeContext, looks: int
) -> None:
    runner = FakeDetachedRunner(committed, looks=looks)
    store = FakeStateStore()
    with pytest.raises(TaskDeferred):  # and this worker dies
        run(Operator(runner=runner, deferrable=True), make_context(store, try_number=1))
    assert run(Operator(runner=runner), make_context(store, try_number=2))["status"] == "committed"
    assert len(runner.submissions) == 1


def test_a_retry_finds_the_job_of_a_try_that_died_before_it_knew_the_handle(
    make_context: MakeContext,
) -> None:
    class DiesAfterSubmission(FakeDetachedRunner):
        def submit(self, spec: JobSpec, run_key: str, submission_id: str) -> Any:
            super().submit(spec, run_key, submission_id)
            raise KeyboardInterrupt

    runner = DiesAfterSubmission(committed)
    store = FakeStateStore()
    with pytest.raises(KeyboardInterrupt):
        run(Operator(runner=runner), make_context(store, try_number=1))
    assert run(Operator(runner=runner), make_context(store, try_number=2))["status"] == "committed"
    assert len(runner.submissions) == 1


@pytest.mark.parametrize(
    "first", [failed, None, JobLost("the master is gone")], ids=["failed", "no report", "outage"]
)
def test_a_retry_submits_again_what_failed_or_was_lost(make_context: MakeContext, first: Any) -> None:
    runner = FakeDetachedRunner(first, committed)
    store = FakeStateStore()
    with pytest.raises(AirflowException):
        run(Operator(runner=runner), make_context(store, try_number=1))
    assert stored_job({"task_state_store": store}) == {}
    assert run(Operator(runner=runner), make_context(store, try_number=2))["status"] == "committed"
    assert len(set(runner.submissions)) == 2


def test_a_job_that_ended_without_a_report_while_no_try_looked_is_submitted_again_at_once(
    make_context: MakeContext,
) -> None:
    runner = FakeDetachedRunner(None, committed, looks=0)
    store = FakeStateStore()
    with pytest.raises(TaskDeferred):
        run(Operator(runner=runner, deferrable=True), make_context(store, try_number=1))
    assert run(Operator(runner=runner), make_context(store, try_number=2))["status"] == "committed"
    assert len(runner.submissions) == 2


def test_a_request_that_cannot_be_submitted_fails_for_good(make_context: MakeContext) -> None:
    runner = FakeDetachedRunner(JobCannotStart("no such cluster"))
    with pytest.raises(AirflowFailException, match="no such cluster"):
        run(Operator(runner=runner), make_context(try_number=1))


def test_the_execution_timeout_cancels_the_job_of_a_deferred_task(make_context: MakeContext) -> None:
    runner = FakeDetachedRunner(committed, looks=100)
    context: Any = make_context(try_number=1)
    operator = Operator(runner=runner, deferrable=True, execution_timeout=timedelta(minutes=5))
    with pytest.raises(TaskDeferred):
        run(operator, context)
    with pytest.raises(AirflowTaskTimeout, match="execution_timeout"):
        operator.resume_execution("__fail__", {"error": "Trigger timeout"}, context)
    assert runner.cancelled == runner.submissions
    assert stored_job(context) == {}


def test_killing_a_task_while_it_submits_ends_what_has_come_of_it(make_context: MakeContext) -> None:
    class Killed(FakeDetachedRunner):
        def submit(self, spec: JobSpec, run_key: str, submission_id: str) -> Any:
            super().submit(spec, run_key, submission_id)
            operator.on_kill()  # as a signal handler does in the middle of it

    runner, context = Killed(committed), make_context(try_number=1)
    operator = Operator(runner=runner)
    with pytest.raises(AirflowException, match="killed while it submitted"):
        run(operator, context)
    assert runner.cancelled == runner.submissions
    assert stored_job(context) == {}


@pytest.mark.parametrize("state", ["skipped", "failed", "restarting", None])
def test_a_task_that_was_ended_while_it_submitted_is_not_deferred_and_ends_its_job(
    make_context: MakeContext, state: str | None
) -> None:
    runner, context = FakeDetachedRunner(committed), make_context(try_number=1)
    asked = []

    def states(**criteria: Any) -> Any:
        asked.append(criteria)
        return {"manual__1": {"optimize_3": state}}

    context["ti"].map_index, context["ti"].get_task_states = 3, states
    with pytest.raises(AirflowException, match=r"cancelled\.$"):
        run(Operator(runner=runner, deferrable=True), context)
    assert runner.cancelled == runner.submissions != []
    assert asked == [
        {"dag_id": "nightly", "map_index": 3, "task_ids": ["optimize"], "run_ids": ["manual__1"]}
    ]


@pytest.mark.parametrize("answer", [{"optimize": "running"}, {}])
def test_what_became_of_other_instances_of_a_task_ends_no_job(
    make_context: MakeContext, answer: dict[str, str]
) -> None:
    runner, context = FakeDetachedRunner(committed), make_context(try_number=1)
    # Of the time when the task was mapped.
    context["ti"].get_task_states = lambda **_: {"manual__1": {"optimize_0": "success", **answer}}
    with pytest.raises(TaskDeferred):
        run(Operator(runner=runner, deferrable=True), context)
    assert runner.cancelled == []


def test_a_task_that_was_ended_while_it_found_its_earlier_job_does_not_submit_again(
    make_context: MakeContext,
) -> None:
    runner, store = FakeDetachedRunner(committed, committed, looks=5), FakeStateStore()
    with pytest.raises(TaskDeferred):
        run(Operator(runner=runner, deferrable=True), make_context(store, try_number=1))
    context = make_context(store, try_number=2)
    context["ti"].get_task_states = lambda **_: {"manual__1": {"optimize": "failed"}}
    with pytest.raises(AirflowException, match=r"cancelled\.$"):
        run(Operator(runner=runner, deferrable=True), context)
    assert runner.cancelled == runner.submissions
    assert len(runner.submissions) == 1


def test_a_task_whose_state_cannot_be_asked_is_deferred(make_context: MakeContext) -> None:
    def no_answer(**criteria: Any) -> Any:
        raise AirflowRuntimeError(ErrorResponse(error=ErrorType.API_SERVER_ERROR))

    runner, context = FakeDetachedRunner(committed), make_context(try_number=1)
    context["ti"].get_task_states = no_answer
    with pytest.raises(TaskDeferred):
        run(Operator(runner=runner, deferrable=True), context)
    assert runner.cancelled == []


class Prepared(FakeDetachedRunner):
    """Notes the order of its calls."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.calls: list[str] = []

    def prepare(self) -> None:
        self.calls.append("prepare")

    def submit(self, spec: JobSpec, run_key: str, submission_id: str) -> Any:
        self.calls.append("submit")
        return super().submit(spec, run_key, submission_id)

    def poll(self, handle: Any) -> Any:
        self.calls.append("poll")
        return super().poll(handle)


def test_a_task_that_will_poll_prepares_before_it_has_a_handle_that_a_signal_may_cancel(
    make_context: MakeContext,
) -> None:
    runner = Prepared(committed, looks=0)
    run(Operator(runner=runner), make_context(try_number=1))
    assert runner.calls == ["prepare", "submit", "poll"]
    runner, store = Prepared(committed, looks=0), FakeStateStore()
    with pytest.raises(TaskDeferred):
        run(Operator(runner=runner, deferrable=True), make_context(store, try_number=1))
    assert runner.calls == ["submit"], "who only submits needs no client"
    run(Operator(runner=runner), make_context(store, try_number=2))
    assert runner.calls == ["submit", "prepare", "poll"]


def test_killing_a_task_while_it_stores_the_handle_cancels_the_job(make_context: MakeContext) -> None:
    class KillsAtHandle(FakeStateStore):
        def set(self, key: str, value: Any, **kwargs: Any) -> None:
            if isinstance(value, dict) and value.get("handle") is not None:
                operator.on_kill()
            super().set(key, value, **kwargs)

    runner = FakeDetachedRunner(committed)
    operator = Operator(runner=runner)
    with pytest.raises(AirflowException, match=r"cancelled\.$"):
        run(operator, make_context(KillsAtHandle(), try_number=1))
    assert runner.cancelled == runner.submissions


def test_killing_a_waiting_task_cancels_its_job(make_context: MakeContext) -> None:
    class Killed(FakeDetachedRunner):
        def poll(self, handle: Any) -> Any:
            operator.on_kill()
            return super().poll(handle)

    runner = Killed(committed)
    operator = Operator(runner=runner)
    with pytest.raises(AirflowException):
        run(operator, make_context(try_number=1))
    assert set(runner.cancelled) == set(runner.submissions)


@pytest.mark.parametrize("call", ["poll", "collect"])
def test_killing_a_task_that_goes_on_with_the_job_of_an_earlier_try_neither_commits_nor_submits_again(
    make_context: MakeContext, call: str
) -> None:
    runner = FakeDetachedRunner(committed, committed, looks=2)
    store = FakeStateStore()
    with pytest.raises(TaskDeferred):
        run(Operator(runner=runner, deferrable=True), make_context(store, try_number=1))
    operator, original = Operator(runner=runner), getattr(runner, call)
    finished = []

    def killed(*arguments: Any) -> Any:
        operator.on_kill()
        finished.append(call)
        return original(*arguments)

    setattr(runner, call, killed)
    with pytest.raises(AirflowException, match=r"cancelled\.$"):
        run(operator, make_context(store, try_number=2))
    assert finished == []
    assert runner.cancelled == runner.submissions
    assert len(runner.submissions) == 1


def test_the_timeout_of_a_task_that_waits_cancels_its_job_and_stays_a_timeout(
    make_context: MakeContext,
) -> None:
    class TooSlow(FakeDetachedRunner):
        def poll(self, handle: Any) -> Any:
            raise AirflowTaskTimeout

    runner = TooSlow(committed)
    operator = Operator(runner=runner)
    with pytest.raises(AirflowTaskTimeout):
        run(operator, make_context(try_number=1))
    operator.on_kill()  # as Airflow does after a timeout
    assert runner.cancelled == runner.submissions


def test_a_user_who_kills_a_deferred_task_cancels_its_job_and_a_restart_of_the_triggerer_does_not(
    make_context: MakeContext,
) -> None:
    runner = FakeDetachedRunner(committed, looks=3)
    with pytest.raises(TaskDeferred) as deferred:
        run(Operator(runner=runner, deferrable=True), make_context(try_number=1))
    trigger = rebuilt(deferred.value.trigger)
    asyncio.run(trigger.cleanup())
    assert runner.cancelled == []
    asyncio.run(trigger.on_kill())
    assert runner.cancelled == runner.submissions


def test_an_outage_while_the_trigger_looks_does_not_give_up_the_job() -> None:
    class Flaky(FakeDetachedRunner):
        calls = 0

        def poll(self, handle: Any) -> Any:
            self.calls += 1
            if self.calls < 4:
                raise OSError("no route to host")
            return super().poll(handle)

    runner = Flaky(committed, looks=0)
    runner.submit(JobSpec("optimize", "/t", "r"), "k", "s")
    assert event_of(DeltaJobTrigger(*runner.serialize(), {"id": "s"})) == {"text": "FINISHED"}


@pytest.mark.parametrize(
    "arguments",
    [{"engine": "local"}, {"engine": "spark", "deploy_mode": "client"}],
    ids=["local", "client mode"],
)
def test_deferring_a_job_that_runs_beside_its_task_is_refused_when_the_dag_is_parsed(
    arguments: dict[str, Any],
) -> None:
    for operator in (DeltaOptimizeOperator, DeltaVacuumOperator):
        with pytest.raises(ValueError, match="deferrable: .* has to hold its slot"):
            operator(task_id="t", table="/t", deferrable=True, **arguments)


def test_airflows_default_for_deferring_does_not_refuse_a_local_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__OPERATORS__DEFAULT_DEFERRABLE", "True")
    operator = DeltaOptimizeOperator(task_id="t", table="/t", engine="local")
    assert operator.deferrable
    assert not operator.must_defer


def test_deferring_with_a_connection_in_client_mode_is_refused_before_anything_is_submitted(
    make_context: MakeContext,
) -> None:
    runner = FakeJobRunner(committed)
    with pytest.raises(AirflowFailException, match="deploy-mode 'cluster'"):
        run(Operator(runner=runner, deferrable=True), make_context(try_number=1))
    assert runner.specs == []


def test_a_fake_runner_is_found_again_by_its_name() -> None:
    runner = FakeDetachedRunner()
    _, kwargs = runner.serialize()
    found: DetachedRunner = FakeDetachedRunner.named(**kwargs)
    assert found is runner
