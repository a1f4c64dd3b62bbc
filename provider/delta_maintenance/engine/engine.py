"""The contract of an engine, and the errors that it hands back.

An engine runs ``rewrite_bin`` on every task of a plan and returns the manifests. Each engine runs the same function, in
this process or on Spark executors.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Sequence
from typing import Protocol

from delta_maintenance.errors import TaskFailed
from delta_maintenance.progress import ProgressReporter
from delta_maintenance.rewrite.manifest.manifest_file import RunKey
from delta_maintenance.rewrite.task import BinManifest, RewriteTask


class Engine(Protocol):
    """Runs tasks.

    1. The iterator yields each task's manifest once, when the task finishes, in any order.
    2. Where a repetition cannot help (a source is broken), the iterator yields a :class:`TaskFailed` for the task, and the
       other tasks go on. Any other failure ends the run with its error, and running tasks are abandoned.
    3. A task whose time is over (``begin_before_ms``) does not start and yields nothing.
    4. Nothing outlives the iterator: closing it, an exception or the end of this process ends all work.
    5. The run's key reaches the workers as credentials do: never in a task, argv, a configuration or a log.
    """

    name: str

    def run(
        self, tasks: Sequence[RewriteTask], progress: ProgressReporter, run_key: RunKey
    ) -> Generator[BinResult, None, None]: ...


def is_too_late(task: RewriteTask) -> bool:
    """Tell whether a task's time is over, by this machine's clock: a time budget allows for seconds of difference."""
    return task.begin_before_ms is not None and time.time() * 1000 >= task.begin_before_ms


#: What an engine yields for a task.
BinResult = BinManifest | TaskFailed
