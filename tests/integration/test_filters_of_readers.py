"""Spark, delta-rs, DuckDB and Polars return the same rows for a filter from our files as from those that delta-spark wrote.

First each engine evaluates a predicate without skipping rows: as a column of a query over the table as delta-spark wrote it.
Then, after OPTIMIZE and after PURGE, it evaluates the predicate as a filter, which it may push down to bounds, page indexes,
dictionaries and the statistics in the log. The rows of a partition become one file. Each partition holds another combination
of values, so that for every filter there are files of which it needs no row, and files of which it needs all.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

import deltalake
import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support.checks.parquet_edits import footer_bytes
from tests.support.checks.parquet_structs import split_footer
from tests.support.runs.maintenance_runs import keys, run
from tests.support.tables.edge_values import (
    COLUMNS,
    MEMBERS,
    datafusion_literal,
    duckdb_literal,
    predicates,
    spark_literal,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

Answers = dict[str, frozenset[int]]
#: By predicate, the rows that are missing and those that are too many.
Wrong = dict[str, tuple[list[int], list[int]]]
_NAMED = [(column.name, column) for column in COLUMNS]
_SPARK = predicates([*_NAMED, *((f"st.{m.name}", m) for m in MEMBERS)], spark_literal, "<=>", few=True)
_ALL_VALUES = [*_NAMED, *((f"st['{m.name}']", m) for m in MEMBERS)]
_DATAFUSION = predicates(_ALL_VALUES, datafusion_literal, "IS NOT DISTINCT FROM")
_DUCKDB = predicates(_ALL_VALUES, duckdb_literal, "IS NOT DISTINCT FROM")


def _few(texts: Mapping[str, str]) -> dict[str, str]:
    """Returns the predicates on one column of doubles, and whether each column is null."""
    return {
        name: text
        for name, text in texts.items()
        if name.startswith(("d =", "d >", "d in", "d not in '", "d same")) or name.endswith("null")
    }


_FEW = _few(_SPARK)
#: Columns of predicates in one query, and filters in one job.
_TOGETHER = 60


def _rows() -> tuple[list[str], list[str]]:
    """Returns the rows of both files of each partition, as SQL. Each row occurs three times, so that a dictionary pays."""
    columns = (*COLUMNS, *MEMBERS)
    width = max(len(column.in_rows) for column in columns)
    files: tuple[list[str], list[str]] = ([], [])

    def put(file: int, partition: int, numbers: Iterable[int | None]) -> None:
        for number in numbers:
            values = [
                None if number is None else column.in_rows[number % len(column.in_rows)] for column in columns
            ]
            texts = ", ".join(map(spark_literal, columns, values))
            for _ in range(3):
                files[file].append(f"({len(files[0]) + len(files[1])}, {partition}, {texts})")

    for number in range(width):
        put(0, number, [number])
        # The last value of each column is no edge case.
        put(1, number, [-1, None] if number % 2 else [-1])
    put(0, width, [None])
    put(1, width, [None])
    put(0, width + 1, range(0, width, 2))
    put(1, width + 1, range(1, width, 2))
    return files


def _make_table(session: SparkSession, table: Path) -> None:
    columns = ", ".join(f"{column.name} {column.type}" for column in COLUMNS)
    members = ", ".join(f"{member.name}: {member.type}" for member in MEMBERS)
    session.sql(
        f"CREATE TABLE delta.`{table}` (id INT, p INT, {columns}, st STRUCT<{members}>) USING delta "
        "PARTITIONED BY (p) TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')"
    )
    names = ", ".join(["id", "p", *(column.name for column in (*COLUMNS, *MEMBERS))])
    struct = ", ".join(f"'{member.name}', {member.name}" for member in MEMBERS)
    chosen = ", ".join(["id", "p", *(column.name for column in COLUMNS), f"named_struct({struct}) AS st"])
    for rows in _rows():
        frame = session.sql(f"SELECT {chosen} FROM VALUES {', '.join(rows)} AS v ({names})")
        frame.repartition(1).write.format("delta").mode("append").save(str(table))


def _write_nullable(session: SparkSession, table: Path, target: Path) -> None:
    """Writes a table whose files are copied: Spark writes a column as required if no value of a query can be null, and
    partition columns into the files of a partitioned table.

    Each file holds the rows of a few partitions. The rows of version 1 are there twice, which no answer shows.
    """
    for version in (1, 2):
        frame = session.read.format("delta").option("versionAsOf", version).load(str(table))
        frame = frame.repartitionByRange(8, "p").drop("p")
        frame.write.format("delta").mode("append").save(str(target))


def _pieces(texts: Mapping[str, str]) -> Iterable[list[tuple[str, str]]]:
    items = list(texts.items())
    return (items[start : start + _TOGETHER] for start in range(0, len(items), _TOGETHER))


def _by_column(texts: Mapping[str, str], rows_of: Callable[[list[str]], Sequence[Any]]) -> Answers:
    """Finds the rows that fulfil each predicate with queries that select predicates as columns.

    :param rows_of: returns the rows for a list of column expressions.
    """
    found: Answers = {}
    for piece in _pieces(texts):
        columns = [f"({text}) AS q{number}" for number, (_, text) in enumerate(piece)]
        rows = rows_of(["id", *columns])
        for number, (name, _) in enumerate(piece, start=1):
            found[name] = frozenset(row[0] for row in rows if row[number])
    return found


def _spark_filters(session: SparkSession, table: Path, texts: Mapping[str, str]) -> Answers:
    """Filters the files themselves: planning a scan of the Delta log takes many times as long."""
    schema = session.read.format("delta").load(str(table)).drop("p").schema
    files = session.read.schema(schema).parquet(*(str(table / key) for key in keys(table)))
    found: dict[str, set[int]] = {name: set() for name in texts}
    for piece in _pieces(texts):
        frames = [
            files.where(text).selectExpr(f"{number} AS q", "id") for number, (_, text) in enumerate(piece)
        ]
        for number, row in reduce(lambda one, other: one.unionAll(other), frames).collect():
            found[piece[number][0]].add(row)
    return {name: frozenset(rows) for name, rows in found.items()}


def _delta_rs(table: Path) -> deltalake.QueryBuilder:
    return deltalake.QueryBuilder().register("t", deltalake.DeltaTable(str(table)))


def _asked(query: deltalake.QueryBuilder, text: str) -> list[tuple[object, ...]]:
    found = pa.table(query.execute(text).read_all())
    return list(zip(*(column.to_pylist() for column in found.columns), strict=True))


def _delta_rs_filters(table: Path, texts: Mapping[str, str]) -> Answers:
    query = _delta_rs(table)
    found = {}
    for name, text in texts.items():
        column = pa.table(query.execute(f"SELECT id FROM t WHERE {text}").read_all()).column("id")
        found[name] = frozenset(column.to_pylist())
    return found


class _DuckDB:
    def __init__(self, table: Path) -> None:
        self._connection = duckdb.connect()
        self._connection.execute("SET TimeZone = 'UTC'")
        self._files = [str(table / key) for key in keys(table)]

    def rows(self, columns: list[str], where: str = "true") -> list[tuple[object, ...]]:
        text = f"SELECT {', '.join(columns)} FROM read_parquet(?, hive_partitioning = false) WHERE {where}"
        return self._connection.execute(text, [self._files]).fetchall()

    def filters(self, texts: Mapping[str, str]) -> Answers:
        return {
            name: frozenset(int(str(row[0])) for row in self.rows(["id"], text))
            for name, text in texts.items()
        }


def _polars_differences(table: Path) -> Wrong:
    """Compares the rows that Polars finds while it reads files with those that it finds among all rows in memory."""
    files = [table / key for key in keys(table)]
    scan = pl.scan_parquet(files, hive_partitioning=False)
    rows = scan.collect()
    found, expected = {}, {}
    for name, kind in rows.schema.items():
        if kind.is_nested() or name == "id":
            continue
        column = pl.col(name)
        predicates = {f"{name} is null": column.is_null()}
        values = rows[name].drop_nulls().unique()
        # Python has no date after the year 9999.
        for value in values.to_physical() if kind.is_temporal() else values:
            literal = pl.lit(value).cast(kind) if kind.is_temporal() else pl.lit(value, kind)
            predicates[f"{name} = {value}"] = column == literal
            predicates[f"{name} > {value}"] = column > literal
        for text, predicate in predicates.items():
            found[text] = frozenset(scan.filter(predicate).select("id").collect()["id"])
            expected[text] = frozenset(rows.filter(predicate)["id"])
    assert len(found) > len(COLUMNS)
    return _differences(found, expected)


def _worse(found: Wrong, before: Wrong) -> Wrong:
    """Returns the wrong answers that were not wrong before, or not by these rows."""
    return {
        name: rows
        for name, rows in found.items()
        if not all(set(now) <= set(then) for now, then in zip(rows, before.get(name, ([], [])), strict=True))
    }


def _differences(found: Answers, expected: Answers) -> Wrong:
    """Returns, for each predicate with a wrong answer, the rows that are missing and those that are too many."""
    return {
        name: (sorted(expected[name] - rows), sorted(rows - expected[name]))
        for name, rows in found.items()
        if rows != expected[name]
    }


@dataclass(frozen=True)
class _Expected:
    """The rows that fulfil each predicate, as each engine says without skipping any."""

    session: SparkSession
    by_spark: Answers
    by_delta_rs: Answers
    by_duckdb: Answers

    @classmethod
    def of(cls, session: SparkSession, table: Path) -> _Expected:
        rows = session.read.format("delta").load(str(table)).localCheckpoint()
        query = _delta_rs(table)
        return cls(
            session,
            _by_column(_SPARK, lambda columns: rows.selectExpr(*columns).collect()),
            _by_column(_DATAFUSION, lambda columns: _asked(query, f"SELECT {', '.join(columns)} FROM t")),
            _by_column(_DUCKDB, _DuckDB(table).rows),
        )

    def differences(
        self,
        table: Path,
        spark: Mapping[str, str],
        delta_rs: Mapping[str, str],
        duckdb: Mapping[str, str],
        gone: frozenset[int] = frozenset(),
    ) -> dict[str, Wrong]:
        def left(answers: Answers) -> Answers:
            return {name: found - gone for name, found in answers.items()}

        found = {
            "Spark": _differences(_spark_filters(self.session, table, spark), left(self.by_spark)),
            "delta-rs": _differences(_delta_rs_filters(table, delta_rs), left(self.by_delta_rs)),
            "DuckDB": _differences(_DuckDB(table).filters(duckdb), left(self.by_duckdb)),
        }
        return {engine: wrong for engine, wrong in found.items() if wrong}

    def check_other_ways_of_spark(self, table: Path) -> None:
        """Ask Spark without the column index, and without reading columns as vectors."""
        for setting in ("parquet.filter.columnindex.enabled", "spark.sql.parquet.enableVectorizedReader"):
            self.session.conf.set(setting, "false")
            assert _differences(_spark_filters(self.session, table, _FEW), self.by_spark) == {}, setting
            self.session.conf.unset(setting)

    def check_no_worse(self, table: Path, before_it: Path) -> None:
        """Ask all readers. Some misread what Spark's own files say of nulls and NaN, and read it in the same way from a copy.

        :param before_it: the table as Spark wrote it.
        """
        assert _polars_differences(table) == {}
        found = self.differences(table, _FEW, _DATAFUSION, _DUCKDB)
        spark, delta_rs, duckdb = (
            {name: texts[name] for name in found.get(engine, ())}
            for engine, texts in (("Spark", _FEW), ("delta-rs", _DATAFUSION), ("DuckDB", _DUCKDB))
        )
        misread = self.differences(before_it, spark, delta_rs, duckdb)
        assert {engine: _worse(wrong, misread.get(engine, {})) for engine, wrong in found.items()} == {
            engine: {} for engine in found
        }
        self.check_other_ways_of_spark(table)


def _chunks_of(table: Path) -> list[pq.ColumnChunkMetaData]:
    """Returns the first row group's chunks of the only file."""
    group = pq.ParquetFile(table / keys(table)[0]).metadata.row_group(0)
    return [group.column(number) for number in range(group.num_columns)]


