"""Opening a table: ours against delta-rs. ``./dev bench snapshot`` makes the tables and prints the ratios.

1. 10,000 JSON commits of one file, no checkpoint.
2. A checkpoint of 1,000,000 files with statistics and 100 commits after it: the list of files (partition values, sizes,
   deletion vectors; the peer always loads statistics as well), with the statistics' text, streamed with all of
   them parsed, and held with all of them parsed.
3. 20,000 commits of 10 files, statistics parsed.
4. One new commit on table 2: refresh, counts and changed files, against our own cold open.

Delta Lake on Spark opens the three tables as well, where Java and Maven are: see :mod:`snapshot_spark`.

2026-11-21, 2 cores and nothing else on them, pyarrow 26.0.1, deltalake 1.6.6, medians of five. > 1 is better for us; memory
is our share of the peer's:

====  ============================  ======  ==========  =====  =========  ======
case                                ours s  delta-rs s   time  processor  memory
====  ============================  ======  ==========  =====  =========  ======
1     10,000 commits                  0.20       2.43   12.4       14.4    0.10
2a    list without statistics         0.48       3.81    8.0        9.7    0.15
2b    list, statistics unparsed       1.04       3.65    3.5        4.3    0.48
2c    streamed, statistics parsed     1.34       3.33    2.5        2.2    0.15
2d    held, statistics parsed         2.06       3.34    1.6        1.5    0.65
3     20,000 commits of 10            1.43       6.20    4.3        4.4    0.71
====  ============================  ======  ==========  =====  =========  ======

4: 0.008 s, which is 1.6 % of a cold open without statistics (0.49 s). With a million keys compared whole in place of their
marks it was 0.026 s.

Delta Lake 4.4 on Spark 4.2, on a busy machine: 58 s (20 s of processor time) for table 1, 65 s (22 s) for table 2; table 3
took too long to be waited for.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import side_by_side
import snapshot_contenders  # noqa: F401 - so that a missing peer is named at once
import snapshot_tables
from side_by_side import Case, Contender

PEER = "delta-rs"


def cases(root: Path) -> list[Case]:
    t1 = str(snapshot_tables.commits(root / "t1", 10_000, 1))
    t2 = str(snapshot_tables.checkpointed(root / "t2", 1_000_000, 100))
    t3 = str(snapshot_tables.commits(root / "t3", 20_000, 10))

    def ours(function: str) -> Contender:
        return Contender("ours", f"snapshot_contenders:{function}")

    def peer(function: str) -> Contender:
        return Contender(PEER, f"snapshot_contenders:{function}", peer=True)

    adds = peer("delta_rs_add_actions")
    return [
        Case("1 10k commits: open, list files", (ours("our_paths"), peer("delta_rs_paths")), (t1,)),
        Case("2a 1M files: list without statistics", (ours("our_files"), adds), (t2,)),
        Case("2b 1M files: list, statistics unparsed", (ours("our_files_with_stats"), adds), (t2,)),
        Case("2c 1M files: streamed, statistics parsed", (ours("our_streamed_stats"), adds), (t2,)),
        Case("2d 1M files: held, statistics parsed", (ours("our_held_stats"), adds), (t2,)),
        Case("3 20k commits of 10: statistics parsed", (ours("our_held_stats"), adds), (t3,)),
        Case(
            "4 refresh by one commit (peer: own cold open)",
            (ours("our_refresh"), Contender("cold open", "snapshot_contenders:our_files", peer=True)),
            (t2,),
            same_facts=False,
        ),
    ]


def delta_spark(root: Path, names: list[str]) -> None:
    """Prints what :mod:`snapshot_spark` measures of some tables."""
    here = Path(__file__).parent
    program = [sys.executable, str(here / "snapshot_spark.py"), *(str(root / name) for name in names)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(here), str(here.parent)])}
    print(
        "delta-spark, a warm session's opens with Delta's caches cleared; the list with statistics unparsed"
    )
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(program, env=environment, stdout=subprocess.PIPE, stderr=log, text=True)
        assert process.stdout is not None
        for name, line in zip(names, process.stdout, strict=False):
            row = json.loads(line)
            if "missing" in row:
                print(f"delta-spark was not measured: {row['missing']}")
                break
            if name == names[0]:
                print(
                    "delta-spark: opens in a warm session, Delta's caches cleared; list, statistics unparsed"
                )
            print(
                f"{name:<44} {'delta-spark':<22} {row['wall']:>8.3f} {row['spread']:>15} {row['cpu']:>7.2f} "
                f"{row['peak_mb']:>8.0f} {'-':>7} {'-':>6}",
                flush=True,
            )
        if process.wait():
            log.seek(0)
            raise SystemExit(f"delta-spark failed:\n{log.read()[-3000:]}")


def main(arguments: list[str]) -> None:
    """``[DIRECTORY [CASE…]]``: where the tables are, and which cases, by the start of their names or ``spark``."""
    root = Path(arguments[0]) if arguments else Path(tempfile.gettempdir()) / "airflow-provider-delta-bench"
    root.mkdir(parents=True, exist_ok=True)
    chosen = tuple(arguments[1:])
    wanted = [case for case in cases(root) if not chosen or case.name.startswith(chosen)]
    rows: list[dict[str, Any]] = side_by_side.run_cases(wanted)
    if not chosen:
        (root / "snapshot.json").write_text(json.dumps(rows, indent=1))
    if not chosen or "spark" in chosen:
        delta_spark(root, ["t1", "t2", "t3"])


if __name__ == "__main__":
    main(sys.argv[1:])
