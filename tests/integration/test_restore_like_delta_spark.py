"""RESTORE by ours and by delta-spark of the same table: rows, metrics, protocol and high-water marks are the same afterwards."""

from __future__ import annotations

import json
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

_STATEMENTS = (
    "INSERT INTO {t} (day, amount) VALUES ('a', 1), ('a', 2), ('b', 3), (NULL, 4)",
    "DELETE FROM {t} WHERE amount = 3",
    "UPDATE {t} SET amount = amount + 10 WHERE day = 'a'",
    "OPTIMIZE {t}",
    "INSERT INTO {t} (day, amount) VALUES ('c', 5)",
    "ALTER TABLE {t} SET TBLPROPERTIES ('a.property' = 'of the owner')",
    "ALTER TABLE {t} ADD COLUMN more STRING",
    "DELETE FROM {t} WHERE amount > 10",
)
_CASES: dict[str, tuple[str, str]] = {
    "plain": ("day STRING, amount INT", "'delta.enableDeletionVectors' = 'false'"),
    "vectors": ("day STRING, amount INT", "'delta.enableDeletionVectors' = 'true'"),
    "row tracking": ("day STRING, amount INT", "'delta.enableRowTracking' = 'true'"),
    "identity": (
        "id BIGINT GENERATED ALWAYS AS IDENTITY, day STRING, amount INT",
        "'delta.enableDeletionVectors' = 'true'",
    ),
    "column mapping": ("day STRING, amount INT", "'delta.columnMapping.mode' = 'name'"),
    "in-commit timestamps": ("day STRING, amount INT", "'delta.enableInCommitTimestamps' = 'true'"),
}


def _state(table: Path) -> dict[str, Any]:
    snapshot = Table(str(table)).snapshot()
    columns = [
        "path",
        "partition_values",
        "size",
        "deletion_vector",
        "base_row_id",
        "default_row_commit_version",
    ]
    return {
        "version": snapshot.version,
        "files": sorted(snapshot.files(columns).to_pylist(), key=str),
        "schema": json.loads(snapshot.metadata.schemaString),
        "properties": snapshot.properties,
        "protocol": snapshot.protocol,
        "domains": snapshot.domain_metadata,
    }


@pytest.mark.parametrize("name", _CASES)
def test_a_restored_table_is_as_delta_spark_restores_it(
    name: str, tmp_path: Path, delta_spark_session: SparkSession
) -> None:
    columns, properties = _CASES[name]
    written = tmp_path / "written"
    delta_spark_session.sql(
        f"CREATE TABLE delta.`{written}` ({columns}) USING delta PARTITIONED BY (day) TBLPROPERTIES ({properties})"
    )
    for statement in _STATEMENTS:
        delta_spark_session.sql(statement.replace("{t}", f"delta.`{written}`"))
    for version in range(Table(str(written)).snapshot().version):
        ours, theirs = tmp_path / f"ours-{version}", tmp_path / f"theirs-{version}"
        for copy in (ours, theirs):
            shutil.copytree(written, copy)
        delta_spark_session.sql(f"RESTORE TABLE delta.`{theirs}` TO VERSION AS OF {version}")
        spec = JobSpec("restore", str(ours), "restoring", {"to_version": version})
        report = run_job(spec, JobSite(), SilentProgress())
        assert report.error is None, report.error
        assert _state(ours) == _state(theirs), version
        (commit,) = Table(str(theirs)).history(1)
        assert report.metrics == commit["operationMetrics"], version
        rows = [
            sorted(map(str, delta_spark_session.read.format("delta").load(str(copy)).collect()))
            for copy in (ours, theirs)
        ]
        assert rows[0] == rows[1]
        # What is written next goes on from the same marks.
        delta_spark_session.sql(f"INSERT INTO delta.`{ours}` (day, amount) VALUES ('z', 9)")
        for copy in (ours, theirs):
            shutil.rmtree(copy)
