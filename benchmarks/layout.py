"""OPTIMIZE with a layout: ours against delta-rs and Delta Lake on Spark. ``./dev bench layout``.

a. 1,000 files of 1.1 MB, 32 columns of mixed types, Z-order by two columns into files of 256 MiB: our local engine and delta-rs.
b. The same for four times as many files: only our time and memory.
c. a. on Spark: our engine in an embedded session, and Delta Lake's OPTIMIZE ZORDER BY.
d. The same table with CLUSTER BY these columns: our local engine, our engine on Spark, and Delta Lake's OPTIMIZE.

Each is a whole command, from the start of the program to its end, with Spark's session; contenders of a case take turns. Memory is
counted for all processes of a command together. All write Snappy, and rows are compared afterwards. What is aimed at is printed with each
case. How many files the layouts skip: ``./dev bench layout_skipping``; what nightly runs rewrite: ``./dev bench write_amplification``.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import optimize_contenders
import optimize_tables
import side_by_side
from side_by_side import Case, Contender

_TARGET_BYTES = 256 << 20
_COLUMNS = ["id", "account"]
_OURS, _OURS_ON_SPARK = Contender("ours", "local"), Contender("ours-on-spark", "spark")
_DELTA_RS = Contender("delta-rs", "delta-rs", peer=True)
_DELTA_SPARK = Contender("delta-spark", "delta-spark", peer=True)
#: For each case and contender: at least so many times as fast as the peer.
_AIMS = {("a", "ours"): 1.4, ("c", "ours-on-spark"): 1.0, ("d", "ours-on-spark"): 1.0}
#: And with at most so much memory, where the work is done on one machine.
_MOST_MB = {("a", "ours"): 2048, ("b", "ours"): 2048, ("d", "ours"): 2048}
_CASES = {
    "a": ("a Z-order by two columns", (_OURS, _DELTA_RS)),
    "b": ("b four times as large", (_OURS,)),
    "c": ("c a. on Spark", (_OURS_ON_SPARK, _DELTA_SPARK)),
    "d": ("d a clustered table", (_OURS, _OURS_ON_SPARK, _DELTA_SPARK)),
}


def case(letter: str, root: Path, files: int) -> Case:
    table = optimize_tables.mixed(root / f"mixed-{files}", files)
    if letter == "b":
        table = optimize_tables.multiplied(table, root / f"mixed-4x{files}", 4)
    if letter == "d":
        table = optimize_tables.clustered(table, root / f"clustered-{files}", _COLUMNS)
    name, contenders = _CASES[letter]
    return Case(name, contenders, (str(table), letter == "d"), same_facts=False)


def measure_command(contender: Contender, arguments: Sequence[Any]) -> dict[str, Any]:
    """Run one command on a copy of the table, whose data files are shared."""
    table, is_clustered = arguments
    copy = optimize_tables.linked(Path(table), optimize_contenders.copy_for(table, contender.name))
    return side_by_side.run_program([sys.executable, *_command(contender, copy, is_clustered)], tree=True)


def _command(contender: Contender, copy: Path, is_clustered: bool) -> list[str]:
    size = str(_TARGET_BYTES)
    if contender is _DELTA_RS:
        return [str(side_by_side.HERE / "delta_rs_zorder.py"), str(copy), size, *_COLUMNS]
    if contender is _DELTA_SPARK:
        statement = f"OPTIMIZE delta.`{copy}`" + (
            "" if is_clustered else f" ZORDER BY ({', '.join(_COLUMNS)})"
        )
        return [str(side_by_side.HERE / "delta_spark_statement.py"), size, statement]
    layout = [] if is_clustered else ["--zorder-by", ",".join(_COLUMNS)]
    engine = ["--target-size", size, "--engine", contender.function]
    return ["-m", "delta_maintenance", "optimize", str(copy), *layout, *engine]


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="OPTIMIZE with a layout, side by side")
    parser.add_argument("directory", nargs="?", type=Path, help="where the tables are")
    parser.add_argument("cases", nargs="*", help="by their letters; none: all")
    parser.add_argument("--files", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args(arguments)
    root = given.directory or Path(tempfile.gettempdir()) / "airflow-provider-delta-bench"
    root.mkdir(parents=True, exist_ok=True)
    for letter in given.cases or _CASES:
        measured = case(letter, root, given.files)
        rows = side_by_side.run_cases(
            [measured], given.rounds, measure_command, "whole processes, imports included"
        )
        for row in rows:
            _print_aims(letter, row)
        _compare_rows(measured)


def _print_aims(letter: str, row: Mapping[str, Any]) -> None:
    key = letter, row["contender"]
    if key in _AIMS:
        is_met = row["ratio"] >= _AIMS[key]
        print(f"  {row['contender']}: aim of {_AIMS[key]} times as fast {'met' if is_met else 'MISSED'}")
    if key in _MOST_MB:
        is_met = row["peak_mb"] <= _MOST_MB[key]
        print(f"  {row['contender']}: aim of {_MOST_MB[key]} MB at most {'met' if is_met else 'MISSED'}")


def _compare_rows(measured: Case) -> None:
    """
    :raises SystemExit: a contender left other rows than the table had.
    """
    table = Path(measured.arguments[0])
    before = optimize_tables.checksum(table)
    for contender in measured.contenders:
        copy = optimize_contenders.copy_for(str(table), contender.name)
        after = optimize_tables.checksum(copy)
        if before != after:
            raise SystemExit(f"{measured.name}: {contender.name} left {after}, not {before}")
        files = len(list((copy / "_delta_log").glob("*.json")))
        assert files > len(list((table / "_delta_log").glob("*.json"))), f"{contender.name} committed nothing"
        print(f"{measured.name}: {contender.name} left {after['rows']:,} rows, the same as before")
    shutil.rmtree(table.parent / optimize_contenders.COPIES, ignore_errors=True)


if __name__ == "__main__":
    main()
