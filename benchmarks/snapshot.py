"""Opening a table: ours against delta-rs. ``./dev bench snapshot`` makes the tables and prints the ratios.

1. 10,000 JSON commits of one file, no checkpoint.
2. A checkpoint of 1,000,000 files with statistics and 100 commits after it: the list of files (partition values, sizes,
   deletion vectors; the peer always loads statistics as well), with the statistics' text, streamed with all of
   them parsed, and held with all of them parsed.
3. 20,000 commits of 10 files, statistics parsed.
4. One new commit on table 2: refresh, counts and changed files, against our own cold open.

2026-11-21, 2 cores, pyarrow 26.0.1, deltalake 1.6.6, medians of five; > 1 is better for us, memory is our share of the
peer's:

====  ============================  =====  ======
case                                 time  memory
====  ============================  =====  ======
1     10,000 commits                 10.5    0.09
2a    list without statistics         8.4    0.21
2b    list, statistics unparsed       1.5    0.59
2c    streamed, statistics parsed     1.5    0.33
2d    held, statistics parsed         0.9    0.80
3     20,000 commits of 10            3.6    0.71
4     refresh: 3.5 % of a cold open
====  ============================  =====  ======

2b holds half a gigabyte, and most of its time, 0.6 to 1.9 s, is the system handing out memory: 0.45 s are ours, and
another run had 3.4. Spelt-out statistics are what memory goes to; 2b and 2d are the cases to improve.
"""

from __future__ import annotations

import json
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


def main(arguments: list[str]) -> None:
    root = Path(arguments[0]) if arguments else Path(tempfile.gettempdir()) / "airflow-provider-delta-bench"
    root.mkdir(parents=True, exist_ok=True)
    rows: list[dict[str, Any]] = side_by_side.run_cases(cases(root))
    (root / "snapshot.json").write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main(sys.argv[1:])
