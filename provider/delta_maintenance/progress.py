"""Reports the progress of a job: to programs as lines of the contract, to people as readable lines.

All lines but the first and the last are rate limited, so ten thousand bins do not make ten thousand lines. Any thread may
call a reporter.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from typing import Protocol, TextIO

from delta_log.printable import printable
from delta_log.redaction import redact
from delta_maintenance.contract import PROGRESS_PREFIX, line_prefix
from delta_maintenance.units import format_bytes


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


class SilentProgress:
    """A :class:`ProgressReporter` that reports nothing."""

    def start(self, total_bins: int, total_bytes: int) -> None: ...

    def source_read(self, bin_id: str, size_bytes: int) -> None: ...

    def bin_done(self, bin_id: str, size_bytes: int) -> None: ...

    def message(self, text: str) -> None: ...


class _Counting:
    """Counts bins and bytes, and decides when a line is due."""

    def __init__(self, stream: TextIO, interval_seconds: float, clock: Callable[[], float]) -> None:
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
            self._show("rewriting", due=True)

    def source_read(self, bin_id: str, size_bytes: int) -> None:
        with self._lock:
            if bin_id not in self._finished:
                self._read[bin_id] = self._read.get(bin_id, 0) + size_bytes
                self._show("rewriting")

    def bin_done(self, bin_id: str, size_bytes: int) -> None:
        with self._lock:
            if bin_id in self._finished:
                return
            self._finished.add(bin_id)
            self._read.pop(bin_id, None)
            self.done_bins += 1
            self._finished_bytes += size_bytes
            self._show("rewriting", due=self.done_bins == self.total_bins)

    def message(self, text: str) -> None:
        with self._lock:
            self._show(text, due=True)

    def _show(self, message: str, due: bool = False) -> None:
        now = self._clock()
        if due or now >= self._next_line:
            self._next_line = now + self._interval
            print(self._line(redact(message)), file=self._stream, flush=True)

    def _line(self, message: str) -> str:
        raise NotImplementedError


class ProgressLines(_Counting):
    """A :class:`ProgressReporter` that prints the lines of the contract.

    :param nonce: of the run, where a program reads the lines.
    """

    def __init__(
        self,
        stream: TextIO,
        interval_seconds: float = 1.0,
        clock: Callable[[], float] = time.monotonic,
        nonce: str | None = None,
    ) -> None:
        super().__init__(stream, interval_seconds, clock)
        self._prefix = line_prefix(PROGRESS_PREFIX, nonce)

    def _line(self, message: str) -> str:
        facts = {
            "done_bins": self.done_bins,
            "total_bins": self.total_bins,
            "done_bytes": self.done_bytes,
            "total_bytes": self.total_bytes,
            "message": message,
        }
        return self._prefix + json.dumps(facts)


class HumanProgress(_Counting):
    """A :class:`ProgressReporter` for a terminal or a log."""

    def __init__(
        self, stream: TextIO, interval_seconds: float = 2.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__(stream, interval_seconds, clock)
        self._first: tuple[float, float] | None = None

    def _line(self, message: str) -> str:
        message = printable(message)
        if not self.total_bins:
            return message
        share = self.done_bytes / self.total_bytes if self.total_bytes else 1.0
        line = (
            f"{message}: {self.done_bins:,} of {self.total_bins:,} bins, "
            f"{format_bytes(self.done_bytes)} of {format_bytes(self.total_bytes)} ({share:.0%})"
        )
        now = self._clock()
        if self._first is None and share > 0:
            self._first = (now, share)
        elif self._first is not None and share < 1:
            # From the first sign of work on: starting an engine says nothing about its speed.
            elapsed, done = now - self._first[0], share - self._first[1]
            if done > 0 and elapsed >= self._interval:
                line += f", about {elapsed / done * (1 - share):.0f} s to go"
        return line
