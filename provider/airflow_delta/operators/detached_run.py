"""A task's part in a job that outlives the task's process: submit it once, wait or defer, and collect its report.

The job is found again by the task's state (:mod:`airflow_delta.submitted_job`), so a try whose worker was killed has its job followed by the
next try.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn

from airflow.sdk import TaskInstanceState
from airflow.sdk.exceptions import AirflowRuntimeError, AirflowTaskTimeout
from msgspec import Struct

from airflow_delta.runners.detached import DetachedRunner, JobHandle
from airflow_delta.runners.job_runner import JobError, JobLost, ProgressListener, TaskLog
from airflow_delta.submitted_job import SubmittedJob, forget_job, recall_job, remember_job
from delta_log.printable import printable
from delta_maintenance.contract import JobReport, JobSpec

if TYPE_CHECKING:
    from datetime import timedelta

    from airflow.sdk import Context


class _Interrupted(BaseException):
    """Passes through code that handles every Exception."""


class DetachedRun(Struct):
    """The run of one try.

    :param defer: function that releases the worker slot until the job is over, at most for so many seconds; ``None``: wait in the
        slot.
    :param limit: the task's ``execution_timeout``.
    """

    context: Context
    runner: DetachedRunner
    spec: JobSpec
    run_key: str
    log: TaskLog
    on_progress: ProgressListener
    defer: Callable[[JobHandle, float | None], NoReturn] | None
    limit: timedelta | None
    _handle: JobHandle | None = None
    _is_active: bool = False

    def begin(self) -> JobReport:
        """The first slot of a try: go on with the job of an earlier try, or submit one.

        :raises JobCannotStart, JobLost: there is no report.
        """
        with self._interruptible():
            found = recall_job(self.context, self.spec.run_id, self._runner_name)
            if found is not None:
                job = found.with_deadline(self._deadline_ms())
                self.runner.prepare()
                step = self._step_of_earlier_try(job)
                if step is not None:
                    try:
                        return self._end(self._follow(job, step))
                    except JobLost as error:
                        self.log.info("%s Submitting it again.", printable(str(error)))
            return self._submit()

    def go_on(self) -> JobReport:
        """A slot after a deferral: the trigger has found that the job is over.

        :raises JobLost: it has left no report.
        """
        job = recall_job(self.context, self.spec.run_id, self._runner_name)
        if job is None or job.handle is None:
            raise JobLost("The state of this task no longer names its job; another try submits it again.")
        with self._interruptible(), self._forgetting_a_lost_job():
            self._handle = job.handle
            step = self.runner.collect(job.handle, self.spec, self.run_key)
            return self._end(self._follow(job, step))

    def _submit(self) -> JobReport:
        job = SubmittedJob.new(
            self.spec.run_id, self._runner_name, self.context["ti"].try_number, self._deadline_ms()
        )
        remember_job(self.context, job)
        with self._forgetting_a_lost_job():
            if self.defer is None:
                self.runner.prepare()
            with self._ending_what_is_submitted(job):
                step = self.runner.submit(self.spec, self.run_key, job.submission_id)
                self._keep(step)
            if not isinstance(step, JobReport):
                self.log.info("Submitted to %s: %s.", self.runner.place, _shown(step))
            return self._end(self._follow(job, step))

    def _step_of_earlier_try(self, job: SubmittedJob) -> JobHandle | JobReport | None:
        """Where the job of an earlier try stands; ``None``: it has left nothing to go on with."""
        handle = self._handle = job.handle or self.runner.find(self.spec, job.submission_id)
        if handle is None:
            return None
        state = self.runner.poll(handle)
        if not state.is_over:
            self.log.info(
                "Try %s has submitted this job, and it is still at work (%s): %s. Going on with it.",
                job.try_number,
                printable(state.text),
                _shown(handle),
            )
            return handle
        try:
            step = self.runner.collect(handle, self.spec, self.run_key)
        except JobLost as error:
            self.log.info(
                "The job of try %s is over: %s Submitting it again.", job.try_number, printable(str(error))
            )
            return None
        if isinstance(step, JobReport) and step.error is not None:
            return None
        self.log.info(
            "The job that try %s has submitted is over; this try collects its result.", job.try_number
        )
        return step

    def _follow(self, job: SubmittedJob, step: JobHandle | JobReport) -> JobReport:
        while not isinstance(step, JobReport):
            self._keep(step)
            job = job.with_handle(step)
            remember_job(self.context, job)
            if self.defer is not None:
                self._cancel_unless_wanted()
                self.defer(step, _seconds_until(job.deadline_ms))
            for state in self.runner.wait(step):
                if state.progress is not None:
                    self.on_progress(state.progress)
            step = self.runner.collect(step, self.spec, self.run_key)
        return step

    def _cancel_unless_wanted(self) -> None:
        """Cancel the job if the task was ended while it submitted the job: by hand, or by the time limit of its DAG run.

        Airflow tells a task so with its process's next heartbeat. If the task asks to be deferred before that, Airflow refuses, no trigger
        begins, and the process ends without another word to this code: the job would go on with nobody to follow it.

        After this check, and until the triggerer has begun the trigger, Airflow tells nobody that the task was ended. The job then goes
        on to its end.
        """
        instance: Any = self.context["ti"]
        try:
            states = instance.get_task_states(
                dag_id=instance.dag_id,
                map_index=instance.map_index,
                task_ids=[instance.task_id],
                run_ids=[instance.run_id],
            )
        except AirflowRuntimeError as error:
            self.log.debug("The state of this task is not known: %s", printable(str(error)))
            return
        # The answer about a task that is not mapped also tells of the instances that it had while it was.
        name = instance.task_id if instance.map_index < 0 else f"{instance.task_id}_{instance.map_index}"
        state = states.get(instance.run_id, {}).get(name, TaskInstanceState.RUNNING)
        if state != TaskInstanceState.RUNNING:
            self.log.info("This task was ended meanwhile (%s). Cancelling its job.", printable(str(state)))
            self.interrupt()

    def _keep(self, step: JobHandle | JobReport) -> None:
        """Keep the handle for :meth:`interrupt`, before anything else is done with it: a signal may come at any moment."""
        if not isinstance(step, JobReport):
            self._handle = step

    def _end(self, report: JobReport) -> JobReport:
        if report.error is not None:
            forget_job(self.context)
        return report

    def interrupt(self) -> None:
        """Cancel the job, because the task is killed, and give up what this thread does with it: waiting, or collecting, which may commit.

        A signal handler calls it.
        """
        try:
            if self._handle is not None:
                self.runner.cancel(self._handle)
        except JobError as error:
            self.log.info("The job could not be cancelled, and may go on: %s", printable(str(error)))
        if self._is_active:
            self._is_active = False
            raise _Interrupted

    @contextmanager
    def _interruptible(self) -> Iterator[None]:
        self._is_active = True
        try:
            yield
        except _Interrupted:
            raise JobLost("The task was killed, and its job was cancelled.") from None
        finally:
            self._is_active = False

    @contextmanager
    def _ending_what_is_submitted(self, job: SubmittedJob) -> Iterator[None]:
        """End the job if the task is killed, or its time is up, before the handle is known."""
        self._handle = None
        try:
            yield
        except (_Interrupted, AirflowTaskTimeout) as error:
            handle = self.runner.find(self.spec, job.submission_id)
            if handle is not None:
                self.runner.cancel(handle)
            if isinstance(error, _Interrupted):
                raise JobLost("The task was killed while it submitted its job.") from None
            raise

    @contextmanager
    def _forgetting_a_lost_job(self) -> Iterator[None]:
        try:
            yield
        except JobError:
            forget_job(self.context)
            raise

    @property
    def _runner_name(self) -> str:
        name, kwargs = self.runner.serialize()
        return f"{name} {kwargs.get('launcher', '')}".strip()

    def _deadline_ms(self) -> int | None:
        return None if self.limit is None else round(1000 * (time.time() + self.limit.total_seconds()))


def _seconds_until(deadline_ms: int | None) -> float | None:
    return None if deadline_ms is None else max(1.0, deadline_ms / 1000 - time.time())


def _shown(handle: JobHandle) -> str:
    driver = handle.get("driver", handle)
    shown = {name: value for name, value in driver.items() if not isinstance(value, dict)}
    return printable(", ".join(f"{name} {value}" for name, value in sorted(shown.items())))
