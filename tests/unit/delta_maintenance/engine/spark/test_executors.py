from __future__ import annotations

import pytest

from delta_maintenance.engine.spark.executors import Background, ExecutorWait, timeout_seconds
from delta_maintenance.errors import SparkMisconfigured, SparkUnavailable
from delta_maintenance.progress import SilentProgress


class Told(SilentProgress):
    def __init__(self) -> None:
        self.messages: list[str] = []

    def message(self, text: str) -> None:
        self.messages.append(text)


def wait_of(counts: list[int | None], told: Told, seconds_between: float = 10.0) -> ExecutorWait:
    """A wait that finds these counts, one at each look."""
    remaining, now = iter(counts), [0.0]

    def clock() -> float:
        now[0] += seconds_between
        return now[0]

    return ExecutorWait(lambda: next(remaining), 120.0, told, clock)


def test_a_cluster_without_executors_is_told_and_given_up() -> None:
    told = Told()
    wait = wait_of([0] * 20, told)
    for _ in range(12):
        wait.look()
    with pytest.raises(SparkUnavailable, match=r"no executor for 2 min.*executorTimeout"):
        wait.look()
    assert told.messages == [
        "no executor for 30 s: the cluster is full, or has no workers; waiting 90 s more"
    ]


def test_a_wait_begins_anew_when_there_was_an_executor() -> None:
    told = Told()
    wait = wait_of([*[0] * 12, 1, *[0] * 12, None, *[0] * 12], told)
    for _ in range(38):
        wait.look()
    assert told.messages.count("the cluster has given executors") == 2


def test_a_short_wait_is_not_told() -> None:
    told = Told()
    wait = wait_of([0, 0, 1, 0, 2], told)
    for _ in range(5):
        wait.look()
    assert told.messages == []


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("15min", 900), ("15m", 900), ("2h", 7200), ("1d", 86400), (" 7 ", 7)]
)
def test_times_are_those_of_spark(text: str, seconds: int) -> None:
    assert timeout_seconds(text) == seconds


@pytest.mark.parametrize("text", ["", "soon", "-1s", "1.5h", "9" * 20])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(SparkMisconfigured, match="is no time"):
        timeout_seconds(text)


def test_a_call_in_the_background_returns_or_raises_what_it_did() -> None:
    done = Background(lambda: 3)
    assert done.wait(10)
    assert done.result() == 3
    failed = Background(lambda: 1 // 0)
    assert failed.wait(10)
    with pytest.raises(ZeroDivisionError):
        failed.result()
