"""What a job writes, line by line: progress and report for a program, the rest for people.

Lines arrive through Spark's launcher, merged with what the JVM logs; hence a prefix may stand behind something else
on its line, and a line that has the prefix but not a whole JSON object behind it is shown to people like any other.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from delta_log.redaction import redact
from delta_maintenance.contract import PROGRESS_PREFIX, REPORT_PREFIX, JobReport

_REMEMBERED_LINES = 20


@dataclass(frozen=True, slots=True)
class JobProgress:
    """How far a job is; all counts are of this try."""

    done_bins: int = 0
    total_bins: int = 0
    done_bytes: int = 0
    total_bytes: int = 0
    message: str = ""

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any]) -> JobProgress:
        counts = {
            name: int(raw.get(name) or 0) for name in ("done_bins", "total_bins", "done_bytes", "total_bytes")
        }
        return cls(**counts, message=str(raw.get("message") or ""))

    def __str__(self) -> str:
        if not self.total_bins:
            return self.message
        width = len(str(self.total_bins))
        share = self.done_bytes / self.total_bytes if self.total_bytes else self.done_bins / self.total_bins
        counts = f"[{self.done_bins:>{width}}/{self.total_bins} bins, {share:4.0%}]"
        return f"{counts} {self.message}".rstrip()


class JobOutput:
    """Sorts the lines of one job.

    :ivar report: the job's report, once its line has passed.
    :ivar last_lines: the end of what was meant for people.
    """

    def __init__(self) -> None:
        self.report: JobReport | None = None
        self._lines: deque[str] = deque(maxlen=_REMEMBERED_LINES)

    @property
    def last_lines(self) -> tuple[str, ...]:
        return tuple(self._lines)

    def sort(self, lines: Iterable[str]) -> Iterator[JobProgress | str]:
        """Progress as values and everything else without credentials; the report is kept and not passed on.

        :raises ContractError: the job speaks a version of the contract that this release does not read.
        """
        for raw in lines:
            line = raw.rstrip()
            if (found := _object_behind(PROGRESS_PREFIX, line)) is not None:
                yield JobProgress.from_dict(found)
            elif (found := _object_behind(REPORT_PREFIX, line)) is not None:
                self.report = JobReport.from_json(json.dumps(found))
            elif line:
                # Spark and client libraries write what they like.
                shown = redact(line)
                self._lines.append(shown)
                yield shown


def _object_behind(prefix: str, line: str) -> dict[str, Any] | None:
    start = line.find(prefix)
    if start < 0:
        return None
    try:
        found, _ = json.JSONDecoder().raw_decode(line[start + len(prefix) :])
    except ValueError:
        return None
    return found if isinstance(found, dict) else None
