"""From a cold open to a new checkpoint: ours against delta-rs, and against ourselves. ``./dev bench checkpoint``.

a. 1,000,000 files with statistics, which the new checkpoint carries as the old one did.
b. The same, with the statistics as a struct as well, which has to be built.
c. A V2 checkpoint after appends and a compaction of the newest 1 %: incremental against our own full one.
d. The same after 1 % of the files, anywhere, were replaced.
e. 5,000,000 files, as in a. and as sidecars, within 4 GB; delta-rs is not asked.

2026-11-22, 2 cores and nothing else on them, pyarrow 26.0.1, deltalake 1.6.6, medians of five. Against delta-rs in a. and b.,
against our own full V2 checkpoint, which is written in the order of age, in c. and d.:

====  ==============================  ===========  ====  ==========  ============
case                                  seconds      time  peak MB     written MB
====  ==============================  ===========  ====  ==========  ============
a     statistics as they were         1.35, 5.77   4.3   283, 1981   8.7, 397.6
b     struct statistics are built     2.65, 7.21   2.7   381, 2056   16.9, 453.3
c     the newest 1 % compacted        0.25, 3.05   12.4  117, 792    0.5, 11.0
d     1 % replaced anywhere           4.05, 3.68   0.9   863, 806    11.4, 11.4
====  ==============================  ===========  ====  ==========  ============

e, once: 7.0 s and 319 MB, 43 MB written; as sidecars, whose order of age is made by reading the files several times, 48 s and
885 MB, 55 MB written.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import checkpoint_contenders  # noqa: F401 - so that a missing peer is named at once
import checkpoint_tables
import side_by_side
import snapshot_tables
from side_by_side import Case, Contender

_FILES = 1_000_000


def _contender(name: str, function: str, *, peer: bool = False) -> Contender:
    return Contender(name, f"checkpoint_contenders:{function}", peer)


_CLASSIC = _contender("ours", "our_classic")
_PEER = _contender("delta-rs", "delta_rs", peer=True)
_INCREMENTAL = _contender("incremental", "our_incremental")
_FULL = _contender("full", "our_v2", peer=True)


def cases(root: Path, chosen: tuple[str, ...]) -> list[Case]:
    """Return the chosen cases.

    :param chosen: first letters of their names; none: all.
    """
    made = []
    for name, contenders in (
        ("a 1M files, statistics as they were", (_CLASSIC, _PEER)),
        ("b 1M files, struct statistics are built", (_CLASSIC, _PEER)),
        ("c V2, the newest 1 % compacted", (_INCREMENTAL, _FULL)),
        ("d V2, 1 % replaced anywhere", (_INCREMENTAL, _FULL)),
        ("e 5M files", (_CLASSIC, _contender("ours, V2", "our_v2"))),
    ):
        if not chosen or name[0] in chosen:
            made.append(Case(name, contenders, (str(_table(root, name[0])),), same_facts=False))
    return made


def _table(root: Path, case: str) -> Path:
    if case == "e":
        large = snapshot_tables.checkpointed(root / "t5m", 5 * _FILES, 100)
        return checkpoint_tables.with_v2_feature(large, root / "t5m-feature")
    million = snapshot_tables.checkpointed(root / "t2", _FILES, 100)
    if case == "a":
        return million
    if case == "b":
        return checkpoint_tables.with_struct(million, root / "t2-struct")
    v2 = checkpoint_tables.as_v2(million, root / "t2-v2")
    if case == "c":
        return checkpoint_tables.with_newest_compacted(v2, root / "t2-compacted", _FILES)
    return checkpoint_tables.with_churn(v2, root / "t2-churn", _FILES)


def main(arguments: list[str]) -> None:
    """``[DIRECTORY [CASE…]]``: where the tables are, and which cases, by their letters."""
    root = Path(arguments[0]) if arguments else Path(tempfile.gettempdir()) / "airflow-provider-delta-bench"
    root.mkdir(parents=True, exist_ok=True)
    rows: list[dict[str, Any]] = side_by_side.run_cases(cases(root, tuple(arguments[1:])))
    print("what was written:")
    for row in rows:
        print(f"{row['case']:<44} {row['contender']:<22} {row['facts']['written_mb']:>8.1f} MB")
    if len(arguments) < 2:
        (root / "checkpoint.json").write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main(sys.argv[1:])
