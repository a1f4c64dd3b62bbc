"""Reports the progress of a job: to programs as lines of the contract, to people as readable lines.

A job counts bins and bytes (:class:`ProgressReporter`). Its lines of the contract hold a :class:`JobProgress` each, which the
program that started the job reads. :class:`ProgressThrottle` makes the lines for people, on a terminal and in the log of an Airflow task.

All lines but the first and the last are rate limited, so ten thousand bins do not make ten thousand lines. Any thread may
call a reporter.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Annotated, Any, Protocol

from msgspec import Meta, Struct, to_builtins
from msgspec.structs import replace

from delta_log.printable import printable
from delta_log.redaction import redact
from delta_maintenance.contract import SparkApplication
from delta_maintenance.contract_json import converted
from delta_maintenance.job_interface import PROGRESS_PREFIX, line_prefix
from delta_maintenance.units import counted, format_bytes, format_duration

#: The message of a line that counts finished work. Every other message is a new stage.
REWRITING = "rewriting"

#: How many of the last stages a progress that is kept repeats, so that a reader who looks now and then misses none.
KEPT_STAGES = 20

Count = Annotated[int, Meta(ge=0)]
_LINE_MEMBERS = ("done_bins", "total_bins", "done_bytes", "total_bytes", "message")


class JobProgress(Struct, frozen=True):
    """How far this try of a job is.

    :param message: :data:`REWRITING`, or what the job has just begun or found.
    :param stages: the last messages that were no counts, where the progress is kept and looked at now and then; ``num_stages``
        is how many there have been. Empty: every progress reaches its reader.
    :param is_step: the message says how far a stage is, and there are more like it.
    :param spark: the Spark application of the job, as in its report; in the line that first tells of it, and in every progress that
        is kept.
    """

    done_bins: Count = 0
    total_bins: Count = 0
    done_bytes: Count = 0
    total_bytes: Count = 0
    message: str = ""
    stages: tuple[str, ...] = ()
    num_stages: Count = 0
    is_step: bool = False
    spark: SparkApplication | None = None

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any]) -> JobProgress:
        """
        :raises ContractError: a member is not of its type.
        """
        return converted("progress", raw, cls)

    def to_dict(self) -> dict[str, Any]:
        """The JSON object of a line; members that only some lines need are left out of the others."""
        return {name: value for name, value in to_builtins(self).items() if name in _LINE_MEMBERS or value}

    def after(self, earlier: JobProgress) -> JobProgress:
        """This progress with the stages of an earlier one, to be kept in its place."""
        if self.spark is None and earlier.spark is not None:
            return replace(self, spark=earlier.spark).after(earlier)
        if self.is_count or self.is_step:
            return replace(self, stages=earlier.stages, num_stages=earlier.num_stages)
        stages = (*earlier.stages, self.message)[-KEPT_STAGES:]
        return replace(self, stages=stages, num_stages=earlier.num_stages + 1)

    @property
    def is_count(self) -> bool:
        """Whether this only counts finished work."""
        return self.total_bins > 0 and self.message in ("", REWRITING) and not self.is_step

    @property
    def share(self) -> float:
        """The finished part of the work, from 0 to 1."""
        done, total = self.done_bytes, self.total_bytes
        if not total:
            done, total = self.done_bins, self.total_bins
        return min(done / total, 1.0) if total else 0.0

    @property
    def is_complete(self) -> bool:
        return self.done_bins >= self.total_bins

    def __str__(self) -> str:
        _, lines = ProgressThrottle().told(self, 0.0)
        return "; ".join(lines)


class ProgressThrottle(Struct, frozen=True):
    """Decides which progress becomes a line for people, and writes the line.

    A new stage is shown at once. Counts are shown at the beginning, at the end, and in between once per interval, with the rate
    and the time left; steps of a stage once per interval. After :attr:`long_after_seconds` of counting, the interval is :attr:`long_interval_seconds`.

    A pace is a value: :meth:`told` returns the next one. It begins with the first sign of work, since starting an engine says
    nothing about its speed.

    :param interval_seconds: time between two lines that count; 0: each is shown.
    :param num_stages: how many stages of a kept progress have been shown.
    :param counting_since: time of the first count; ``None``: there was none.
    :param working_since: time and progress of the first sign of work.
    :param shown_at: time of the last line that counted, and ``shown`` its progress.
    :param step_shown_at: time of the last step, or of the stage that it belongs to.
    """

    interval_seconds: float = 10.0
    long_interval_seconds: float = 30.0
    long_after_seconds: float = 300.0
    num_stages: int = 0
    counting_since: float | None = None
    working_since: tuple[float, JobProgress] | None = None
    shown_at: float | None = None
    shown: JobProgress | None = None
    step_shown_at: float | None = None

    def told(self, progress: JobProgress, now: float) -> tuple[ProgressThrottle, tuple[str, ...]]:
        """Take note of progress; return the next pace, and the lines that are due.

        :param now: seconds by any clock that never goes back.
        """
        pace, stages = self._new_stages(progress)
        lines = tuple(printable(stage) for stage in stages if stage)
        if lines:
            pace = replace(pace, step_shown_at=now)
        if progress.is_step:
            return pace._told_step(progress, lines, now)
        if not progress.is_count:
            return pace, lines
        pace = pace._noted(progress, now)
        if not pace._is_due(progress, now):
            return pace, lines
        return replace(pace, shown_at=now, shown=progress), (*lines, pace._line(progress, now))

    def _told_step(
        self, progress: JobProgress, lines: tuple[str, ...], now: float
    ) -> tuple[ProgressThrottle, tuple[str, ...]]:
        if self.step_shown_at is not None and now - self.step_shown_at < self.interval_seconds:
            return self, lines
        return replace(self, step_shown_at=now), (*lines, printable(progress.message))

    def _new_stages(self, progress: JobProgress) -> tuple[ProgressThrottle, tuple[str, ...]]:
        if not progress.num_stages:
            return self, () if progress.is_count or progress.is_step else (progress.message,)
        # Fewer than before: the job was started again.
        told = self.num_stages if self.num_stages <= progress.num_stages else 0
        new = progress.num_stages - told
        return replace(self, num_stages=progress.num_stages), progress.stages[-new:] if new else ()

    def _noted(self, progress: JobProgress, now: float) -> ProgressThrottle:
        pace = self
        first = self.working_since
        if self.counting_since is None or (first is not None and progress.share < first[1].share):
            # The second engine of a job counts from 0 again.
            pace = replace(pace, counting_since=now, working_since=None, shown_at=None, shown=None)
        if pace.working_since is None and progress.share > 0:
            pace = replace(pace, working_since=(now, progress))
        return pace

    def _is_due(self, progress: JobProgress, now: float) -> bool:
        if self.shown_at is None or self.shown is None or self.counting_since is None:
            return True
        if progress.is_complete:
            return not self.shown.is_complete
        is_long = now - self.counting_since > self.long_after_seconds
        interval = max(self.interval_seconds, self.long_interval_seconds if is_long else 0.0)
        return not self.interval_seconds or now - self.shown_at >= interval

    def _line(self, progress: JobProgress, now: float) -> str:
        line = f"{REWRITING}: {progress.done_bins:,} of {counted(progress.total_bins, 'bin')}"
        if progress.total_bytes:
            line += f", {format_bytes(progress.done_bytes)} of {format_bytes(progress.total_bytes)}"
        line += f" ({progress.share:.0%})"
        if self.working_since is None:
            return line
        began, first = self.working_since
        elapsed, done = now - began, progress.share - first.share
        # Less than a second, or nothing since the first sign of work, tells nothing.
        if elapsed < 1 or done <= 0:
            return line
        if progress.total_bytes:
            line += f", {format_bytes((progress.done_bytes - first.done_bytes) / elapsed)}/s"
        if not progress.is_complete:
            line += f", about {format_duration(max(1, round(elapsed / done * (1 - progress.share))))} to go"
        return line


class LineStream(Protocol):
    """The part of a text stream that lines are printed to."""

    def write(self, text: str, /) -> int: ...

    def flush(self) -> None: ...


class ProgressReporter(Protocol):
    """Receives the progress of an operation and its engine."""

    def start(self, total_bins: int, total_bytes: int) -> None:
        """Work begins, on a plan of this size."""

    def source_read(self, bin_id: str, size_bytes: int) -> None:
        """A source file of a bin was read."""

    def bin_done(self, bin_id: str, size_bytes: int) -> None:
        """A bin is finished; ``size_bytes`` is all that it read, reported by :meth:`source_read` or not."""

    def message(self, text: str) -> None:
        """A new stage; shown at once."""

    def step(self, text: str) -> None:
        """How far the stage is; shown now and then."""

    def application(self, text: str, spark: SparkApplication) -> None:
        """The Spark application of the job is ready; a new stage."""


class SilentProgress:
    """A :class:`ProgressReporter` that reports nothing."""

    def start(self, total_bins: int, total_bytes: int) -> None: ...

    def source_read(self, bin_id: str, size_bytes: int) -> None: ...

    def bin_done(self, bin_id: str, size_bytes: int) -> None: ...

    def message(self, text: str) -> None: ...

    def step(self, text: str) -> None: ...

    def application(self, text: str, spark: SparkApplication) -> None: ...


class _Counting:
    """Counts bins and bytes, and decides when a line is due."""

    def __init__(self, stream: LineStream, interval_seconds: float, clock: Callable[[], float]) -> None:
        self._stream, self._interval, self._clock = stream, interval_seconds, clock
        self._lock = threading.Lock()
        self._next_line = 0.0
        self.total_bins = self.total_bytes = self.done_bins = 0
        self._finished_bytes = 0
        self._read: dict[str, int] = {}
        self._finished: set[str] = set()

    @property
    def done_bytes(self) -> int:
        return min(self._finished_bytes + sum(self._read.values()), self.total_bytes)

    def start(self, total_bins: int, total_bytes: int) -> None:
        with self._lock:
            self.total_bins, self.total_bytes = total_bins, total_bytes
            self._show(REWRITING, due=True)

    def source_read(self, bin_id: str, size_bytes: int) -> None:
        with self._lock:
            if bin_id not in self._finished:
                self._read[bin_id] = self._read.get(bin_id, 0) + size_bytes
                self._show(REWRITING)

    def bin_done(self, bin_id: str, size_bytes: int) -> None:
        with self._lock:
            if bin_id in self._finished:
                return
            self._finished.add(bin_id)
            self._read.pop(bin_id, None)
            self.done_bins += 1
            self._finished_bytes += size_bytes
            self._show(REWRITING, due=self.done_bins == self.total_bins)

    def message(self, text: str) -> None:
        with self._lock:
            self._show(text, due=True)

    def step(self, text: str) -> None:
        with self._lock:
            self._show(text, is_step=True)

    def application(self, text: str, spark: SparkApplication) -> None:
        with self._lock:
            self._show(text, due=True, spark=spark)

    def _show(
        self,
        message: str,
        due: bool = False,
        is_step: bool = False,
        spark: SparkApplication | None = None,
    ) -> None:
        now = self._clock()
        if due or now >= self._next_line:
            self._next_line = now + self._interval
            progress = JobProgress(
                self.done_bins,
                self.total_bins,
                self.done_bytes,
                self.total_bytes,
                redact(message),
                is_step=is_step,
                spark=spark,
            )
            # Work goes on where nobody reads its progress any more, or a disk has no room for it.
            with suppress(OSError):
                for line in self._lines(progress, now):
                    print(line, file=self._stream, flush=True)

    def _lines(self, progress: JobProgress, now: float) -> tuple[str, ...]:
        raise NotImplementedError


class ProgressLines(_Counting):
    """A :class:`ProgressReporter` that prints the lines of the contract.

    :param nonce: nonce of the run, where a program reads the lines.
    """

    def __init__(
        self,
        stream: LineStream,
        interval_seconds: float = 1.0,
        clock: Callable[[], float] = time.monotonic,
        nonce: str | None = None,
    ) -> None:
        super().__init__(stream, interval_seconds, clock)
        self._prefix = line_prefix(PROGRESS_PREFIX, nonce)

    def _lines(self, progress: JobProgress, now: float) -> tuple[str, ...]:
        return (self._prefix + json.dumps(progress.to_dict()),)


class HumanProgress(_Counting):
    """A :class:`ProgressReporter` for a terminal or a log."""

    def __init__(
        self, stream: LineStream, interval_seconds: float = 2.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__(stream, interval_seconds, clock)
        self._pace = ProgressThrottle(interval_seconds=0.0)

    def _lines(self, progress: JobProgress, now: float) -> tuple[str, ...]:
        self._pace, lines = self._pace.told(progress, now)
        return lines
