"""Tables on a disk with files that VACUUM may delete, and ways to make those files old enough."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

from deltalake import DeltaTable

from tests.support.tables.small_tables import write_days

DAY_SECONDS = 86_400


def write_vacuumable(table: Path) -> Path:
    """Write two partitions at versions 0 to 6, where a compaction has removed the first six files. All is a month old.

    The removals have the time of the compaction, so they have not expired (:func:`make_removals_old`).
    """
    write_days(table)
    DeltaTable(str(table)).optimize.compact()
    age(table)
    return table


def age(table: Path, days: float = 30) -> None:
    """Make everything below a directory older, including its log."""
    for path in [table, *table.rglob("*")]:
        if not path.is_symlink():
            made = path.stat().st_mtime - days * DAY_SECONDS
            os.utime(path, (made, made))


def old_file(path: Path, content: bytes = b"old") -> None:
    """Write a file that, like the two directories above it, is a month old."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    month_ago = time.time() - 30 * DAY_SECONDS
    for made in (path, *path.parents[:2]):
        os.utime(made, (month_ago, month_ago))


def make_removals_old(table: Path) -> None:
    """Give the removals of every commit a timestamp of a month ago."""
    month_ago_ms = int((time.time() - 30 * DAY_SECONDS) * 1000)
    for commit in (table / "_delta_log").glob("*.json"):
        actions = [json.loads(line) for line in commit.read_text().splitlines()]
        for action in actions:
            if "remove" in action:
                action["remove"]["deletionTimestamp"] = month_ago_ms
        times = (commit.stat().st_mtime,) * 2
        commit.write_text("".join(json.dumps(action) + "\n" for action in actions))
        os.utime(commit, times)
