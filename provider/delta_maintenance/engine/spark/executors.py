"""Waiting for Spark's executors, which a cluster that is full, or that lost its workers, does not give.

Spark itself waits for ever. A job waits for :data:`TIMEOUT_PROPERTY`, says so meanwhile, and then fails with an error that may be
retried. So a full cluster costs a task its slot for some minutes, not for the night. Executors count only while Spark has work:
a cluster may take them back in between.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Generic, TypeVar

from delta_maintenance.engine.spark.session import own_processors
from delta_maintenance.errors import SparkMisconfigured, SparkUnavailable
from delta_maintenance.progress import ProgressReporter

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")

#: A Spark property: how long a job waits while it has no executor, as Spark writes times (``90s``, ``15min``, ``2h``).
TIMEOUT_PROPERTY = "spark.deltaMaintenance.executorTimeout"
_DEFAULT_TIMEOUT = "15min"
_POLL_SECONDS = 1.0
_SECONDS_UNTIL_TOLD = 30.0
_SECONDS_BETWEEN_LINES = 300.0
_UNITS = {"": 1, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}


class Background(Generic[T]):
    """Runs one call in a thread, so that the caller can look after it."""

    def __init__(self, call: Callable[[], T]) -> None:
        self._call = call
        self._result: list[T] = []
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._result.append(self._call())
        except Exception as error:  # noqa: BLE001 - raised again where it is awaited
            self._error = error

    def wait(self, seconds: float) -> bool:
        """Wait at most so long; tell whether the call is over."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def result(self) -> T:
        """Return what the call returned, or raise what it raised."""
        if self._error is not None:
            raise self._error
        return self._result[0]


class ExecutorWait:
    """Watches that the cluster gives executors.

    :param count: how many there are; ``None``: not known.
    :param timeout_seconds: how long there may be none.
    """

    def __init__(
        self,
        count: Callable[[], int | None],
        timeout_seconds: float,
        progress: ProgressReporter,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._count, self._timeout, self._progress, self._clock = count, timeout_seconds, progress, clock
        self._since: float | None = None
        self._next_line = 0.0

    def look(self) -> None:
        """Look once, while Spark has work.

        :raises SparkUnavailable: there was no executor for too long.
        """
        if self._count() != 0:
            if self._since is not None and self._next_line > self._since + _SECONDS_UNTIL_TOLD:
                self._progress.message("the cluster has given executors")
            self._since = None
            return
        now = self._clock()
        if self._since is None:
            self._since, self._next_line = now, now + _SECONDS_UNTIL_TOLD
        waited = now - self._since
        if waited >= self._timeout:
            raise SparkUnavailable(
                f"The cluster has given no executor for {_text(self._timeout)}: it is full, or its workers are gone. Nothing more "
                f"is committed by this try; finished bins are taken over by the next. Free the cluster, or wait longer "
                f"({TIMEOUT_PROPERTY})."
            )
        if now >= self._next_line:
            self._next_line = now + _SECONDS_BETWEEN_LINES
            left = _text(self._timeout - waited)
            self._progress.message(
                f"no executor for {_text(waited)}: the cluster is full, or has no workers; waiting {left} more"
            )


def executor_wait(spark: SparkSession, progress: ProgressReporter) -> ExecutorWait:
    """
    :raises SparkMisconfigured: :data:`TIMEOUT_PROPERTY` is no time.
    """
    timeout = timeout_seconds(spark.conf.get(TIMEOUT_PROPERTY, _DEFAULT_TIMEOUT) or _DEFAULT_TIMEOUT)
    return ExecutorWait(lambda: num_executors(spark), timeout, progress)


def with_executors(spark: SparkSession, progress: ProgressReporter, work: Callable[[], T]) -> T:
    """Do work that needs executors, and end the session if it gets none.

    :raises SparkUnavailable: there was no executor for too long.
    """
    waiting, running = executor_wait(spark, progress), Background(work)
    try:
        while not running.wait(_POLL_SECONDS):
            waiting.look()
    except BaseException:
        spark.stop()  # ends the work; the session was for this job
        raise
    return running.result()


def num_executors(spark: SparkSession) -> int | None:
    """Return how many executors the application has; ``None``: the driver works itself, or the server does not tell."""
    if own_processors(spark) is not None:
        return None
    try:
        infos = spark.sparkContext._jsc.sc().statusTracker().getExecutorInfos()
        return max(0, len(infos) - 1)  # the driver is one of them
    except Exception:  # noqa: BLE001 - Spark Connect has no context; a context that has ended is told by the work
        return None


def timeout_seconds(text: str) -> float:
    """Parse a time as Spark writes it; a number alone is in seconds.

    :raises SparkMisconfigured: it is none.
    """
    found = re.fullmatch(r"\s*(\d{1,9})\s*([a-z]*)\s*", text)
    if found is None or found[2] not in _UNITS:
        raise SparkMisconfigured(
            f"The Spark property {TIMEOUT_PROPERTY} is {text!r}, which is no time. Write it like 90s, 15min or 2h."
        )
    return float(found[1]) * _UNITS[found[2]]


def _text(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
