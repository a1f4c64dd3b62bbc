"""A night over many small tables: one run of a fleet against a loop of delta-rs and one Spark application for each table.

``./dev bench fleet_night DIR [--tables N] [--rounds N] [--spark N]`` prints seconds of whole processes, processor seconds and peak memory. The
tables lie below DIR, which is removed at the end. Every contender gets a fresh copy of the same tables: twelve files of 100 kB each, in
snappy, as delta-rs writes them. What a fleet does besides OPTIMIZE (survey, decision, leases, account) is part of its time.

Of the Spark applications, each of which runs OPTIMIZE on one table, ``--spark`` are measured, one after the other, and their time is scaled
to all tables. Airflow's own part of a task is not counted.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
from deltalake import write_deltalake
from side_by_side import HERE, run_program

_FILES, _ROWS = 12, 3_000
_TARGET_BYTES = 1 << 30


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("directory", type=Path)
    parser.add_argument("--tables", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--spark", type=int, default=10, help="applications to measure; 0: none")
    options = parser.parse_args(arguments)
    root = options.directory / "fleet_night"
    try:
        _compare(root, options.tables, options.rounds, options.spark)
    finally:
        shutil.rmtree(root, ignore_errors=True)


def _compare(root: Path, num_tables: int, rounds: int, num_spark: int) -> None:
    pristine = root / "pristine"
    _write_table(pristine / "0")
    for number in range(1, num_tables):
        shutil.copytree(pristine / "0", pristine / str(number))
    runs: dict[str, list[dict[str, float]]] = {"fleet": [], "delta-rs loop": []}
    for _ in range(rounds):
        lake = _fresh(pristine, root / "lake")
        runs["fleet"].append(_ours(root, lake))
        lake = _fresh(pristine, root / "lake")
        runs["delta-rs loop"].append(
            run_program([sys.executable, str(HERE / "fleet_night_delta_rs.py"), str(lake)])
        )
    medians = {
        name: {key: statistics.median(run[key] for run in found) for key in ("wall", "cpu", "peak_mb")}
        for name, found in runs.items()
    }
    if num_spark:
        medians[f"Spark, {num_spark} scaled"] = _spark(_fresh(pristine, root / "lake"), num_spark, num_tables)
    print(f"{num_tables} tables of {_FILES} files, medians of {rounds} runs in turn, whole processes")
    print(f"{'contender':<20} {'wall s':>8} {'cpu s':>8} {'peak MB':>8} {'ratio':>7}")
    for name, found in medians.items():
        ratio = found["wall"] / medians["fleet"]["wall"]
        print(f"{name:<20} {found['wall']:>8.1f} {found['cpu']:>8.1f} {found['peak_mb']:>8.0f} {ratio:>7.2f}")


def _write_table(table: Path) -> None:
    values = np.random.default_rng(1)
    for number in range(_FILES):
        rows = pa.table(
            {
                "id": np.arange(number * _ROWS, (number + 1) * _ROWS),
                "measure": values.random(_ROWS),
                "word": [f"word {n}" for n in values.integers(0, 500, _ROWS)],
            }
        )
        write_deltalake(str(table), rows, mode="append")


def _fresh(pristine: Path, lake: Path) -> Path:
    shutil.rmtree(lake, ignore_errors=True)
    shutil.copytree(pristine, lake)
    return lake


def _ours(root: Path, lake: Path) -> dict[str, float]:
    shutil.rmtree(root / "state", ignore_errors=True)
    policy = root / "fleet.json"
    document = {
        "tables": {"include": [f"{lake}/**"]},
        "healthy": {"small_files": 2},
        "trust": {"new_table": "auto"},
        "disruption": {"quiet": "0m"},
        "jitter": "0m",
    }
    policy.write_text(json.dumps(document))
    command = [
        "-m",
        "delta_maintenance",
        "fleet",
        "run",
        str(policy),
        "--state",
        str(root / "state"),
        "--json",
    ]
    return run_program([sys.executable, *command, "--parallelism", "2"])


def _spark(lake: Path, number: int, num_tables: int) -> dict[str, float]:
    program = str(HERE / "delta_spark_statement.py")
    runs = [
        run_program(
            [sys.executable, program, str(_TARGET_BYTES), f"OPTIMIZE delta.`{lake / str(n)}`"], tree=True
        )
        for n in range(number)
    ]
    mean = {key: statistics.mean(run[key] for run in runs) for key in ("wall", "cpu")}
    return {
        "wall": mean["wall"] * num_tables,
        "cpu": mean["cpu"] * num_tables,
        "peak_mb": max(run["peak_mb"] for run in runs),
    }


if __name__ == "__main__":
    main(sys.argv[1:])
