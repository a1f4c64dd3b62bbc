"""Rows that deletion vectors delete stay deleted, and no others go, for delta-rs and delta-spark on S3: they are trusted as oracles.

delta-rs to 1.6.3 fails here (delta-io/delta-rs#4692): DataFusion divides a file of 10 MiB or more between threads, and they took a vector
for the rows in the order of their arrival. So the file has more bytes than that.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import deltalake
import numpy as np
import pyarrow as pa
import pytest
from tests.support.environment.delta_spark import start_delta_spark, stop_spark
from tests.support.mixed_writers.parts import s3_jars
from tests.support.runs.maintenance_runs import enable_deletion_vectors, keys, mark_deleted
from tests.support.servers.s3 import S3Server

from delta_log import Table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = 700_000
#: Every other row in one place, and all rows in another.
DELETED = np.concatenate([np.arange(50_000, 150_000, 2), np.arange(560_000, 580_000)])
LIVE = np.setdiff1d(np.arange(ROWS), DELETED)


@pytest.fixture(scope="module")
def on_disk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    table = tmp_path_factory.mktemp("vectors") / "t"
    random = np.random.default_rng(1)
    rows = pa.table({"id": np.arange(ROWS), "x": random.random(ROWS), "y": random.random(ROWS)})
    deltalake.write_deltalake(str(table), rows, target_file_size=1 << 30)
    (key,) = keys(table)
    assert (table / key).stat().st_size > 10 << 20
    enable_deletion_vectors(table)
    mark_deleted(table, {key: DELETED.tolist()})
    return table


@pytest.fixture
def uri(on_disk: Path, s3_server: S3Server, s3_bucket: str) -> str:
    s3_server.put_tree(on_disk, f"{s3_bucket}/t")
    return f"s3://{s3_bucket}/t"


def by_delta_rs(uri: str, options: dict[str, str] | None, sql: str) -> Any:
    table = deltalake.DeltaTable(uri, storage_options=options)
    found = pa.table(deltalake.QueryBuilder().register("t", table).execute(sql).read_all())
    return found.column("id").to_numpy()


def by_us(uri: str, server: S3Server) -> Any:
    return Table(uri, server.storage_options).snapshot().to_arrow(columns=["id"]).column("id").to_numpy()


QUERIES = {
    "SELECT id FROM t": LIVE,
    "SELECT id FROM t WHERE x >= 0 AND id >= 570000": LIVE[LIVE >= 570_000],
    "SELECT id FROM t WHERE id BETWEEN 60000 AND 565000": LIVE[(LIVE >= 60_000) & (LIVE <= 565_000)],
}


@pytest.mark.parametrize("sql", QUERIES)
@pytest.mark.parametrize("place", ["disk", "s3"])
def test_delta_rs_reads_live_rows(place: str, sql: str, on_disk: Path, uri: str, s3_server: S3Server) -> None:
    address, options = (str(on_disk), None) if place == "disk" else (uri, s3_server.delta_rs_options)
    assert np.array_equal(np.sort(by_delta_rs(address, options, sql)), QUERIES[sql])


def test_delta_rs_takes_no_deleted_row_for_a_limit(uri: str, s3_server: S3Server) -> None:
    found = by_delta_rs(uri, s3_server.delta_rs_options, "SELECT id FROM t LIMIT 300000")
    assert len(np.intersect1d(found, LIVE)) == 300_000


@pytest.mark.parametrize("statement", ["delete", "update", "z_order"])
def test_delta_rs_rewrites_live_rows(statement: str, uri: str, s3_server: S3Server) -> None:
    table = deltalake.DeltaTable(uri, storage_options=s3_server.delta_rs_options)
    left = LIVE
    if statement == "delete":
        table.delete("id = 5")
        left = LIVE[LIVE != 5]
    elif statement == "update":
        table.update(predicate="id = 5", updates={"x": "0.5"})
    else:
        table.optimize.z_order(["x"])
    assert np.array_equal(np.sort(by_us(uri, s3_server)), left)


@pytest.fixture
def spark_on_s3(
    no_other_spark: None, delta_spark_jars: tuple[Path, ...], s3_server: S3Server, tmp_path: Path
) -> Iterator[SparkSession]:
    jars = (*delta_spark_jars, *map(Path, s3_jars()))
    session = start_delta_spark(jars, tmp_path)
    for name, value in s3_server.spark_conf.items():
        session.conf.set(name.removeprefix("spark.hadoop."), value)
    yield session
    stop_spark(session)


@pytest.mark.slow
@pytest.mark.spark
def test_delta_spark_reads_live_rows(uri: str, s3_server: S3Server, spark_on_s3: SparkSession) -> None:
    frame = spark_on_s3.read.format("delta").load(uri.replace("s3://", "s3a://"))
    found = frame.select("id").toArrow().column("id").to_numpy()
    assert np.array_equal(np.sort(found), LIVE)
    assert np.array_equal(np.sort(by_us(uri, s3_server)), LIVE)
