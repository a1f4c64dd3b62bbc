"""What a command costs that has little to do: whole processes, start-up included. ``./dev bench startup``.

a. The facts of a table of one commit: ``inspect``, against delta-rs that gives the schema and the files.
b. The same of a table with a checkpoint.
c. ``optimize`` that finds nothing to do, against delta-rs that compacts the same table.
d. c. as a job, as the operator starts it.

Each contender is a program of its own, from the start of Python to its end; memory is its peak. Modules are compiled before, as
they are after an installation with pip. ``pyarrow`` is a program that imports Arrow's functions and its Parquet as they are, help texts
included, and ends.

2026-11-28, 2 cores at a load of 7, medians, pyarrow 26.0.1, deltalake 1.6.6:

====================  ======  ==========  ====  ======
case                  ours s  delta-rs s  time  memory
====================  ======  ==========  ====  ======
a inspect              0.201       0.136   0.7     1.7
b inspect, checkpoint  0.198       0.061   0.3     1.8
c optimize             0.247       0.072   0.3     1.7
d a job                0.257       0.064   0.3     1.7
pyarrow                0.238
====================  ======  ==========  ====  ======

Without other work on the machine, a. takes 0.13 and c. 0.20. Importing pandas would add 0.2 to 0.4 to each.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import deltalake
import numpy as np
import pyarrow as pa
from side_by_side import Case, Contender, run_cases, run_program

from delta_maintenance.contract import JobSpec

_ROWS = 50_000
_DELTA_RS_FACTS = "import sys, deltalake as d; t = d.DeltaTable(sys.argv[1]); t.schema(); t.file_uris()"
_DELTA_RS_COMPACT = "import sys, deltalake as d; d.DeltaTable(sys.argv[1]).optimize.compact()"
_ARROW = "import pyarrow.compute, pyarrow.parquet"

#: The arguments of Python for each program; the table's path follows.
_PROGRAMS = {
    "inspect": ("-m", "delta_maintenance", "inspect"),
    "optimize": ("-m", "delta_maintenance", "optimize"),
    "job": ("-m", "delta_maintenance.entrypoint.run_job", "--spec"),
    "delta-rs facts": ("-c", _DELTA_RS_FACTS),
    "delta-rs compact": ("-c", _DELTA_RS_COMPACT),
    "pyarrow": ("-c", _ARROW),
}


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Start-up, side by side")
    parser.add_argument("--rounds", type=int, default=9)
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as root:
        short, long = str(Path(root) / "short"), str(Path(root) / "long")
        _write(short, commits=1)
        _write(long, commits=20)
        deltalake.DeltaTable(long).optimize.compact()
        deltalake.DeltaTable(long).create_checkpoint()
        facts, compact = (
            Contender("delta-rs", f"delta-rs {what}", peer=True) for what in ("facts", "compact")
        )
        cases = [
            Case("a inspect", (Contender("ours", "inspect"), facts), (short,)),
            Case("b inspect, checkpoint", (Contender("ours", "inspect"), facts), (long,)),
            Case("c optimize, nothing to do", (Contender("ours", "optimize"), compact), (long,)),
            Case("d a job, nothing to do", (Contender("ours", "job"), compact), (long,)),
            Case("  imports alone", (Contender("pyarrow", "pyarrow"),), (long,)),
        ]
        for case in cases:
            for contender in case.contenders:
                measure(contender, case.arguments)
        run_cases(cases, given.rounds, measure, "whole processes, imports included")


def _write(table: str, commits: int) -> None:
    for number in range(commits):
        ids = np.arange(_ROWS // commits) + number
        rows = pa.table({"id": ids, "price": ids / 7, "text": [f"text {n}" for n in ids]})
        deltalake.write_deltalake(table, rows, mode="append")


def measure(contender: Contender, arguments: Sequence[Any]) -> dict[str, Any]:
    """Run the program of a contender once."""
    (table,) = arguments
    argument = JobSpec("optimize", table, "benchmark").to_json() if contender.function == "job" else table
    return run_program([sys.executable, *_PROGRAMS[contender.function], argument])


if __name__ == "__main__":
    main()
