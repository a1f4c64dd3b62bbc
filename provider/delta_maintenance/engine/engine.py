"""What an engine is, and which one a piece of work gets.

An engine runs ``rewrite_bin`` on every task of a plan, somewhere, and hands the manifests back. All engines
run the very same function, so the choice is one of cost alone: a Spark session takes seconds to start and is,
on one machine, never faster than worker processes; it pays where it brings more machines.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from delta_maintenance.contract import JobSpec
from delta_maintenance.errors import TaskFailed
from delta_maintenance.progress import ProgressReporter
from delta_maintenance.rewrite.manifest_file import RunKey
from delta_maintenance.rewrite.task import BinManifest, RewriteTask
from delta_maintenance.units import format_bytes

#: What worker processes of one machine finish in a minute or two; above that ``auto`` prefers a cluster.
LOCAL_BYTES = 16 << 30
#: What one process lists and compares within a minute, or a few on a slow store, and in less than 1 GiB.
LOCAL_FILES = 2_000_000


class Engine(Protocol):
    """Runs tasks.

    1. Each task's manifest comes once, as it finishes, in any order.
    2. A task that fails so that repeating it cannot help (a source is broken) comes as its :class:`TaskFailed` instead,
       and the others go on. The first one that fails otherwise ends the run with its error; running ones are given up.
    3. A task whose time is over (``begin_before_ms``) is not begun, and nothing comes of it.
    4. Nothing outlives the iterator: closing it, an exception or the end of this process ends all work.
    5. The run's key reaches the workers as credentials do: never in a task, argv, a configuration or a log.
    """

    name: str

    def run(
        self, tasks: Sequence[RewriteTask], progress: ProgressReporter, run_key: RunKey
    ) -> Iterator[BinResult]: ...


def is_too_late(task: RewriteTask) -> bool:
    """By this machine's clock: a budget of time is no matter of seconds."""
    return task.begin_before_ms is not None and time.time() * 1000 >= task.begin_before_ms


@dataclass(frozen=True, slots=True)
class EngineChoice:
    """``engine`` is ``None`` where the work is too large for this process and belongs on a cluster."""

    engine: str | None
    reason: str


#: Of a spec and the bytes that are planned.
ChooseEngine = Callable[[JobSpec, int], EngineChoice]
#: Of a spec and what counts the files that the log knows.
ChooseLister = Callable[[JobSpec, Callable[[], int]], EngineChoice]
#: By name.
MakeEngine = Callable[[str], Engine]


def choose_engine(
    spec: JobSpec, planned_bytes: int, *, spark_master: str | None, can_use_spark: bool
) -> EngineChoice:
    """Which engine does the work.

    :param spark_master: the master that heavy work could go to; ``None``: this process was not told of any.
    :param can_use_spark: this process is a Spark driver, or can become one.
    """
    if spec.engine != "auto":
        return EngineChoice(spec.engine, "asked for")
    size = format_bytes(planned_bytes)
    if planned_bytes <= LOCAL_BYTES:
        return EngineChoice("local", f"{size} is rewritten here before a Spark session has started")
    if spark_master is not None and spark_master.startswith("local"):
        return EngineChoice(
            "local", f"{size}, but master {spark_master} is this machine: Spark would add nothing"
        )
    limit = format_bytes(LOCAL_BYTES)
    if can_use_spark:
        where = f"master {spark_master} has other machines" if spark_master else "this is a Spark driver"
        return EngineChoice("spark", f"{size} is more than {limit}, and {where}")
    return EngineChoice(None, f"{size} is more than the {limit} that one process should take on")


def choose_lister(
    spec: JobSpec, count_files: Callable[[], int], *, spark_master: str | None, can_use_spark: bool
) -> EngineChoice:
    """Who lists the files of a table. Unlike a rewrite, a listing is never too large for this process, only slow.

    :param count_files: how many files the log knows; asked for only where that matters.
    """
    if spec.engine != "auto":
        return EngineChoice(spec.engine, "asked for")
    if spark_master is None and not can_use_spark:
        return EngineChoice("local", "no Spark master is known here")
    if spark_master is not None and spark_master.startswith("local"):
        return EngineChoice("local", f"master {spark_master} is this machine: Spark would add nothing")
    files = count_files()
    if files <= LOCAL_FILES:
        return EngineChoice(
            "local", f"{files:,} known files are listed here before a Spark session has started"
        )
    where = f"master {spark_master} has other machines" if spark_master else "this is a Spark driver"
    reason = f"{files:,} known files are more than {LOCAL_FILES:,}, and {where}"
    return EngineChoice("spark" if can_use_spark else None, reason)


def is_spark_driver() -> bool:
    """Did spark-submit start this process? Then master and settings are its business."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


#: What an engine gives back for a task.
BinResult = BinManifest | TaskFailed
