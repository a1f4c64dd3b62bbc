"""Output of a job, line by line: progress and report for the runner, the rest for people.

Lines arrive through Spark's launcher, merged with the log of the JVM, so a prefix may stand behind other text on its line. Lines
also quote what the table holds: paths, partition values, messages of other writers.

1. A line is for a program only behind a prefix with the nonce of this run, which the job was given and the table cannot know
   (:func:`~delta_maintenance.contract.line_prefix`). The first one on a line counts; all else on the line is text.
2. A job reports once. A report that cannot be read, or a second one, raises
   :class:`~delta_maintenance.contract.ContractError`. Nothing else that a job writes raises an error.
3. Progress that cannot be read is text.
4. Text is made printable (:mod:`delta_log.printable`) and, where it is very long, cut with a note. No more than
   :data:`LONGEST_LINE` characters of a line are ever held.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import IO, Any

from delta_log.printable import printable
from delta_log.redaction import redact
from delta_maintenance.checked_json import INTEGER, TEXT, Kind, checked_members, first_object
from delta_maintenance.contract import PROGRESS_PREFIX, REPORT_PREFIX, ContractError, JobReport, line_prefix

#: Many times the longest report, and more than an XCom should hold.
LONGEST_LINE = 16 << 20
_LONGEST_TEXT = 16 << 10
_PIECE = 1 << 16
_REMEMBERED_LINES = 20
_COUNT = Kind("an integer from 0 on", lambda value: INTEGER.fits(value) and value >= 0)
_PROGRESS_MEMBERS: Mapping[str, Kind] = {
    "done_bins": _COUNT,
    "total_bins": _COUNT,
    "done_bytes": _COUNT,
    "total_bytes": _COUNT,
    "message": TEXT,
}


@dataclass(frozen=True, slots=True)
class JobProgress:
    """How far this try of a job is."""

    done_bins: int = 0
    total_bins: int = 0
    done_bytes: int = 0
    total_bytes: int = 0
    message: str = ""

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any]) -> JobProgress:
        """
        :raises ContractError: a member is not what it has to be.
        """
        return cls(**checked_members("progress", raw, _PROGRESS_MEMBERS, ()))

    def __str__(self) -> str:
        message = printable(self.message)
        if not self.total_bins:
            return message
        width = len(str(self.total_bins))
        share = self.done_bytes / self.total_bytes if self.total_bytes else self.done_bins / self.total_bins
        counts = f"[{self.done_bins:>{width}}/{self.total_bins} bins, {share:4.0%}]"
        return f"{counts} {message}".rstrip()


class JobOutput:
    """Sorts the lines of one job.

    :param nonce: of the run; the job was given it in its environment.
    :ivar report: the job's report, once its line has passed.
    :ivar last_lines: the end of what was meant for people.
    """

    def __init__(self, nonce: str) -> None:
        self.report: JobReport | None = None
        self._nonce = nonce
        self._progress = line_prefix(PROGRESS_PREFIX, nonce)
        self._report = line_prefix(REPORT_PREFIX, nonce)
        self._lines: deque[str] = deque(maxlen=_REMEMBERED_LINES)

    @property
    def last_lines(self) -> tuple[str, ...]:
        return tuple(self._lines)

    def sort(self, lines: Iterable[str]) -> Iterator[JobProgress | str]:
        """Yield progress as values and all else as printable text; the report is kept in :attr:`report`.

        :raises ContractError: the report cannot be read, or is of a contract that this release does not read, or is not
            the first one.
        """
        for line in lines:
            before, prefix, rest = self._parted(line)
            if prefix == self._progress:
                try:
                    raw, end = first_object("progress", rest)
                    told = JobProgress.from_dict(raw)
                except ContractError:
                    yield from self._text(line)
                    continue
                yield from self._text(before)
                yield told
                yield from self._text(rest[end:])
            elif prefix:
                yield from self._text(before)
                raw, end = first_object("job report", rest)
                self._keep(JobReport.from_dict(raw))
                yield from self._text(rest[end:])
            else:
                yield from self._text(line)

    def _parted(self, line: str) -> tuple[str, str, str]:
        """A line, split into what is before, at and behind the first prefix of this run; all is before if there is no prefix."""
        found = [(at, prefix) for prefix in (self._progress, self._report) if (at := line.find(prefix)) >= 0]
        if not found:
            return line, "", ""
        at, prefix = min(found)
        return line[:at], prefix, line[at + len(prefix) :]

    def _keep(self, report: JobReport) -> None:
        if self.report is not None:
            raise ContractError(
                "The job printed two reports, and it cannot be told which of them is right. What it did is in the table's "
                "history; report this as a bug."
            )
        self.report = report

    def _text(self, text: str) -> Iterator[str]:
        text = text.rstrip("\r\n ").expandtabs(4).replace(self._nonce, "…")
        if not text:
            return
        left_out = len(text) - _LONGEST_TEXT
        note = f" [… and {left_out:,} characters more]" if left_out > 0 else ""
        # Redacted before the cut, which may remove the end by which a credential is recognised.
        shown = printable(redact(text)[:_LONGEST_TEXT]) + note
        self._lines.append(shown)
        yield shown


def bounded_lines(stream: IO[str]) -> Iterator[str]:
    """The lines of a stream; a line longer than :data:`LONGEST_LINE` is cut, with a note."""
    while line := stream.readline(LONGEST_LINE):
        if len(line) == LONGEST_LINE and not line.endswith("\n"):
            left_out = 0
            while piece := stream.readline(_PIECE):
                left_out += len(piece.rstrip("\n"))
                if piece.endswith("\n"):
                    break
            if left_out:
                line += f" [… and {left_out:,} characters more]"
        yield line
