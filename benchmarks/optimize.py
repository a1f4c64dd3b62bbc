"""OPTIMIZE and REORG PURGE: ours against delta-rs and Delta Lake on Spark. ``./dev bench optimize``.

Whole commands, from the start of the program to its end, ours and delta-rs:

a. 400 files of 0.57 MB, 5 columns, into one file.
b. 300 files of 1.05 MB, 34 leaves of mixed types, into one file.
c. 2,000 files as in b., into files of 256 MiB.
d. b. where Delta Lake on Spark has written the table.
e. 12 files of 56 MB, each of one large row group, into one file.
f. b. with ``--rewrite copy``.
g. 100 files of 20 MB, each twentieth with a deletion vector, into files of 1 GiB. delta-rs compacts the table without the vectors.
m. 300 files of 0.85 MB of events, into one file: most values differ.

``--floor`` adds the least work to these, see :mod:`floor`: the best codec alone in a. to d., copying the bytes in e. and f.

The others begin when all modules are loaded:

h. c. on Spark: our engine in an embedded session against Delta Lake's own, both from the start of the session to its end.
i. c. with a tenth of the rows of each file deleted by vectors: REORG PURGE, local processes against Delta Lake.
j. 20 files of 50 kB: in a fresh process of ours, against a session of Delta Lake's that has done it before.
k. A plan of 10,000 bins on a snapshot of 1,000,000 files, against that snapshot's own load.
l. c. on four times as many files: only our memory.

All write Snappy, and rows are compared afterwards.

2026-11-28, 2 cores, files in memory, pyarrow 26.0.1, deltalake 1.6.6, medians of 5 rounds; c. and g. of 2026-11-27, when
pages of small files were still joined.

====  ===============  ===============  =====  =================
case  ours: s, s CPU   delta-rs         time   memory in MB
====  ===============  ===============  =====  =================
a     0.94, 1.51       1.04, 1.49       1.11   321 against 236
b     1.62, 2.80       2.50, 3.54       1.54   352 against 948
c     7.19, 13.3       9.53, 18.4       1.33   422 against 1,572
d     1.99, 3.41       2.49, 3.55       1.25   361 against 954
e     0.52, 0.57       5.17, 7.33       10.0   107 against 1,657
f     0.49, 0.55       2.40, 3.43       4.9    97 against 954
g     1.48, 2.39       8.87, 16.8       6.0    364 against 2,351
m     0.98, 1.57       1.40, 1.97       1.4    360 against 510
====  ===============  ===============  =====  =================

Where the processor goes in c.: Arrow decodes for 34 % and encodes for 33 %, of which Snappy takes 14 % and 8 %; the kernel takes 10 %,
Python and the rest 20 %. For 36 files in one thread, decoding and encoding alone take 0.185 s of the 0.24 s that the command needs.
Three columns of identifiers are stored without compression: Snappy finds little more in them than the four bytes of length before each
text, saves a tenth of these columns, and would take 0.035 s. The files are 5 % larger in b. and c. for that, and no larger in a. and m.

Tried without gain: Polars as the codec of segments (a. and b.); texts that hardly repeat read as dictionaries; values of which one in a
hundred repeats looked up in their dictionaries (b. and c.); a thread of
its own that copies, beside the one that works on footers (e. and f.), also with a shorter switch interval; a sink of Arrow's own for
encoded parts, views instead of texts, decimals read as bytes (b. and c.); in a., memory for the bytes of files that is used again, or
is taken in smaller blocks; dictionaries of few values that become one, their places renumbered by NumPy (a.: a tenth less of a
processor, but threads wait for Python's lock); libraries loaded by a thread of its own at the start;
worker processes on two processors (c.: 4 % less time, 40 % more memory, and bins that they cannot divide evenly); more threads than
processors; segments of half the size at the end of a bin, or a smaller first one; jemalloc and mimalloc (c.: 2 % less time, and up to
a third more memory; d. takes longer); columns decoded and encoded one by one; fewer sampled rows.

Polars as the codec of c., from files in memory to row groups in memory and without statistics, takes 7.0 s and 550 MB, at a time
when the whole command took 8.7.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import optimize_contenders
import optimize_tables
import side_by_side
from side_by_side import Case, Contender

_FILES = 2_000
_MIB, _GIB = 1 << 20, 1 << 30
_ROWS_OF_20_MB = 80_000


#: Cases of whole commands, by letter: what is done, the most bytes of a file, and further arguments of ours.
_COMMANDS = {
    "a": ("a 400 x 0.57 MB, 5 columns", _GIB, ()),
    "b": ("b 300 x 1.05 MB, 34 leaves", _GIB, ()),
    "c": ("c 2,000 x 1.1 MB into 256 MiB", 256 * _MIB, ()),
    "d": ("d b. by delta-spark", _GIB, ()),
    "e": ("e 12 x 56 MB", _GIB, ()),
    "f": ("f b. copied", _GIB, ("--rewrite", "copy")),
    "g": ("g 100 x 20 MB, 5 % with vectors", _GIB, ()),
    "m": ("m 300 x 0.85 MB of events", _GIB, ()),
}


#: Beside ours and delta-rs, with ``--floor``.
_FLOORS = dict.fromkeys("abcdm", "codec") | dict.fromkeys("ef", "copy")


def _contender(name: str, function: str, *, peer: bool = False) -> Contender:
    return Contender(name, f"optimize_contenders:{function}", peer)


_LOCAL = _contender("ours", "our_local")
_JVM = _contender("delta-spark", "delta_spark", peer=True)


def command_case(letter: str, root: Path, files: int, with_floor: bool) -> Case:
    """A case of whole commands; its arguments are the arguments of :func:`measure_command`."""
    name, target_bytes, more = _COMMANDS[letter]
    table = _table(letter, root, files)
    without_vectors = (
        optimize_tables.mixed(root / "medium-100", 100, _ROWS_OF_20_MB) if letter == "g" else table
    )
    contenders = [Contender("ours", str(table)), Contender("delta-rs", str(without_vectors), peer=True)]
    if with_floor and letter in _FLOORS:
        contenders.append(Contender(_FLOORS[letter], str(table)))
    return Case(name, tuple(contenders), (str(table), str(target_bytes), *more), same_facts=False)


def measure_command(contender: Contender, arguments: Sequence[Any]) -> dict[str, Any]:
    """Run one command on a copy of the table. ``contender.function`` is the table."""
    target_bytes, *more = arguments[1:]
    copy = optimize_contenders.copy_for(arguments[0], contender.name)
    optimize_tables.linked(Path(contender.function), copy)
    if contender.name in _FLOORS.values():
        command = [str(side_by_side.HERE / "floor.py"), contender.name, str(copy), target_bytes]
    elif contender.peer:
        command = [str(side_by_side.HERE / "delta_rs_compaction.py"), str(copy), target_bytes]
    else:
        command = ["-m", "delta_maintenance", "optimize", str(copy), "--target-size", target_bytes, *more]
    return side_by_side.run_program([sys.executable, *command])


def case(letter: str, root: Path, files: int) -> Case:
    """One of the other cases; :func:`_table` says where the contenders leave their copies."""
    table = str(_table(letter, root, files))
    contenders: dict[str, tuple[str, tuple[Contender, ...], tuple[Any, ...]]] = {
        "h": ("h 256 MiB, Spark", (_contender("ours-on-spark", "our_spark"), _JVM), (256 * _MIB,)),
        "i": (
            "i purge of 10 %",
            (_contender("ours", "our_purge"), _contender("delta-spark", "delta_spark_purge", peer=True)),
            (_GIB,),
        ),
        "j": (
            "j 20 files of 50 kB",
            (_LOCAL, _contender("delta-spark", "delta_spark_warm", peer=True)),
            (_GIB,),
        ),
        "k": ("k 10,000 bins", (_contender("plan", "plan_only"), _contender("load", "load", peer=True)), ()),
        "l": ("l 256 MiB, four times as large", (_LOCAL,), (256 * _MIB,)),
    }
    name, who, arguments = contenders[letter]
    return Case(name, who, (table, *arguments), same_facts=False)


def _table(letter: str, root: Path, files: int) -> Path:
    if letter == "a":
        return optimize_tables.narrow(root / "narrow-400", 400)
    if letter == "m":
        return optimize_tables.events(root / "events-300", 300)
    if letter in "bdf":
        table = optimize_tables.mixed(root / "mixed-300", 300)
        return optimize_contenders.spark_written(table, root / "spark-300", 300) if letter == "d" else table
    if letter == "e":
        return optimize_tables.mixed(root / "large-12", 12, 250_000)
    if letter == "g":
        table = optimize_tables.mixed(root / "medium-100", 100, _ROWS_OF_20_MB)
        return optimize_tables.with_deletion_vectors(table, root / "medium-100-deleted", every=20)
    if letter == "j":
        return optimize_tables.mixed(root / "small-20", 20, 160)
    if letter == "k":
        return optimize_tables.partitioned(root / "partitioned-1m", 1_000_000, 10_000)
    table = optimize_tables.mixed(root / f"mixed-{files}", files)
    if letter == "i":
        return optimize_tables.with_deletion_vectors(table, root / f"deleted-{files}")
    return optimize_tables.multiplied(table, root / f"mixed-4x{files}", 4) if letter == "l" else table


def _compare_rows(measured: Case) -> None:
    """
    :raises SystemExit: a contender left other rows than its table had.
    """
    table = Path(measured.arguments[0])
    for contender in measured.contenders:
        copy = optimize_contenders.copy_for(str(table), contender.name)
        if copy.exists() and contender.name not in _FLOORS.values():
            source = Path(contender.function) if measured.name[0] in _COMMANDS else table
            before, after = optimize_tables.checksum(source), optimize_tables.checksum(copy)
            if before != after:
                raise SystemExit(f"{measured.name}: {contender.name} left {after}, not {before}")
            print(f"{measured.name}: {contender.name} left {after['rows']:,} rows, the same as before")
    shutil.rmtree(table.parent / optimize_contenders.COPIES, ignore_errors=True)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="OPTIMIZE and REORG PURGE, side by side")
    parser.add_argument("directory", nargs="?", type=Path, help="where the tables are")
    parser.add_argument("cases", nargs="*", help="by their letters; none: all")
    parser.add_argument("--files", type=int, default=_FILES, help="of the large table")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--floor", action="store_true", help="also the least work of a to f")
    given = parser.parse_args(arguments)
    root = given.directory or Path(tempfile.gettempdir()) / "airflow-provider-delta-bench"
    root.mkdir(parents=True, exist_ok=True)
    for letter in given.cases or "abcdefghijklm":
        if letter in _COMMANDS:
            measured = command_case(letter, root, given.files, given.floor)
            side_by_side.run_cases(
                [measured], given.rounds, measure_command, "whole processes, imports included"
            )
        else:
            measured = case(letter, root, given.files)
            for row in side_by_side.run_cases([measured], given.rounds):
                facts = ", ".join(f"{name} {value}" for name, value in row["facts"].items())
                print(f"  {row['contender']}: {facts}")
        _compare_rows(measured)


if __name__ == "__main__":
    main()
