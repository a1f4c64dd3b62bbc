"""What queries cost before a table is compacted, after its row groups were copied, and after all was encoded.

    ./dev bench rewritten_scans
    ./dev bench rewritten_scans --spark

The tables have 1,200,000 rows of 34 leaves, about 300 MB, in files of one row group with as many rows as the first column says.
``copied`` is one file by ``--rewrite copy``, ``encoded`` one by ``--rewrite encode``. With ``--spark``, Delta Lake on Spark has
written the sources, whose columns have no dictionary where it would not pay.
DuckDB and Spark read the data files themselves, all columns or two of them, and take turns. The filter is true for 1 % of the
rows, which are in one place. Times are medians in seconds, in sessions that have run every query once.

2026-11-23, 2 cores, DuckDB 2.0, Spark 4.2: row groups of 4,000 rows that were copied cost DuckDB three times, and Spark twice as
much as encoded ones where two columns are read, and Spark a third more where all are. From 123,000 rows on, copied row groups cost
the same where two columns are read. Spark reads all columns of encoded ones faster by a fifth, whatever was there before. Where
1 % of the rows are wanted, row groups smaller than they are written here are better.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import duckdb
import optimize_contenders
import optimize_tables
import pyarrow.parquet as pq

from delta_log import Table

_ROWS = 1_200_000
#: Rows of a source's row group.
_SOURCES = (4_000, 32_000, 123_000)
_SOURCES_OF_SPARK = (1_000, 2_000, 4_000)
_FORMS = ("before", "copied", "encoded")
#: Row groups with Spark's timestamps (INT96) are never copied.
_FORMS_OF_SPARK = ("before", "encoded")
#: The values of ``--rewrite``.
_REWRITES = {"copied": "copy", "encoded": "encode"}
_QUERIES = {
    "all columns": "SELECT count(*), {everything} FROM t",
    "two columns": "SELECT avg(price), count(category) FROM t",
    "two texts": "SELECT sum(length(session)), sum(length(comment)) FROM t",
    "1 %, all columns": "SELECT count(*), {everything} FROM t WHERE sequence BETWEEN 600000 AND 611999",
}
_NESTED = ("point", "tags", "limits")


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Scans of rewritten files")
    parser.add_argument("directory", nargs="?", type=Path, help="keeps the tables for the next time")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--spark", action="store_true", help="sources that Delta Lake on Spark has written")
    given = parser.parse_args(arguments)
    sources, forms = (_SOURCES_OF_SPARK, _FORMS_OF_SPARK) if given.spark else (_SOURCES, _FORMS)
    with tempfile.TemporaryDirectory() as scratch:
        root = given.directory or Path(scratch)
        tables = {rows: _source(root, rows, by_spark=given.spark) for rows in sources}
        files = {(rows, form): _files(tables[rows], form) for rows in sources for form in forms}
        _print_row_groups(files)
        for engine, times in (("DuckDB", _duckdb_times), ("Spark", _spark_times)):
            _print_times(engine, times(files, given.rounds))


_Files = dict[tuple[int, str], list[str]]
_Times = dict[tuple[int, str, str], list[float]]


def _source(root: Path, rows: int, *, by_spark: bool) -> Path:
    number = -(-_ROWS // rows)
    table = optimize_tables.mixed(root / f"scans-{rows}", number, rows)
    return (
        optimize_contenders.spark_written(table, root / f"scans-spark-{rows}", number) if by_spark else table
    )


def _files(source: Path, form: str) -> list[str]:
    table = source
    if form != "before":
        table = source.with_name(f"{source.name}-{form}")
        if not table.exists():
            draft = optimize_tables.linked(source, table.with_suffix(".draft"))
            rewrite = _REWRITES[form]
            command = ["-m", "delta_maintenance", "optimize", str(draft), "--rewrite", rewrite]
            subprocess.run(
                [sys.executable, *command, "--target-size", "1GiB"], check=True, capture_output=True
            )
            draft.rename(table)
    return [
        str(table / key) for key in Table(str(table)).snapshot().files(columns=["key"])["key"].to_pylist()
    ]


def _print_row_groups(files: _Files) -> None:
    print(
        f"{'source rows':>11} {'form':<8} {'files':>5} {'row groups':>10} {'rows each':>10} {'MB each':>8} {'MB':>6}"
    )
    for (rows, form), paths in files.items():
        metadata = [pq.ParquetFile(path).metadata for path in paths]
        groups = [found.row_group(number) for found in metadata for number in range(found.num_row_groups)]
        sizes = [
            sum(group.column(number).total_compressed_size for number in range(group.num_columns)) / 1e6
            for group in groups
        ]
        print(
            f"{rows:>11,} {form:<8} {len(paths):>5} {len(groups):>10} {statistics.mean(group.num_rows for group in groups):>10,.0f}"
            f" {statistics.mean(sizes):>8.1f} {sum(Path(path).stat().st_size for path in paths) / 1e6:>6.0f}"
        )


def _print_times(engine: str, times: _Times) -> None:
    forms = list(dict.fromkeys(form for _, form, _ in times))
    print(f"\n{engine + ', seconds':<28}" + "".join(f"{form:>10}" for form in forms))
    for rows in dict.fromkeys(rows for rows, _, _ in times):
        for query in _QUERIES:
            medians = [statistics.median(times[rows, form, query]) for form in forms]
            print(f"{rows:>9,}  {query:<17}" + "".join(f"{median:>10.3f}" for median in medians))


def _measured(files: _Files, run: Callable[[int, str, str], object], rounds: int) -> _Times:
    times: _Times = {(rows, form, query): [] for rows, form in files for query in _QUERIES}
    for round_ in range(rounds + 1):
        for case, found in times.items():
            started = time.perf_counter()
            run(*case)
            if round_:
                found.append(time.perf_counter() - started)
    return times


def _everything(names: list[str], length: str) -> str:
    """Return aggregates that need all columns.

    :param length: the engine's function for the length of a list.
    """
    flat = ", ".join(f"max({name})" for name in names if name not in _NESTED)
    return f"{flat}, max(point.x), sum({length}(tags)), sum({length}(limits))"


def _duckdb_times(files: _Files, rounds: int) -> _Times:
    connection = duckdb.connect()
    everything = _everything(pq.read_schema(next(iter(files.values()))[0]).names, "len")

    def run(rows: int, form: str, query: str) -> None:
        text = _QUERIES[query].format(everything=everything).replace("FROM t", "FROM read_parquet(?)")
        connection.execute(text, [files[rows, form]]).fetchall()

    return _measured(files, run, rounds)


def _spark_times(files: _Files, rounds: int) -> _Times:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    session = builder.config("spark.driver.memory", "4g").getOrCreate()
    try:
        for (rows, form), paths in files.items():
            session.read.parquet(*paths).createOrReplaceTempView(f"{form}_{rows}")
        first, _ = next(iter(files))
        everything = _everything(session.table(f"before_{first}").columns, "size")

        def run(rows: int, form: str, query: str) -> None:
            text = _QUERIES[query].format(everything=everything)
            session.sql(text.replace("FROM t", f"FROM {form}_{rows}")).collect()

        return _measured(files, run, rounds)
    finally:
        session.stop()


if __name__ == "__main__":
    main()
