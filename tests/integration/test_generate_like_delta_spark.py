"""GENERATE by ours and by delta-spark of the same table: the manifests are the same, but for the order of their lines."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from delta_maintenance.contract import JobSpec
from delta_maintenance.generate.plan import DIRECTORY
from delta_maintenance.job import JobSite, run_job
from delta_maintenance.progress import SilentProgress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow

_CASES = {
    "none": ("", "id"),
    "texts": (
        "PARTITIONED BY (p, q)",
        "array('a b', 'c=d/\u00e9%', 'x:y\"z', NULL)[id] AS p, id % 2 AS q, id",
    ),
    "times": (
        "PARTITIONED BY (day, at)",
        "date'2024-01-01' + CAST(id AS INT) AS day, timestamp_seconds(1704103200.5 + 3600 * id) AS at, id",
    ),
}


def _manifests(table: Path) -> dict[str, list[str]]:
    return {
        path.relative_to(table).as_posix(): sorted(path.read_text().splitlines())
        for path in (table / DIRECTORY).rglob("manifest")
    }


@pytest.mark.parametrize("name", _CASES)
def test_the_manifests_are_those_of_delta_spark(
    name: str, tmp_path: Path, delta_spark_session: SparkSession
) -> None:
    partitioned, columns = _CASES[name]
    table = tmp_path / "t"
    delta_spark_session.sql(
        f"CREATE TABLE delta.`{table}` USING delta {partitioned} AS SELECT {columns} FROM range(4)"
    )
    delta_spark_session.sql(f"GENERATE symlink_format_manifest FOR TABLE delta.`{table}`")
    theirs = _manifests(table)
    spec = JobSpec("generate", str(table), "generating", {})
    run_job(spec, JobSite(), SilentProgress())
    assert _manifests(table) == theirs
    # Theirs change after a delete, and ours replace them, with the checksums that Hadoop has put beside them.
    delta_spark_session.sql(f"DELETE FROM delta.`{table}` WHERE id = 3")
    assert run_job(spec, JobSite(), SilentProgress()).status == "written"
    ours = _manifests(table)
    assert ours != theirs
    delta_spark_session.sql(f"GENERATE symlink_format_manifest FOR TABLE delta.`{table}`")
    assert _manifests(table) == ours
