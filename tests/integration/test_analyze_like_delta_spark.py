"""delta-spark skips files by the statistics that ANALYZE has computed, and finds every row."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from delta_maintenance.contract import JobSpec
from delta_maintenance.job import JobSite, run_job
from delta_maintenance.progress import SilentProgress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow

_FILTERS = (
    "id = 35",
    "text = 'row 35'",
    "amount = 3.50",
    "at = timestamp_seconds(1704067235)",
    "day = date'2024-02-05'",
    "x = 35",
    "nested.a = 35",
)


def _files_read(session: SparkSession, table: Path, condition: str) -> int:
    rows = session.sql(f"SELECT DISTINCT input_file_name() FROM delta.`{table}` WHERE {condition}").count()
    scanned = session.read.format("delta").load(str(table)).where(condition)
    assert rows == 1
    plan = scanned._jdf.queryExecution().executedPlan()
    scanned.collect()
    scans = plan.collectLeaves()
    return int(scans.apply(0).metrics().apply("numFiles").value())


@pytest.mark.parametrize("vectors", ["false", "true"])
def test_delta_spark_skips_by_the_computed_statistics(
    vectors: str, tmp_path: Path, delta_spark_session: SparkSession
) -> None:
    session, table = delta_spark_session, tmp_path / "t"
    columns = (
        "id, concat('row ', id) AS text, CAST(id / 10 AS DECIMAL(9, 2)) AS amount, timestamp_seconds(1704067200 + id) AS at, "
        "date'2024-01-01' + CAST(id AS INT) AS day, CAST(id AS DOUBLE) AS x, named_struct('a', id) AS nested"
    )
    session.conf.set("spark.databricks.delta.stats.collect", "false")
    try:
        session.sql(
            f"CREATE TABLE delta.`{table}` USING delta TBLPROPERTIES ('delta.enableDeletionVectors' = '{vectors}') AS "
            f"SELECT {columns} FROM range(0, 10, 1, 1)"
        )
        for start in (10, 20, 30):
            session.sql(
                f"INSERT INTO delta.`{table}` SELECT {columns} FROM range({start}, {start + 10}, 1, 1)"
            )
    finally:
        session.conf.set("spark.databricks.delta.stats.collect", "true")
    report = run_job(JobSpec("analyze", str(table), "analyzing", {}), JobSite(), SilentProgress())
    assert report.error is None, report.error
    assert report.metrics == {"numUpdatedFiles": 4}
    rows = session.sql(f"SELECT count(*), sum(id) FROM delta.`{table}`").collect()[0]
    assert tuple(rows) == (40, sum(range(40)))
    read = {condition: _files_read(session, table, condition) for condition in _FILTERS}
    # The texts of the first file go from "row 0" to "row 9".
    assert read == {**dict.fromkeys(_FILTERS, 1), "text = 'row 35'": 2}
