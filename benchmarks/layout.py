"""OPTIMIZE with a layout: ours against delta-rs and Delta Lake on Spark. ``./dev bench layout``.

a. 1,000 files of 1.1 MB, 32 columns of mixed types, Z-order by two columns into files of 256 MiB: whole commands, from the start of the
   program to its end, ours and delta-rs.
b. The same for four times as many files: only our time and memory.
c. a. on Spark: our engine in an embedded session against Delta Lake's own, both from the start of the session to its end.

All write Snappy, and rows are compared afterwards. How many files the layouts skip: ``./dev bench layout_skipping``.
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

_TARGET_BYTES = 256 << 20
_COLUMNS = ["id", "account"]
_COMMANDS = "ab"


def case(letter: str, root: Path, files: int) -> Case:
    table = optimize_tables.mixed(root / f"mixed-{files}", files)
    arguments: tuple[Any, ...] = (str(table), _TARGET_BYTES, _COLUMNS)
    if letter == "b":
        larger = str(optimize_tables.multiplied(table, root / f"mixed-4x{files}", 4))
        return Case(
            "b four times as large", (Contender("ours", larger),), (larger, *arguments[1:]), same_facts=False
        )
    if letter == "a":
        contenders = (Contender("ours", str(table)), Contender("delta-rs", str(table), peer=True))
        return Case("a Z-order by two columns", contenders, arguments, same_facts=False)
    contenders = (
        Contender("ours-on-spark", "optimize_contenders:our_zorder_on_spark"),
        Contender("delta-spark", "optimize_contenders:delta_spark_zorder", peer=True),
    )
    return Case("c a. on Spark", contenders, arguments, same_facts=False)


def measure_command(contender: Contender, _: Sequence[Any]) -> dict[str, Any]:
    """Run one command on a copy of the table. ``contender.function`` is the table."""
    copy = optimize_contenders.copy_for(contender.function, contender.name)
    optimize_tables.linked(Path(contender.function), copy)
    if contender.peer:
        command = [str(side_by_side.HERE / "delta_rs_zorder.py"), str(copy), str(_TARGET_BYTES), *_COLUMNS]
    else:
        layout = ["--zorder-by", ",".join(_COLUMNS), "--target-size", str(_TARGET_BYTES), "--engine", "local"]
        command = ["-m", "delta_maintenance", "optimize", str(copy), *layout]
    return side_by_side.run_program([sys.executable, *command])


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="OPTIMIZE with a layout, side by side")
    parser.add_argument("directory", nargs="?", type=Path, help="where the tables are")
    parser.add_argument("cases", nargs="*", help="by their letters; none: all")
    parser.add_argument("--files", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args(arguments)
    root = given.directory or Path(tempfile.gettempdir()) / "airflow-provider-delta-bench"
    root.mkdir(parents=True, exist_ok=True)
    for letter in given.cases or "abc":
        measured = case(letter, root, given.files)
        if letter in _COMMANDS:
            side_by_side.run_cases(
                [measured], given.rounds, measure_command, "whole processes, imports included"
            )
        else:
            side_by_side.run_cases([measured], given.rounds)
        _compare_rows(measured)


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
        print(f"{measured.name}: {contender.name} left {after['rows']:,} rows, the same as before")
    shutil.rmtree(table.parent / optimize_contenders.COPIES, ignore_errors=True)


if __name__ == "__main__":
    main()