def _check_copied(expected: _Expected, sources: Path, table: Path) -> None:
    _write_nullable(expected.session, sources, table)
    before_it = shutil.copytree(table, table.with_name("before copied"))
    plan = run(table, rewrite="copy", dry_run=True).plan
    assert plan is not None
    assert plan["numBytesToDecode"] == {}
    report = run(table, rewrite="copy", verify="full")
    assert (report.status, len(keys(table))) == ("committed", 1)
    assert report.metrics["numCopiedBytes"] == plan["numBytesToCopyEstimate"]
    expected.check_no_worse(table, before_it)


@pytest.mark.slow
def test_filters_return_the_same_rows_from_our_files(
    tmp_path: Path, delta_spark_session: SparkSession
) -> None:
    session, table = delta_spark_session, tmp_path / "table"
    # INT96 has no bounds, and delta-rs reads it as nanoseconds, which end in 2262.
    session.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
    # Compiling a query takes longer than interpreting it over a hundred rows, and so does a second task.
    session.conf.set("spark.sql.files.minPartitionNum", "1")
    session.conf.set("spark.sql.codegen.wholeStage", "false")
    session.conf.set("spark.sql.codegen.factoryMode", "NO_CODEGEN")
    _make_table(session, table)
    num_sources = len(keys(table))
    for key in keys(table):
        content = (table / key).read_bytes()
        before, footer = split_footer(content)
        assert before + footer_bytes(footer) == content, (
            "what Spark writes, our Thrift writer writes likewise"
        )
    expected = _Expected.of(session, table)
    name = "d > '1.5'"
    by_spark = expected.by_spark[name]
    assert by_spark == expected.by_duckdb[name] == expected.by_delta_rs[name] != frozenset()
    _check_copied(expected, table, tmp_path / "copied")

    assert run(table, verify="full").status == "committed"
    assert len(keys(table)) * 2 == num_sources
    assert _polars_differences(table) == {}
    assert expected.differences(table, _SPARK, _DATAFUSION, _DUCKDB) == {}
    expected.check_other_ways_of_spark(table)

    rows = session.read.format("delta").load(str(table)).select("id").collect()
    gone = frozenset(row.id for row in rows if row.id % 4 == 1)
    session.sql(f"DELETE FROM delta.`{table}` WHERE id % 4 = 1")
    assert run(table, "purge", run_id="purge", verify="full").status == "committed"
    assert expected.differences(table, _FEW, _few(_DATAFUSION), _few(_DUCKDB), gone) == {}


