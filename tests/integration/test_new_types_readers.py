"""delta-spark reads what we rewrite of shredded variants and materialized partition columns, which it wrote before. It refuses intervals
and nanoseconds.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from tests.support.runs.maintenance_runs import run
from tests.support.tables.written_log import add, write_log

from delta_log import Table
from delta_maintenance.cli.main import main

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.spark]

#: What each statement shreds.
_SHREDDINGS = ("a bigint, b string", "b bigint, d struct<e decimal(10,2)>", "c array<string>", "")
_SHREDDING = "spark.sql.variant.forceShreddingSchemaForTest"
_DOCUMENT = (
    'parse_json(concat(\'{"a":\', id, \',"b":"x\', id, \'","c":[1,2.5,null,"z"],"d":{"e":\', id, \'.25}}\'))'
)


def rows_of(session: SparkSession, table: Path, *columns: str) -> list[tuple[object, ...]]:
    frame = session.read.format("delta").load(str(table)).selectExpr(*columns)
    return sorted(tuple(row) for row in frame.collect())


def files_of(table: Path) -> list[Path]:
    keys: list[str] = Table(str(table)).snapshot().files(["key"])["key"].to_pylist()
    return [table / key for key in keys]


def through_every_operation(session: SparkSession, table: Path, *columns: str) -> None:
    """Rewrites and log upkeep after a DELETE with deletion vectors; delta-spark reads the same rows after each."""
    session.sql(f"DELETE FROM delta.`{table}` WHERE id % 7 = 3")
    before = rows_of(session, table, *columns)
    assert before
    assert run(table, "purge", run_id="purge", verify="full").status == "committed"
    assert rows_of(session, table, *columns) == before
    report = run(table, run_id="optimize", verify="full", full=True, zorder_by=("id",))
    assert report.status == "committed"
    assert rows_of(session, table, *columns) == before
    for command in ("checkpoint", "vacuum", "cleanup-log", "health"):
        assert main([command, str(table), "--json"]) == 0
        assert rows_of(session, table, *columns) == before
    session.sql(f"UPDATE delta.`{table}` SET id = -id WHERE id = 4")
    assert len(rows_of(session, table, *columns)) == len(before)


def test_shredded_variants(tmp_path: Path, compiling_delta_spark_session: SparkSession) -> None:
    session, table = compiling_delta_spark_session, tmp_path / "table"
    session.sql(
        f"CREATE TABLE delta.`{table}` (id BIGINT, v VARIANT, s STRUCT<w: VARIANT>) USING delta TBLPROPERTIES "
        "('delta.enableVariantShredding' = 'true', 'delta.enableDeletionVectors' = 'true')"
    )
    session.conf.set("spark.sql.variant.writeShredding.enabled", "true")
    session.conf.set("spark.sql.variant.allowReadingShredded", "true")
    for number, shredding in enumerate(_SHREDDINGS):
        session.conf.set(_SHREDDING, shredding)
        session.sql(
            f"INSERT INTO delta.`{table}` SELECT id, if(id % 5 = 0, NULL, {_DOCUMENT}), "
            f"if(id % 4 = 0, NULL, named_struct('w', {_DOCUMENT})) FROM range({number * 50}, {number * 50 + 50})"
        )
    session.conf.unset(_SHREDDING)
    shapes = {str(pq.ParquetFile(path).schema_arrow.field("v").type) for path in files_of(table)}
    assert len(shapes) == len(_SHREDDINGS)
    values = ("id", "to_json(v)", "schema_of_variant(v)", "to_json(s.w)", "variant_get(v, '$.d.e', 'string')")
    through_every_operation(session, table, *values)


def test_materialized_partition_columns(tmp_path: Path, delta_spark_session: SparkSession) -> None:
    session, table = delta_spark_session, tmp_path / "table"
    session.sql(
        f"CREATE TABLE delta.`{table}` (id BIGINT, place STRING, day DATE) USING delta PARTITIONED BY (place, day) TBLPROPERTIES "
        "('delta.feature.materializePartitionColumns' = 'supported', 'delta.enableDeletionVectors' = 'true', "
        "'delta.columnMapping.mode' = 'name')"
    )
    for first in (0, 20):
        session.sql(
            f"INSERT INTO delta.`{table}` SELECT id, if(id % 2 = 0, 'a b', NULL), DATE'2024-01-02' "
            f"FROM range({first}, {first + 20})"
        )
    spark_made = {path: pq.read_schema(path) for path in files_of(table)}
    through_every_operation(session, table, "id", "place", "day")
    for path in set(files_of(table)) - set(spark_made):
        ours, theirs = pq.read_schema(path), next(iter(spark_made.values()))
        assert {field.name: field.type for field in ours} == {field.name: field.type for field in theirs}


def test_intervals_are_refused_by_name(tmp_path: Path, delta_spark_session: SparkSession) -> None:
    with pytest.raises(PySparkException, match="DELTA_UNSUPPORTED_DATA_TYPES.*YearMonthIntervalType"):
        delta_spark_session.sql(
            f"CREATE TABLE delta.`{tmp_path / 'table'}` (id BIGINT, months INTERVAL YEAR TO MONTH) USING delta"
        )


def test_nanoseconds_are_refused_by_name(tmp_path: Path, delta_spark_session: SparkSession) -> None:
    pq.write_table(pa.table({"at": pa.array([1], pa.timestamp("ns", "UTC"))}), tmp_path / "a.parquet")
    size = (tmp_path / "a.parquet").stat().st_size
    columns, features = {"at": "timestamp_nanos"}, ["timestampNanos"]
    write_log(tmp_path, [add("a.parquet", size)], columns=columns, features=features)
    with pytest.raises(Py4JJavaError, match=r"DELTA_UNSUPPORTED_FEATURES_FOR_READ.*timestampNanos"):
        delta_spark_session.read.format("delta").load(str(tmp_path)).collect()
