"""A fleet of tables: ``./dev bench fleet survey`` finds and surveys 3,000 tables on a local S3 server whose every answer takes 20 ms more.

A third of the tables each has 3 commits; 11 commits and a checkpoint; and 20 commits, of which two are runs of OPTIMIZE, with two
checkpoints. The logs are of delta-rs and this package. Each survey is a process on one core (``taskset``); the server has the other.

1. ``discover s3://…/**``, in 30 directories.
2. The first survey: nothing is known. It is made without latency, since ten reads a table take the proxy longer than the survey.
3. The next day: nothing has changed. A thirtieth of the tables is read again, as every day.
4. The day after it: 5 % of the tables have one commit more.

2026-11-28, 2 cores that others used, too; 41,000 files of logs, a memory of 0.16 MB:

==================  ======  ======  =======  ================  ===========
case                wall    cpu     peak     requests a table  tables read
==================  ======  ======  =======  ================  ===========
discover            6.4 s   1.6 s   137 MB   1.02
first, 0 ms         181 s   74.3 s  212 MB   not counted       3,000
next day, no news   8.9 s   3.5 s   197 MB   1.07              97
5 % changed         14.4 s  6.7 s   205 MB   1.21              223
==================  ======  ======  =======  ================  ===========

Imports take 126 MB of the peak.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import vacuum_latency

from delta_log.storage.opening import open_storage
from delta_maintenance.contract import JobSpec
from delta_maintenance.job import JobSite, run_job
from delta_maintenance.progress import SilentProgress

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.support.servers.s3 import MINIO, S3Server, running_minio
from tests.support.tables.small_tables import write_days

_DAY_MS = 86_400_000
_DIRECTORIES = 30
_OPTIMIZED = 2


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="a fleet of tables")
    parser.add_argument("what", choices=["survey"])
    parser.add_argument(
        "directory", nargs="?", type=Path, help="where the server keeps the tables, about 1 GB"
    )
    parser.add_argument("--tables", type=int, default=3_000)
    parser.add_argument("--changed", type=float, default=0.05)
    parser.add_argument("--latency-ms", type=float, default=20)
    given = parser.parse_args(arguments)
    root = given.directory or Path(tempfile.gettempdir()) / "airflow-provider-delta-bench"
    home = root / "fleet"
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(parents=True)
    try:
        with running_minio(MINIO.find(lambda line: print(line, flush=True)), home) as server:
            _survey(server, home, given.tables, given.changed, given.latency_ms)
    finally:
        shutil.rmtree(home, ignore_errors=True)


def _survey(server: S3Server, home: Path, count: int, changed: float, latency_ms: float) -> None:
    place = f"s3://{server.make_bucket()}"
    kinds = [_log_of(home / f"kind-{number}", number) for number in range(3)]
    names = [f"dir-{number % _DIRECTORIES:02}/table-{number:05}" for number in range(count)]
    storage = open_storage(place, server.storage_options)

    def put(number: int, files: dict[str, bytes]) -> None:
        for name, data in files.items():
            storage.put(f"{names[number]}/_delta_log/{name}", data)

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda number: put(number, kinds[number % 3][0]), range(count)))
    files = sum(len(kinds[number % 3][0]) for number in range(count))
    print(f"{count:,} tables with {files:,} files in their logs")
    asked: dict[str, Any] = {
        "discover": False,
        "pattern": f"{place}/**",
        "tables": [f"{place}/{name}" for name in names],
        "memory": str(home / "memory"),
        "remembers": False,
        "now_ms": time.time_ns() // 1_000_000,
    }
    _run("discover", server, latency_ms, count, {**asked, "discover": True})
    _run("first survey", server, 0, count, asked)
    asked = {**asked, "remembers": True, "now_ms": asked["now_ms"] + _DAY_MS}
    _run("next day", server, latency_ms, count, asked)
    for number in range(0, count, round(1 / changed)):
        put(number, kinds[number % 3][1])
    asked = {**asked, "now_ms": asked["now_ms"] + _DAY_MS}
    _run(f"{changed:.0%} changed", server, latency_ms, count, asked)
    print(f"memory: {(home / 'memory').stat().st_size / 1e6:.2f} MB")


def _log_of(table: Path, kind: int) -> tuple[dict[str, bytes], dict[str, bytes]]:
    """Write a table, and return the files of its log, and the files of one commit more."""
    log = table / "_delta_log"

    def run(operation: str) -> None:
        report = run_job(
            JobSpec(operation, str(table), operation, {}, engine="local"), JobSite(), SilentProgress()
        )
        assert report.error is None, report.error

    for _ in range((1, 1, 2)[kind]):
        write_days(table, files=(3, 11, 9)[kind], rows=10)
        if kind:
            run("checkpoint")
        if kind == _OPTIMIZED:
            run("optimize")
    before = {path.name: path.read_bytes() for path in log.iterdir() if path.is_file()}
    write_days(table, files=1, rows=10)
    after = {path.name: path.read_bytes() for path in log.iterdir() if path.is_file()}
    return before, {name: data for name, data in after.items() if before.get(name) != data}


def _run(name: str, server: S3Server, latency_ms: float, count: int, asked: dict[str, Any]) -> None:
    with vacuum_latency.at_a_distance(server.endpoint, latency_ms) as far:
        if not latency_ms:
            far.endpoint = server.endpoint
        options = dataclasses.replace(server, endpoint=far.endpoint).storage_options
        program = ["taskset", "-c", "0", sys.executable, str(Path(__file__).parent / "fleet_survey.py")]
        done = subprocess.run(
            program,
            input=json.dumps({**asked, "options": options}),
            capture_output=True,
            text=True,
            check=True,
        )
        requests = ", ".join(f"{number:,} {kind}" for kind, number in sorted(far.requests.items()))
        per_table = far.requests.total() / count
    told = json.loads(done.stdout)
    counts = ", ".join(f"{told[key]:,} {key}" for key in ("tables", "unread", "read") if key in told)
    print(
        f"{name:<14} {told['wall']:6.1f} s {told['cpu']:6.1f} s cpu {told['peak_mb']:5.0f} MB  {per_table:.2f} requests a table "
        f"({requests}); {counts}",
        flush=True,
    )


if __name__ == "__main__":
    main()
