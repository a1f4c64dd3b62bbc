"""Follows a job that runs on a cluster, on behalf of a deferred task, which holds no worker slot meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar

from airflow.triggers.base import BaseTrigger, TriggerEvent

from airflow_delta.runners.task_log import ProgressLog
from airflow_delta.triggers.deferral import Deferral
from delta_log.printable import printable_logger

if TYPE_CHECKING:
    from airflow_delta.runners.detached import DetachedRunner, JobHandle

log = printable_logger(__name__)

#: Looks at jobs at the same time, of all triggers of a triggerer.
_THREADS = ThreadPoolExecutor(32, "delta-jobs")
#: The longer a job runs, the less often it is looked at.
_MOST_SECONDS_BETWEEN = 30.0
_SHARE_OF_TIME = 0.05
_Result = TypeVar("_Result")


class DeltaJobTrigger(BaseTrigger):
    """Waits until a job is over. The task then collects the report; the event only says that it can.

    A restart of the triggerer leaves the job alone. When a user marks the task failed or succeeded, or clears it, the job is cancelled.

    :param runner: full name of the callable that makes the :class:`~airflow_delta.runners.detached.DetachedRunner` from
        ``runner_kwargs``.
    :param handle: handle of the job.
    """

    def __init__(self, runner: str, runner_kwargs: Mapping[str, Any], handle: JobHandle) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.runner, self.runner_kwargs, self.handle = runner, dict(runner_kwargs), dict(handle)

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return (
            f"{type(self).__module__}.{type(self).__qualname__}",
            {"runner": self.runner, "runner_kwargs": self.runner_kwargs, "handle": self.handle},
        )

    async def run(self) -> AsyncIterator[TriggerEvent]:
        from airflow_delta.runners.job_runner import JobCannotStart

        seconds, failures = 0.0, 0
        deferral = Deferral()
        progress_log = ProgressLog(log)
        while True:
            try:
                state = await _in_thread(lambda: self._runner.poll(self.handle))
            except JobCannotStart as error:
                # A connection that is gone: the task says so.
                await deferral.settled()
                yield TriggerEvent({"text": str(error)})  # type: ignore[no-untyped-call]
                return
            except Exception as error:  # noqa: BLE001 - an outage of what is looked at is no reason to give up the job
                failures += 1
                if failures == 1:
                    log.warning(
                        "Looking at the job failed (%s: %s). Trying again.", type(error).__name__, error
                    )
            else:
                failures = 0
                if state.progress is not None:
                    progress_log.tell(state.progress)
                if state.is_over:
                    await deferral.settled()
                    yield TriggerEvent({"text": state.text})  # type: ignore[no-untyped-call]
                    return
            pause = min(self._runner.poll_seconds + _SHARE_OF_TIME * seconds, _MOST_SECONDS_BETWEEN)
            await asyncio.sleep(pause)
            seconds += pause

    async def on_kill(self) -> None:
        log.info("Cancelling the job.")
        await _in_thread(lambda: self._runner.cancel(self.handle))

    async def cleanup(self) -> None:
        if "_runner" in vars(self):
            await _in_thread(self._runner.close)

    @cached_property
    def _runner(self) -> DetachedRunner:
        module, _, name = self.runner.rpartition(".")
        made: DetachedRunner = getattr(import_module(module), name)(**self.runner_kwargs)
        return made


async def _in_thread(work: Callable[[], _Result]) -> _Result:
    # With the caller's context: Airflow's triggerer tells by it whose log a line belongs to.
    return await asyncio.get_running_loop().run_in_executor(_THREADS, copy_context().run, work)
