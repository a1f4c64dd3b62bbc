"""EXPIRE by ours and DELETE by delta-spark of the same table: rows, row ids, metrics and the change feed are the same afterwards."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from delta_log import Table
from delta_maintenance.contract import JobSpec
from delta_maintenance.job import JobSite, run_job
from delta_maintenance.progress import SilentProgress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow

_CUTOFF = "2025-03-01T00:00:00Z"
_CASES: dict[str, tuple[str, str, str]] = {
    "plain": ("at", "'delta.enableDeletionVectors' = 'false'", ""),
    "partitions": ("day", "'delta.enableDeletionVectors' = 'false'", "PARTITIONED BY (day)"),
    "vectors": ("at", "'delta.enableDeletionVectors' = 'true'", ""),
    "feed": ("at", "'delta.enableDeletionVectors' = 'true', 'delta.enableChangeDataFeed' = 'true'", ""),
    "row tracking": ("at", "'delta.enableRowTracking' = 'true', 'delta.enableDeletionVectors' = 'false'", ""),
    "column mapping": ("at", "'delta.columnMapping.mode' = 'name'", "PARTITIONED BY (day)"),
}
#: Metrics in which both must agree; delta-spark's others are times and sizes of files that it wrote itself.
_COMPARED = (
    "numDeletedRows",
    "numRemovedFiles",
    "numAddedFiles",
    "numCopiedRows",
    "numDeletionVectorsAdded",
    "numDeletionVectorsRemoved",
    "numDeletionVectorsUpdated",
)


def _rows(session: SparkSession, table: Path, name: str) -> list[str]:
    columns = "*, _metadata.row_id" if name == "row tracking" else "*"
    return sorted(map(str, session.sql(f"SELECT {columns} FROM delta.`{table}`").collect()))


def _changes(session: SparkSession, table: Path, version: int) -> list[str]:
    reader = session.read.format("delta").option("readChangeFeed", "true")
    found = reader.option("startingVersion", version).load(str(table)).drop("_commit_timestamp")
    return sorted(map(str, found.collect()))


@pytest.mark.parametrize("name", _CASES)
def test_old_rows_go_as_delta_spark_deletes_them(
    name: str, tmp_path: Path, compiling_delta_spark_session: SparkSession
) -> None:
    session, (column, properties, partitioned) = compiling_delta_spark_session, _CASES[name]
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    session.sql(
        f"CREATE TABLE delta.`{ours}` (id BIGINT, at TIMESTAMP, day DATE) USING delta {partitioned} TBLPROPERTIES ({properties})"
    )
    for first, days in ((0, "id"), (100, "id + 40"), (200, "id * 20"), (300, "id + 80")):
        at = f"timestamp'2025-01-01 00:00:00.123456' + make_interval(0, 0, 0, int({days} - {first}))"
        session.sql(
            f"INSERT INTO delta.`{ours}` SELECT /*+ COALESCE(1) */ id, IF(id % 10 = 9, NULL, {at}), to_date({at}) "
            f"FROM range({first}, {first + 20})"
        )
    session.sql(f"DELETE FROM delta.`{ours}` WHERE id IN (3, 205, 303)")
    shutil.copytree(ours, theirs)
    literal = "date'2025-03-01'" if column == "day" else "timestamp'2025-03-01 00:00:00'"
    session.sql(f"DELETE FROM delta.`{theirs}` WHERE {column} < {literal}")
    spec = JobSpec("expire", str(ours), "expiring", {"column": column, "before": _CUTOFF})
    report = run_job(spec, JobSite(), SilentProgress())
    assert report.error is None, report.error
    assert _rows(session, ours, name) == _rows(session, theirs, name)
    (commit,) = Table(str(theirs)).history(1)
    metrics: dict[str, Any] = commit["operationMetrics"]
    assert {m: report.metrics[m] for m in _COMPARED} == {m: metrics[m] for m in _COMPARED}
    if name == "feed":
        version = report.version or 0
        assert _changes(session, ours, version) == _changes(session, theirs, version)
    # What is written next is read beside it.
    session.sql(f"INSERT INTO delta.`{ours}` VALUES (999, NULL, NULL)")
    assert len(_rows(session, ours, name)) == len(_rows(session, theirs, name)) + 1
