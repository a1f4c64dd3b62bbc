"""Which engine does a piece of work.

All engines run the same function, so the choice is one of cost. A Spark session takes seconds to start, and on one
machine it is never faster than the local engine. It pays where it brings more machines.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from delta_maintenance.contract import JobSpec
from delta_maintenance.units import format_bytes

#: What one machine finishes in a minute or two. Above that, ``auto`` prefers a cluster.
LOCAL_BYTES = 16 << 30
#: What one process lists and compares within a minute, or a few on a slow store, and in less than 1 GiB.
LOCAL_FILES = 2_000_000


class EngineChoice(Struct, frozen=True):
    """The engine and the reason. ``engine`` is ``None`` where the work is too large for this process and needs a cluster."""

    engine: str | None
    reason: str


def choose_engine(
    spec: JobSpec, planned_bytes: int, *, spark_master: str | None, can_use_spark: bool
) -> EngineChoice:
    """Choose the engine for a rewrite.

    :param spark_master: the master that heavy work could go to; ``None``: this process was not told of any.
    :param can_use_spark: ``True``: this process is a Spark driver, or can become one.
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
    """Choose the engine that lists a table's files. A listing is never too large for this process, only slow.

    :param count_files: function that counts the files that the log knows; called only where the number matters.
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
