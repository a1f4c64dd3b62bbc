"""Writes to the log of a task what its job does and has done.

The command line writes the same lines: :class:`~delta_maintenance.progress.ProgressThrottle` makes the lines of progress, and
:mod:`delta_maintenance.text.report` the lines of the report.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from delta_log.printable import printable
from delta_maintenance.contract import JobReport
from delta_maintenance.progress import ProgressThrottle
from delta_maintenance.text.report import render_report

if TYPE_CHECKING:
    from airflow_delta.runners.job_output import JobProgress
    from airflow_delta.runners.job_runner import TaskLog


class ProgressLog:
    """Writes the progress of one job to a log: each stage at once, and counts every ten seconds, later every thirty.

    A reader who looks at a job's status now and then tells the same progress several times, and it is written once.

    :param clock: clock in seconds that never goes back.
    """

    def __init__(self, log: TaskLog, clock: Callable[[], float] = time.monotonic) -> None:
        self._log, self._clock = log, clock
        self._pace = ProgressThrottle()

    def tell(self, progress: JobProgress) -> None:
        self._pace, lines = self._pace.told(progress, self._clock())
        for line in lines:
            self._log.info("%s", line)


def tell_report(log: TaskLog, report: JobReport) -> None:
    """Say what a job did that has not failed."""
    for line in report_lines(report):
        log.info("%s", line)


def report_lines(report: JobReport) -> Iterator[str]:
    """Yield the lines that a task's log has of a report."""
    try:
        text = render_report(report.to_dict())
    except (LookupError, TypeError, ValueError, ArithmeticError, AttributeError) as error:
        # Another release may have written the report. The work is done, and a line of a log must not fail it.
        what = printable(f"{type(error).__name__}: {error}")
        version = "" if report.version is None else f", version {report.version}"
        text = f"The job ended: {report.status}{version}. Its report cannot be told in words ({what}); it is this task's XCom."
    yield from text.split("\n")
    if report.status == "planned":
        yield "Planned only; nothing was written. The plan is this task's XCom."
    metrics = [f"{printable(name)} {value}" for name, value in sorted(report.metrics.items()) if value]
    if metrics:
        yield f"metrics: {', '.join(metrics)}"
