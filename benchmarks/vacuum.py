"""VACUUM of 200,000 files in 2,000 partitions: ours against delta-rs and delta-spark. ``./dev bench vacuum`` prints the ratios.

180,000 files are live, 10,000 were removed and 10,000 are orphans. The time to open the table counts.
Local dry runs, full and lite; the same on a local S3 server whose every answer takes 20 ms more, with the requests that were
made; there also a vacuum that deletes, on a copy for each. Then the memory that two million candidates take.

Answer of November 2026, 2 cores with nothing else on them, Python 3.11, deltalake 1.6.6, delta-spark 4.4.0, medians of five
interleaved runs for local ones (two such), single runs for the rest:

=====================================  ========  ========  ==========================================================
case                                   ours      delta-rs
=====================================  ========  ========  ==========================================================
local, full, dry run                   0.25 s    1.48 s    5.7x, 5.9x; processor time 0.4 s against 1.5 s; delta-spark
                                                           95 s, on another day
local, lite, dry run                   0.20 s    0.42 s    2.0x, 2.1x
S3, full, dry run                      17.0 s    70.2 s    4.1x; 264 LIST against 202, which come one after the other
S3, lite, dry run                      0.61 s    0.96 s    1.6x; 26 GET and 3 LIST against 49 GET and 1 LIST
S3, full, 20,000 files deleted         63.0 s    95.2 s    1.5x; 471 LIST (it lists again afterwards), 21 bulk DELETE and
                                                           15 PUT against 208, 20 and 2
memory of 2,000,000 candidates         701 MB              above what is there before: orphans
the same, half of them tombstones      930 MB              of commits that no checkpoint covers
=====================================  ========  ========  ==========================================================

In ours, listing 200,000 names takes 0.15 s; meanwhile the other core reads the snapshot and compares the names listed so far.
What it does there must not be of Python's making: looked up one by one, the times of 10,000 files cost the listing half as
long again, asked for all at once a tenth. Comparing by hashes instead of keys gained a fourteenth.
delta-spark lists in eight tasks here; with its own setting, 10,000 tasks for every listing, it needed 275 s.
"""

from __future__ import annotations

import dataclasses
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import side_by_side
import vacuum_latency
import vacuum_tables
from side_by_side import Case, Contender

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.support.servers.s3 import MINIO, running_minio

CONTENDERS = (
    Contender("ours", "vacuum_contenders:ours"),
    Contender("delta-rs", "vacuum_contenders:delta_rs", peer=True),
)
LATENCY_MS = 20


def main(arguments: list[str]) -> None:
    root = Path(arguments[0]) if arguments else Path(tempfile.gettempdir()) / "airflow-provider-delta-bench"
    root.mkdir(parents=True, exist_ok=True)
    parts = arguments[1:] or ["local", "spark", "s3", "memory"]
    uri = vacuum_tables.local(root)
    table = {"uri": uri, "options": {}, "peer_options": {}, "retain_hours": 168}
    if "local" in parts:
        cases = [Case(f"local, {mode}, dry run", CONTENDERS, (table, mode)) for mode in ("full", "lite")]
        side_by_side.run_cases(cases)
    if "spark" in parts:
        _spark(uri)
    if "s3" in parts:
        _s3(root)
    if "memory" in parts:
        for function in ("ours", "tombstones"):
            found = side_by_side._measure(Contender("ours", f"vacuum_memory:{function}"), ())
            print(
                f"two million candidates ({function}): {found['facts']}, peak {found['peak_mb']:,.0f} MB, "
                f"{found['wall']:.0f} s"
            )


def _spark(uri: str) -> None:
    program = Path(__file__).with_name("vacuum_spark.py")
    done = subprocess.run([sys.executable, str(program), uri], stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise SystemExit("delta-spark failed")
    print(f"local, full, dry run by delta-spark: {done.stdout.splitlines()[-1]}")


def _s3(root: Path) -> None:
    program = MINIO.find(lambda line: print(line, flush=True))
    home = root / "vacuum-minio"
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir()
    try:
        with running_minio(program, home) as server:
            bucket = server.make_bucket()
            server.put(f"{bucket}/template", b"data")
            for contender in CONTENDERS:
                vacuum_tables.on_minio(home / "data" / bucket, contender.name)
                for path in vacuum_tables.log_files(root):
                    server.put(f"{bucket}/{contender.name}/_delta_log/{path.name}", path.read_bytes())
            with vacuum_latency.at_a_distance(server.endpoint, LATENCY_MS) as far:
                near = dataclasses.replace(server, endpoint=far.endpoint)
                for mode, dry_run in (("lite", True), ("full", True), ("full", False)):
                    for contender in CONTENDERS:
                        table = {
                            "uri": f"s3://{bucket}/{contender.name}",
                            "options": near.storage_options,
                            "peer_options": near.delta_rs_options,
                            "retain_hours": 0,
                        }
                        far.requests.clear()
                        found = side_by_side._measure(contender, (table, mode, dry_run))
                        _tell_s3(mode, dry_run, contender.name, found, far.requests)
    finally:
        shutil.rmtree(home, ignore_errors=True)


def _tell_s3(mode: str, dry_run: bool, name: str, found: dict[str, Any], requests: dict[str, int]) -> None:
    what = "dry run" if dry_run else "deletion"
    counts = ", ".join(f"{n} {kind}" for kind, n in sorted(requests.items()))
    print(
        f"S3, {mode}, {what}: {name:<9} {found['wall']:7.2f} s wall {found['cpu']:6.2f} s cpu {found['peak_mb']:5.0f} MB  "
        f"{json.dumps(found['facts'])}  {counts}",
        flush=True,
    )


if __name__ == "__main__":
    main(sys.argv[1:])
