"""DROP FEATURE by ours and by delta-spark of the same table: protocol, properties, schema and rows are the same afterwards, for
delta-spark and for delta-rs."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

from delta_log import Table
from delta_maintenance.contract import JobSpec
from delta_maintenance.job import JobSite, run_job
from delta_maintenance.progress import SilentProgress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow

_APPEND = "INSERT INTO {t} SELECT /*+ COALESCE(1) */ id, string(id) FROM range(20)"
_CASES: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "deletionVectors": (
        "id BIGINT, s STRING",
        "'delta.enableDeletionVectors' = 'true'",
        (_APPEND, "DELETE FROM {t} WHERE id % 7 = 0", _APPEND),
    ),
    "v2Checkpoint": (
        "id BIGINT, s STRING",
        "'delta.checkpointPolicy' = 'v2', 'delta.checkpointInterval' = '2'",
        (_APPEND, _APPEND, _APPEND),
    ),
    "rowTracking": (
        "id BIGINT, s STRING",
        "'delta.enableRowTracking' = 'true'",
        (_APPEND, _APPEND, "OPTIMIZE {t}", "UPDATE {t} SET s = 'x' WHERE id = 3"),
    ),
    "typeWidening": (
        "id INT, s STRING",
        "'delta.enableTypeWidening' = 'true'",
        (_APPEND, "ALTER TABLE {t} CHANGE COLUMN id TYPE BIGINT", _APPEND),
    ),
    "vacuumProtocolCheck": (
        "id BIGINT, s STRING",
        "'delta.feature.vacuumProtocolCheck' = 'supported'",
        (_APPEND,),
    ),
    "columnMapping": (
        "id BIGINT, s STRING",
        "'delta.enableDeletionVectors' = 'false'",
        (
            _APPEND,
            "ALTER TABLE {t} ADD COLUMN more STRING",
            "INSERT INTO {t} SELECT id, 'y', 'z' FROM range(5)",
            "ALTER TABLE {t} SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')",
            "ALTER TABLE {t} DROP COLUMN more",
        ),
    ),
}


def _state(table: Path) -> dict[str, Any]:
    snapshot = Table(str(table)).snapshot()
    properties = dict(snapshot.properties)
    until = properties.pop("delta.requireCheckpointProtectionBeforeVersion", None)
    return {
        "versions": (snapshot.protocol.minReaderVersion, snapshot.protocol.minWriterVersion),
        # delta-spark lists features in the order of its hashes.
        "reader features": sorted(snapshot.protocol.readerFeatures or ()),
        "writer features": sorted(snapshot.protocol.writerFeatures or ()),
        "properties": properties,
        "protected": until is None or int(until) == snapshot.version,
        "has_protection": until is not None,
        "schema": json.loads(snapshot.metadata.schemaString),
        "domains": snapshot.domain_metadata,
        "vectors": snapshot.num_deletion_vectors,
        "row ids": snapshot.files(["base_row_id"])["base_row_id"].drop_null().to_pylist(),
    }


def _rows(session: SparkSession, table: Path) -> list[str]:
    return sorted(map(str, session.read.format("delta").load(str(table)).collect()))


@pytest.mark.parametrize("feature", _CASES)
def test_a_feature_goes_as_delta_spark_drops_it(
    feature: str, tmp_path: Path, delta_spark_session: SparkSession
) -> None:
    session, (columns, properties, statements) = delta_spark_session, _CASES[feature]
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    session.sql(f"CREATE TABLE delta.`{ours}` ({columns}) USING delta TBLPROPERTIES ({properties})")
    for statement in statements:
        session.sql(statement.replace("{t}", f"delta.`{ours}`"))
    rows = _rows(session, ours)
    shutil.copytree(ours, theirs)
    session.sql(f"ALTER TABLE delta.`{theirs}` DROP FEATURE {feature}")
    spec = JobSpec("drop-feature", str(ours), "dropping", {"feature": feature}, engine="local")
    report = run_job(spec, JobSite(), SilentProgress())
    assert report.error is None, report.error
    assert _state(ours) == _state(theirs)
    assert _rows(session, ours) == rows
    read = DeltaTable(str(ours)).to_pyarrow_table()
    assert read.num_rows == len(rows)
    # Every version from before is still there, and delta-spark goes on.
    for version in range(Table(str(ours)).snapshot().version):
        session.read.format("delta").option("versionAsOf", version).load(str(ours)).count()
    session.sql(f"INSERT INTO delta.`{ours}` VALUES (99, 'new')")
    assert len(_rows(session, ours)) == len(rows) + 1
