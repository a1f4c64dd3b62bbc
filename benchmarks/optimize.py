"""OPTIMIZE and REORG PURGE: ours against delta-rs and Delta Lake on Spark. ``./dev bench optimize``.

a. 2,000 files of 1.1 MB, 8 million rows of 32 columns of mixed types, into files of 256 MiB: local processes.
b. The same into files of 1 GiB.
c. a. on Spark: our engine in an embedded session against Delta Lake's own, both from the start of the session to its end.
d. The same table with a tenth of the rows of each file deleted by vectors: REORG PURGE, local processes against Delta Lake.
e. 20 files of 50 kB: in a fresh process of ours, against a session of Delta Lake's that has done it before.
f. A plan of 10,000 bins on a snapshot of 1,000,000 files, against that snapshot's own load.
g. a. on four times as many files: only our memory.
h. 12 files of 56 MB, each of one large row group, into one: ours, delta-rs, and a trial that copies row groups.

All write Snappy, and rows are compared afterwards. Memory is that of all processes together.

2026-11-22, 2 cores, pyarrow 26.0.1, deltalake 1.6.6, delta-spark 4.4.0 on PySpark 4.2, tables in memory. a. and b. on 1,000
files with nothing else on the machine, medians of three: delta-rs is ahead in a., and level in b., which is one bin after
another for ours. The rest is of the day before, once, while others used the cores as well; c. and d. on 800 files, g. on 250
files and 1,000 into 64 MiB:

====  =====================  ============  ====  ==============  ====  ==========
case                         seconds       time  processor       CPU   peak MB
====  =====================  ============  ====  ==============  ====  ==========
a     256 MiB, delta-rs      5.35, 4.44    0.8   10.3, 8.6       0.8   1090, 1360
b     1 GiB, delta-rs        5.70, 5.78    1.0   10.1, 8.8       0.9   630, 1505
c     Spark, delta-spark     25.1, 252     10    22.0, 115       5.2   1417, 6815
d     purge, delta-spark     31.2, 340     11    12.2, 114       9.3   270, 2906
e     20 files, delta-spark  0.08, 11.7    148   0.08, 47.9
f     plan, load             2.4, 1.9      0.8   2.4, 0.9        0.4   630, 332
g     4 times as many files                                            703, 710
====  =====================  ============  ====  ==============  ====  ==========

Where the processor's time goes: in a. and b., of 2.5 s for 200 files pyarrow's decoder takes 1.3 and its encoder 1.2, most of
that in Snappy and in strings; reading and writing the same by pyarrow alone takes 2.3 to 2.6. Nothing of Arrow's is faster:
on one processor that was 1.76 s by pyarrow, 1.78 by DuckDB, 1.65 by delta-rs. Texts of random hexadecimal digits are a quarter
of it (Snappy makes them an eighth smaller); leaving them uncompressed would gain 13 % and cost 5 % of the size. In c. the rewrite itself is
12 s, as in local processes, and Spark the other 10. In d. decoding and encoding take a third each, leaving out deleted rows
an eighth. In e. reading is two fifths and writing a third. In f. looking up partition values is two fifths, naming bins
a quarter, gathering the files of the bins a fifth.

h. is a trial (:mod:`row_group_copy`): twelve files of one row group of 56 MB each become one file in 0.5 s where decoding and
encoding takes 10.8 s and delta-rs 11.5 s (two rounds on a busy machine), about twenty times faster. It is not part of the product:
statistics, page indexes and notes of the footer would have to be carried over exactly, and it serves files whose row groups
are large already, not the small files that a compaction is mostly about, of which each would become a small row group.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

import optimize_contenders
import optimize_tables
import side_by_side
from side_by_side import Case, Contender

_FILES = 2_000
_MIB, _GIB = 1 << 20, 1 << 30


def _contender(name: str, function: str, *, peer: bool = False) -> Contender:
    return Contender(name, f"optimize_contenders:{function}", peer)


_LOCAL = _contender("ours", "our_local")
_RUST = _contender("delta-rs", "delta_rs", peer=True)
_JVM = _contender("delta-spark", "delta_spark", peer=True)


def case(letter: str, root: Path, files: int) -> Case:
    """One case and its table; :func:`_table` says where the contenders leave their copies."""
    table = str(_table(letter, root, files))
    contenders: dict[str, tuple[str, tuple[Contender, ...], tuple[Any, ...]]] = {
        "a": ("a 256 MiB", (_LOCAL, _RUST), (256 * _MIB,)),
        "b": ("b 1 GiB", (_LOCAL, _RUST), (_GIB,)),
        "c": ("c 256 MiB, Spark", (_contender("ours-on-spark", "our_spark"), _JVM), (256 * _MIB,)),
        "d": (
            "d purge of 10 %",
            (_contender("ours", "our_purge"), _contender("delta-spark", "delta_spark_purge", peer=True)),
            (_GIB,),
        ),
        "e": (
            "e 20 files of 50 kB",
            (_LOCAL, _contender("delta-spark", "delta_spark_warm", peer=True)),
            (_GIB,),
        ),
        "f": ("f 10,000 bins", (_contender("plan", "plan_only"), _contender("load", "load", peer=True)), ()),
        "g": ("g 256 MiB, four times as large", (_LOCAL,), (256 * _MIB,)),
        "h": (
            "h 12 files of 56 MB",
            (_LOCAL, _contender("copied", "row_groups_copied"), _RUST),
            (_GIB,),
        ),
    }
    name, who, arguments = contenders[letter]
    return Case(name, who, (table, *arguments), same_facts=False)


def _table(letter: str, root: Path, files: int) -> Path:
    if letter == "e":
        return optimize_tables.mixed(root / "small-20", 20, 160)
    if letter == "h":
        return optimize_tables.mixed(root / "large-12", 12, 250_000)
    if letter == "f":
        return optimize_tables.partitioned(root / "partitioned-1m", 1_000_000, 10_000)
    table = optimize_tables.mixed(root / f"mixed-{files}", files)
    if letter == "d":
        return optimize_tables.with_deletion_vectors(table, root / f"deleted-{files}")
    return optimize_tables.multiplied(table, root / f"mixed-4x{files}", 4) if letter == "g" else table


def _compare_rows(measured: Case) -> None:
    """
    :raises SystemExit: two contenders left tables of different rows.
    """
    table = measured.arguments[0]
    copies = {
        contender.name: optimize_contenders.copy_for(table, contender.name)
        for contender in measured.contenders
    }
    found = {
        name: json.dumps(optimize_tables.checksum(copy)) for name, copy in copies.items() if copy.exists()
    }
    if len(set(found.values())) > 1:
        raise SystemExit(f"{measured.name}: the rows differ: {found}")
    if len(found) > 1:
        print(f"{measured.name}: {json.loads(next(iter(found.values())))['rows']:,} rows, equal")
    shutil.rmtree(Path(table).parent / optimize_contenders.COPIES, ignore_errors=True)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="OPTIMIZE and REORG PURGE, side by side")
    parser.add_argument("directory", nargs="?", type=Path, help="where the tables are")
    parser.add_argument("cases", nargs="*", help="by their letters; none: all")
    parser.add_argument("--files", type=int, default=_FILES, help="of the large table")
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args(arguments)
    root = given.directory or Path(tempfile.gettempdir()) / "airflow-provider-delta-bench"
    root.mkdir(parents=True, exist_ok=True)
    for letter in given.cases or "abcdefgh":
        measured = case(letter, root, given.files)
        for row in side_by_side.run_cases([measured], given.rounds):
            facts = ", ".join(f"{name} {value}" for name, value in row["facts"].items())
            print(f"  {row['contender']}: {facts}")
        _compare_rows(measured)


if __name__ == "__main__":
    main()
