"""The contract of an engine, and the errors that it hands back.

An engine runs ``rewrite_bin`` on every task of a plan and returns the manifests. Each engine runs the same function, in
this process, in worker processes or on Spark executors.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

from delta_log.errors import DeltaLogError
from delta_log.printable import printable
from delta_maintenance.progress import ProgressReporter, format_bytes
from delta_maintenance.rewrite.manifest_file import RunKey
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
    ) -> Iterator[BinResult]: ...


def is_too_late(task: RewriteTask) -> bool:
    """Tell whether a task's time is over, by this machine's clock: a time budget allows for seconds of difference."""
    return task.begin_before_ms is not None and time.time() * 1000 >= task.begin_before_ms


#: Makes an engine, given its name.
MakeEngine = Callable[[str], Engine]


class TaskFailed(DeltaLogError):
    """A bin could not be rewritten. Carries the error of a worker process or a Spark task to the driver.

    :ivar bin_id: the bin's id.
    """

    def __init__(self, bin_id: str, description: dict[str, Any]) -> None:
        super().__init__(str(description.get("message", "failed without saying why")))
        self.bin_id = bin_id
        self.retryable = bool(description.get("retryable", True))
        self._description = {"kind": "failed", **description, "bin_id": bin_id}

    def describe(self) -> dict[str, Any]:
        """Return the original error as :func:`describe_error` gave it."""
        return dict(self._description)


#: What an engine yields for a task.
BinResult = BinManifest | TaskFailed


class WorkerDied(DeltaLogError):
    """A worker process ended without an answer.

    :ivar exit_code: of the process; a negative number is the signal that killed it.
    """

    retryable = True

    def __init__(self, bin_id: str, exit_code: int, bytes_in: int, num_files: int) -> None:
        what = f"signal {-exit_code}" if exit_code < 0 else f"exit code {exit_code}"
        hint = " Perhaps the machine ran out of memory: lower the parallelism." if exit_code == -9 else ""
        super().__init__(
            f"The worker of bin {bin_id} ({num_files} files, {format_bytes(bytes_in)}) ended with "
            f"{what}.{hint} Nothing was committed; the next try takes over the bins that were finished."
        )
        self.bin_id, self.exit_code = bin_id, exit_code


def describe_error(error: BaseException) -> dict[str, Any]:
    """Describe an error as JSON values: ``type``, ``message``, ``retryable``, ``kind`` and its facts."""
    if isinstance(error, TaskFailed):
        return error.describe()
    if isinstance(error, DeltaLogError):
        facts = {name: _plain(value) for name, value in error.facts().items()}
        return {
            **facts,
            "type": type(error).__name__,
            "message": str(error),
            "retryable": error.retryable,
            "kind": error.kind,
        }
    # Repeating a job is safe, and it may help against an error of an unknown type.
    message = printable(str(error)) or "no message"
    return {"type": type(error).__name__, "message": message, "retryable": True, "kind": "failed"}


def _plain(value: Any) -> Any:
    try:
        json.dumps(value)
    except (TypeError, ValueError):
        return str(value)
    return value
