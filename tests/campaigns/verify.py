"""The campaign of verified rewrites: no table of any writer is refused by ``verify="full"``, and every filter finds the same rows.

``./dev campaign verify [--tables N] [--seed N] [--first N] [--directory DIR]`` writes random tables by pyarrow, delta-rs, DuckDB, Polars
and Delta Lake on Spark, mixed within a table, rewrites each by OPTIMIZE, Z-order or PURGE with ``verify="full"``, and compares all rows,
and the answers of DuckDB, Arrow and Polars to filters on the new files. A failure names its table, whose files are kept.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support.environment.delta_spark import SharedDeltaSpark, delta_spark_jars
from tests.support.runs.verified_rewrites import Recipe, Tally, check
from tests.support.tables.tables_of_writers import WRITERS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_BATCH = 200


def _written_by_spark(session: SparkSession, recipe: Recipe, directory: Path) -> dict[int, Path]:
    """Write the files of a table that Spark is to write, each as a Delta table of its own."""
    found = {}
    for number, (writer, rows) in enumerate(recipe.files):
        if writer == "Spark":
            path = directory / f"spark-{recipe.number}-{number}"
            kind = ("INT96", "TIMESTAMP_MICROS")[(recipe.number + number) % 2]
            session.conf.set("spark.sql.parquet.outputTimestampType", kind)
            session.createDataFrame(rows).coalesce(1).write.format("delta").save(str(path))
            (found[number],) = path.glob("*.parquet")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tables", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="number of the first table")
    parser.add_argument("--directory", type=Path, help="for the tables; by default a temporary one")
    options = parser.parse_args()
    directory = options.directory or Path(tempfile.mkdtemp(prefix="verified-"))
    shared, tally, started = SharedDeltaSpark(directory), Tally(), time.monotonic()
    session = shared.open_session(delta_spark_jars())
    try:
        for first in range(options.first, options.first + options.tables, _BATCH):
            with tempfile.TemporaryDirectory(dir=directory) as scratch:
                for number in range(first, min(first + _BATCH, options.first + options.tables)):
                    recipe = Recipe.of(options.seed, number, WRITERS)
                    check(recipe, directory, _written_by_spark(session, recipe, Path(scratch)), tally)
            seconds = time.monotonic() - started
            print(f"{tally.tables:,} tables in {seconds:,.0f} s, {len(tally.failures)} failures", flush=True)
    finally:
        shared.stop()
    print(*tally.lines(), *tally.failures, sep="\n")
    return 1 if tally.failures else 0


if __name__ == "__main__":
    sys.exit(main())
