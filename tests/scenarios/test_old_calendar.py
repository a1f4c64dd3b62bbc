"""Values of the Julian calendar are not copied into a file that says of itself that it has none."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support.runs.maintenance_runs import keys, run

from delta_log import Table
from delta_maintenance.errors import TaskFailed

SCHEMA_KEY = "org.apache.spark.sql.parquet.row.metadata"
OLD_DAY, OLD_MOMENT = dt.date(1000, 1, 1), dt.datetime(1850, 1, 1)
NEW_DAY, NEW_MOMENT = dt.date(2020, 1, 1), dt.datetime(2020, 1, 1)


def write_as_spark_2(
    directory: Path, days: list[dt.date], moments: list[dt.datetime], *, int96: bool
) -> None:
    """A table of a file for each day, as Spark wrote it before 2.4.6: with its schema in the footer, and no version."""
    for number, (day, moment) in enumerate(zip(days, moments, strict=True)):
        rows = pa.table({"day": pa.array([day]), "moment": pa.array([moment], pa.timestamp("us", tz="UTC"))})
        path = directory / f"part-{number}.snappy.parquet"
        with pq.ParquetWriter(
            path, rows.schema, store_schema=False, use_deprecated_int96_timestamps=int96
        ) as writer:
            writer.write_table(rows)
            writer.add_key_value_metadata({SCHEMA_KEY: '{"type":"struct","fields":[]}'})
        by = pq.read_metadata(path).created_by.encode()
        path.write_bytes(
            path.read_bytes().replace(by, b"parquet-mr version 1.8.2 (build)".ljust(len(by))[: len(by)])
        )
        assert pq.read_metadata(path).created_by.startswith("parquet-mr")
    deltalake.convert_to_deltalake(str(directory))


@pytest.mark.parametrize(
    ("day", "moment", "int96"),
    [(OLD_DAY, NEW_MOMENT, False), (NEW_DAY, OLD_MOMENT, False), (NEW_DAY, OLD_MOMENT, True)],
    ids=["date", "timestamp", "int96"],
)
def test_old_values_of_a_spark_that_left_no_version_are_refused_by_name(
    tmp_path: Path, day: dt.date, moment: dt.datetime, int96: bool
) -> None:
    write_as_spark_2(tmp_path, [NEW_DAY, day], [NEW_MOMENT, moment], int96=int96)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(TaskFailed, match=r"Julian calendar.*part-1\.snappy\.parquet") as caught:
        run(tmp_path)
    assert caught.value.report.kind == "refused"
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_later_values_of_it_are_compacted(tmp_path: Path) -> None:
    write_as_spark_2(tmp_path, [NEW_DAY, NEW_DAY], [NEW_MOMENT, NEW_MOMENT], int96=True)
    assert run(tmp_path).status == "committed"
    assert len(keys(tmp_path)) == 1
    assert Table(str(tmp_path)).snapshot().to_arrow(["day"]).column("day").to_pylist() == [NEW_DAY, NEW_DAY]