@pytest.mark.slow
def test_spark_finds_rows_with_a_nan_by_its_own_tables_filters(
    tmp_path: Path, delta_spark_session: SparkSession
) -> None:
    """Asks through the log, as users do; DELETE must delete what its filter finds."""
    session, table = delta_spark_session, tmp_path / "table"
    session.sql(f"CREATE TABLE delta.`{table}` (id INT, d DOUBLE, st STRUCT<x: DOUBLE>) USING delta")
    for number, value in ((1, "NaN"), (2, "1.5")):
        text = f"CAST('{value}' AS DOUBLE)"
        session.sql(f"INSERT INTO delta.`{table}` SELECT {number}, {text}, named_struct('x', {text})")
    assert run(table).status == "committed"
    assert len(keys(table)) == 1

    def ids(where: str) -> list[int]:
        found = session.sql(f"SELECT id FROM delta.`{table}` WHERE {where} ORDER BY id").collect()
        return [row.id for row in found]

    filters = ("d > 2", "d <> 1.5", "d = 'NaN'", "d NOT IN (1.5)", "st.x > 2")
    assert {where: ids(where) for where in filters} == {where: [1] for where in filters}
    session.sql(f"DELETE FROM delta.`{table}` WHERE d > 2")
    assert ids("true") == [2]


