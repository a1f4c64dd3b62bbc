"""Output of a job, line by line: progress and report for the runner, the job's log for people, and what libraries write.

Lines arrive through Spark's launcher, merged with the log of the JVM, so a prefix may stand behind other text on its line. Lines
also quote what the table holds: paths, partition values, messages of other writers.

1. A line is for a program only behind a prefix with the nonce of this run, which the job was given and the table cannot know
   (:func:`~delta_maintenance.job_interface.line_prefix`). The first one on a line counts; all else on the line is text.
2. A job reports once. A report that cannot be read, or a second one, raises
   :class:`~delta_maintenance.job_interface.ContractError`. Nothing else that a job writes raises an error.
3. The job's own log has a level (:data:`~delta_maintenance.job_interface.LOG_PREFIX`). All other text is chatter: Spark's log, Java
   traces, warnings of Python. It goes to the task's log at debug level, unless somebody asked for it.
4. Progress and log lines that cannot be read are chatter.
5. Text is made printable (:mod:`delta_log.printable`) and, where it is very long, cut with a note. No more than
   :data:`LONGEST_LINE` characters of a line are ever held.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import IO, Any, Protocol

from msgspec import Struct

from delta_log.printable import printable
from delta_log.redaction import redact
from delta_maintenance.contract import JobReport
from delta_maintenance.contract_json import converted, first_object
from delta_maintenance.job_interface import (
    LOG_PREFIX,
    PROGRESS_PREFIX,
    REPORT_PREFIX,
    ContractError,
    LogLevel,
    line_prefix,
)
from delta_maintenance.progress import JobProgress as JobProgress  # noqa: PLC0414 - part of a job's output

#: Many times the longest report, and more than an XCom should hold.
LONGEST_LINE = 16 << 20
_LONGEST_TEXT = 16 << 10
_PIECE = 1 << 16
_REMEMBERED_LINES = 20
#: Lines that say nothing about why a job was lost: frames of a Java trace, what Spark always says when it starts, its INFO.
_SAYS_NOTHING = re.compile(
    r"\s+at [^(]+\([^)]*\)|\s+\.\.\. \d+ more|WARNING: Using incubator modules.*|Using Spark's default log4j profile.*"
    r"|Setting Spark log level to .*|\S+ \S+ (?:INFO|DEBUG|TRACE) .*|.* WARN NativeCodeLoader: .*"
)


class TaskLog(Protocol):
    """Any logger, Airflow's own or the standard library's."""

    def debug(self, message: str, /, *arguments: Any) -> Any: ...

    def info(self, message: str, /, *arguments: Any) -> Any: ...

    def warning(self, message: str, /, *arguments: Any) -> Any: ...

    def error(self, message: str, /, *arguments: Any) -> Any: ...


class LogLine(Struct, frozen=True):
    """A line for the task's log.

    :param level: one of :data:`~delta_maintenance.job_interface.LOG_LEVELS`.
    """

    level: LogLevel
    message: str

    def __str__(self) -> str:
        return self.message

    def tell(self, log: TaskLog) -> None:
        getattr(log, self.level)("%s", self.message)


class JobOutput:
    """Sorts the lines of one job.

    :param nonce: nonce of the run, which the job gets in its environment.
    :param chatter_level: log level of what libraries write.
    :ivar report: the job's report, once its line has passed.
    :ivar has_begun: whether the job itself has written something.
    :ivar last_lines: the end of what it and its libraries wrote, without lines that say nothing about its end.
    """

    def __init__(self, nonce: str, chatter_level: LogLevel = "debug") -> None:
        self.report: JobReport | None = None
        self.has_begun = False
        self._nonce, self._chatter_level = nonce, chatter_level
        self._log = line_prefix(LOG_PREFIX, nonce)
        self._progress = line_prefix(PROGRESS_PREFIX, nonce)
        self._report = line_prefix(REPORT_PREFIX, nonce)
        self._lines: deque[str] = deque(maxlen=_REMEMBERED_LINES)

    @property
    def last_lines(self) -> tuple[str, ...]:
        return tuple(self._lines)

    def sort(self, lines: Iterable[str]) -> Iterator[JobProgress | LogLine]:
        """Yield progress as values and all else as printable lines; the report is kept in :attr:`report`.

        :raises ContractError: the report cannot be read, or is of a contract that this release does not read, or is not
            the first one.
        """
        for line in lines:
            before, prefix, rest = self._parted(line)
            self.has_begun |= bool(prefix)
            told: JobProgress | LogLine
            if prefix in (self._progress, self._log):
                try:
                    raw, end = first_object("line of a job", rest)
                    told = JobProgress.from_dict(raw) if prefix == self._progress else self._log_line(raw)
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
        prefixes = (self._progress, self._log, self._report)
        found = [(at, prefix) for prefix in prefixes if (at := line.find(prefix)) >= 0]
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

    def _log_line(self, raw: Mapping[str, Any]) -> LogLine:
        """
        :raises ContractError: a member is not of its type.
        """
        line = converted("log line", raw, LogLine)
        line = LogLine(line.level, self._shown(line.message))
        if line.level != "debug":
            self._lines.append(line.message)
        return line

    def _text(self, text: str) -> Iterator[LogLine]:
        text = text.rstrip("\r\n ").expandtabs(4)
        if not text:
            return
        shown = self._shown(text)
        if _SAYS_NOTHING.fullmatch(shown) is None:
            self._lines.append(shown)
        yield LogLine(self._chatter_level, shown)

    def _shown(self, text: str) -> str:
        text = text.replace(self._nonce, "…")
        left_out = len(text) - _LONGEST_TEXT
        note = f" [… and {left_out:,} characters more]" if left_out > 0 else ""
        # Redacted before the cut, which may remove the end by which a credential is recognised.
        return printable(redact(text)[:_LONGEST_TEXT]) + note


def bounded_lines(stream: IO[str], longest: int = LONGEST_LINE) -> Iterator[str]:
    """The lines of a stream.

    :param longest: number of characters above which a line is cut, with a note.
    """
    while line := stream.readline(longest):
        if len(line) == longest and not line.endswith("\n"):
            left_out = 0
            while piece := stream.readline(_PIECE):
                left_out += len(piece.rstrip("\n"))
                if piece.endswith("\n"):
                    break
            if left_out:
                line += f" [… and {left_out:,} characters more]"
        yield line
