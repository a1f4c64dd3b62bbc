"""What the commit benchmark measures: so many processes that commit to one table at once."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

WRITER = Path(__file__).with_name("commit_writer.py")


def ours(tables: dict[str, Any], writers: int, commits: int) -> dict[str, Any]:
    return _race("ours", tables, writers, commits)


def delta_rs(tables: dict[str, Any], writers: int, commits: int) -> dict[str, Any]:
    return _race("delta-rs", tables, writers, commits)


def _race(kind: str, tables: dict[str, Any], writers: int, commits: int) -> dict[str, Any]:
    """From the moment at which all have opened the table until the last has made its last commit."""
    table = tables[kind]
    options = json.dumps(table["options"])
    processes = [
        subprocess.Popen(
            [sys.executable, str(WRITER), kind, table["uri"], options, str(commits)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(writers)
    ]
    for process in processes:
        assert process.stdout is not None
        if process.stdout.readline() != "ready\n":
            raise SystemExit(f"a writer of {kind} did not start")
    started = time.perf_counter()
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    reports = [json.loads(process.communicate()[0].splitlines()[-1]) for process in processes]
    wall = time.perf_counter() - started
    return {
        "measured": {
            "wall": wall,
            "cpu": sum(report["cpu"] for report in reports),
            "peak_mb": max(report["peak_mb"] for report in reports),
        },
        "commits": writers * commits,
    }