def _unique_rows(first: int) -> pa.Table:
    """Rows of which each value stands in its column once, but for nulls."""
    numbers = range(first, first + 1_500)
    return pa.table(
        {
            "id": pa.array(numbers, pa.int32()),
            "number": [None if n % 7 == 0 else n << 32 for n in numbers],
            "x": [n / 8 for n in numbers],
            "text": [None if n % 100 > 60 else f"text {n:0>6}" for n in numbers],
            "point": [None if n % 5 == 0 else {"a": None if n % 3 == 0 else n} for n in numbers],
        }
    )


def _check_all_readers(
    session: SparkSession, table: Path, wanted: Mapping[str, list[dict[str, Any]]]
) -> None:
    """Ask all readers for the rows of a table with one file.

    :param wanted: by condition, the rows in the order of their ids.
    """
    path = table / keys(table)[0]
    assert all(wanted.values())
    connection, query = duckdb.connect(), _delta_rs(table)
    for where, expected in wanted.items():
        by_duckdb = connection.sql(f"SELECT * FROM '{path}' WHERE {where} ORDER BY id")
        assert by_duckdb.to_arrow_table().to_pylist() == expected
        text = f"SELECT * FROM t WHERE {where} ORDER BY id"
        assert pa.table(query.execute(text).read_all()).to_pylist() == expected
        assert pl.scan_parquet(path).filter(pl.sql_expr(where)).sort("id").collect().to_dicts() == expected
        for setting in (
            None,
            "parquet.filter.columnindex.enabled",
            "spark.sql.parquet.enableVectorizedReader",
        ):
            if setting is not None:
                session.conf.set(setting, "false")
            found = session.read.format("delta").load(str(table)).where(where).orderBy("id").collect()
            assert [row.asDict(recursive=True) for row in found] == expected, (setting, where)
            if setting is not None:
                session.conf.unset(setting)


