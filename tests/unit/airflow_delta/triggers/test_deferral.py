"""No trigger wakes its task before the deferral has settled."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from airflow.triggers.base import BaseTrigger
from tests.support.tables.written_log import add, write_log

from airflow_delta.runners.detached import DetachedRunner
from airflow_delta.testing import FakeDetachedRunner
from airflow_delta.triggers import DeltaTableHealthTrigger, DeltaTableVersionTrigger, deferral
from airflow_delta.triggers.job import DeltaJobTrigger


def ended_job(_: str) -> BaseTrigger:
    runner: DetachedRunner = FakeDetachedRunner()
    return DeltaJobTrigger(*runner.serialize(), {"id": "s"})


TRIGGERS: dict[str, Callable[[str], BaseTrigger]] = {
    "a job that is over": ended_job,
    "a version that is there": lambda table: DeltaTableVersionTrigger(table, baseline=-1),
    "a limit that is passed": lambda table: DeltaTableHealthTrigger(table, small_files=1),
}


@pytest.mark.parametrize("name", TRIGGERS)
def test_an_event_waits_for_the_end_of_the_process_that_deferred(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_log(tmp_path, [add(str(number), 100) for number in range(3)])
    trigger, monotonic = TRIGGERS[name](str(tmp_path)), time.monotonic
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        assert len(slept) == 1, "the first look makes an event"

    async def first_event() -> None:
        async for _ in trigger.run():
            return

    monkeypatch.setattr(asyncio, "sleep", sleep)
    began = monotonic()
    asyncio.run(first_event())
    # What the look took is taken off.
    assert deferral.settle_seconds() - (monotonic() - began) <= slept[-1] <= deferral.settle_seconds()


def test_a_deferral_that_has_lasted_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    made, now = deferral.Deferral(), time.monotonic() + deferral.settle_seconds()
    monkeypatch.setattr(asyncio, "sleep", sleep)
    monkeypatch.setattr(time, "monotonic", lambda: now)
    asyncio.run(made.settled())
    assert slept == [0.0]


@pytest.mark.parametrize("seconds", [-3.0, 0.0, 5.0])
def test_a_deferral_lasts_until_its_event_may_come(seconds: float) -> None:
    assert deferral.deferral_timeout(seconds).total_seconds() > deferral.settle_seconds()
    assert deferral.deferral_timeout(seconds + 3600).total_seconds() == seconds + 3600