def test_all_readers_read_columns_of_which_each_value_stands_once(
    tmp_path: Path, delta_spark_session: SparkSession
) -> None:
    session, table = delta_spark_session, tmp_path / "table"
    rows = pa.concat_tables([_unique_rows(first) for first in (0, 2_000, 4_000)])
    for start in range(0, rows.num_rows, 1_500):
        deltalake.write_deltalake(str(table), rows.slice(start, 1_500), mode="append")
    report = run(table, verify="full")
    assert (report.status, len(keys(table))) == ("committed", 1)
    assert report.metrics["numCopiedBytes"] == 0

    by_id = rows.to_pylist()
    wanted = {
        "true": by_id,
        "id = 2077": [row for row in by_id if row["id"] == 2077],
        "number is null": [row for row in by_id if row["number"] is None],
        "x > 680.5": [row for row in by_id if row["x"] > 680.5],
        "text = 'text 004010'": [row for row in by_id if row["text"] == "text 004010"],
    }
    _check_all_readers(session, table, wanted)


def _incompressible_rows(first: int) -> pa.Table:
    random = np.random.default_rng(first)
    numbers = range(first, first + 2_000)
    return pa.table(
        {
            "id": pa.array(numbers, pa.int32()),
            "number": [None if n % 7 == 0 else int(random.integers(-(2**62), 2**62)) for n in numbers],
            "x": random.random(2_000),
            "key": [random.bytes(60) for _ in numbers],
            "text": [f"text {n:0>6}" for n in numbers],
            "point": [None if n % 5 == 0 else {"a": random.random(), "b": n} for n in numbers],
        }
    )


def test_all_readers_read_a_file_with_compressed_and_uncompressed_columns(
    tmp_path: Path, delta_spark_session: SparkSession
) -> None:
    session, table = delta_spark_session, tmp_path / "table"
    rows = pa.concat_tables([_incompressible_rows(first) for first in (0, 2_000, 4_000)])
    for start in range(0, rows.num_rows, 2_000):
        deltalake.write_deltalake(str(table), rows.slice(start, 2_000), mode="append")
    report = run(table, rewrite="encode", verify="full")
    assert (report.status, len(keys(table))) == ("committed", 1)
    chunks = _chunks_of(table)
    codecs = {chunk.path_in_schema: chunk.compression for chunk in chunks}
    plain = {"number", "x", "key", "point.a"}
    assert codecs == {path: "UNCOMPRESSED" if path in plain else "ZSTD" for path in codecs}

    by_id = rows.to_pylist()
    highest = max(row["number"] for row in by_id if row["number"] is not None)
    wanted = {
        "true": by_id,
        "id = 2077": [row for row in by_id if row["id"] == 2077],
        "number is null": [row for row in by_id if row["number"] is None],
        f"number = {highest}": [row for row in by_id if row["number"] == highest],
        "x > 0.99": [row for row in by_id if row["x"] > 0.99],
        "text = 'text 004010'": [row for row in by_id if row["text"] == "text 004010"],
    }
    _check_all_readers(session, table, wanted)
