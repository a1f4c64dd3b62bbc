"""What delta-spark keeps beside the values of rows outlives our rewrites: row ids, identities, physical names, wider types,
default values; and it renames columns of files that we wrote. What it made to have a feature and uses no longer, and what
it made a shallow clone, is rewritten, too.
"""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest
from tests.support.checks.kept_by_rewrites import check_rewritten, facts_of
from tests.support.runs.maintenance_runs import run

from delta_log import Table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.spark]

_PROPERTIES = {
    "delta.enableRowTracking": "true",
    "delta.enableDeletionVectors": "true",
    "delta.enableTypeWidening": "true",
    "delta.columnMapping.mode": "name",
    "delta.feature.allowColumnDefaults": "supported",
}
_TRACKED = "*, _metadata.row_id AS row_id, _metadata.row_commit_version AS row_version"


def tracked_rows(session: SparkSession, table: Path) -> list[tuple[object, ...]]:
    frame = session.read.format("delta").load(str(table)).selectExpr(*_TRACKED.split(", "))
    return sorted(tuple(row) for row in frame.collect())


def test_delta_spark_finds_ids_types_and_identities_as_they_were(
    tmp_path: Path, compiling_delta_spark_session: SparkSession
) -> None:
    """Spark generates code here, and takes columns in batches from its Parquet reader, also those with deletion vectors and row
    ids. The sessions of other tests interpret queries."""
    session, table = compiling_delta_spark_session, tmp_path / "table"
    properties = ", ".join(f"'{name}' = '{value}'" for name, value in _PROPERTIES.items())
    session.sql(
        f"CREATE TABLE delta.`{table}` (n BIGINT, day DATE, wide INT, k BIGINT GENERATED ALWAYS AS IDENTITY, "
        f"twice BIGINT GENERATED ALWAYS AS (n * 2), state STRING DEFAULT 'new') USING delta TBLPROPERTIES ({properties})"
    )

    def insert(first: int, columns: str = "n, day, wide") -> None:
        values = ", ".join(f"({n}, DATE'1500-01-0{n % 9 + 1}', {-n})" for n in range(first, first + 10))
        session.sql(f"INSERT INTO delta.`{table}` ({columns}) VALUES {values}")

    for first in (0, 10, 20):
        insert(first)
    # Updated rows get files of their own, with their ids in columns.
    session.sql(f"UPDATE delta.`{table}` SET day = DATE'2024-05-05' WHERE n IN (3, 14)")
    session.sql(f"DELETE FROM delta.`{table}` WHERE n = 7")
    session.sql(f"ALTER TABLE delta.`{table}` ALTER COLUMN wide TYPE BIGINT")
    insert(30)
    session.sql(f"UPDATE delta.`{table}` SET state = NULL WHERE n = 5")
    before, facts = tracked_rows(session, table), facts_of(table)
    assert len(before) == 39

    report = run(table, full=True, verify="full")
    assert report.status == "committed", report
    assert tracked_rows(session, table) == before
    assert [row[0] for row in before if row[5] != "new"] == [5]
    assert check_rewritten(table, facts) == 1
    ours = Table(str(table)).snapshot()
    assert (ours.num_files, ours.num_deletion_vectors) == (1, 0)

    # Spark goes on from there: no id, and no identity, is given twice.
    insert(40)
    session.sql(f"DELETE FROM delta.`{table}` WHERE n = 41")
    rows = tracked_rows(session, table)
    assert len(rows) == 48
    assert set(before) <= set(rows)
    assert len({row[3] for row in rows}) == len({row[6] for row in rows}) == 48
    assert {row[1] for row in rows if row[0] == 40} == {date(1500, 1, 5)}
    facts = facts_of(table)
    assert run(table, "purge", run_id="purge").status == "committed"
    assert tracked_rows(session, table) == rows
    assert check_rewritten(table, facts) == 1

    # What was a column's name when we wrote the files is not any more, and the rows are the same.
    session.sql(f"ALTER TABLE delta.`{table}` RENAME COLUMN day TO `that day`")
    assert tracked_rows(session, table) == rows
    insert(50, "n, `that day`, wide")
    rows, facts = tracked_rows(session, table), facts_of(table)
    assert len(rows) == 58
    assert run(table, run_id="renamed", full=True, verify="full").status == "committed"
    assert tracked_rows(session, table) == rows
    assert check_rewritten(table, facts) == 1
    assert Table(str(table)).snapshot().schema.names[1] == "that day"
    session.sql(f"OPTIMIZE delta.`{table}`").collect()
    assert tracked_rows(session, table) == rows


def rows_of(session: SparkSession, table: Path) -> list[tuple[object, ...]]:
    return sorted(tuple(row) for row in session.read.format("delta").load(str(table)).collect())


def test_delta_spark_reads_what_was_a_clustered_table_and_clusters_it_again(
    tmp_path: Path, delta_spark_session: SparkSession
) -> None:
    session, table = delta_spark_session, tmp_path / "table"
    session.sql(
        f"CREATE TABLE delta.`{table}` (n BIGINT, s STRING) USING delta CLUSTER BY (n) "
        "TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')"
    )
    for first in (0, 10):
        session.sql(f"INSERT INTO delta.`{table}` SELECT id, 'a' FROM range({first}, {first + 10})")
    session.sql(f"OPTIMIZE delta.`{table}`").collect()
    session.sql(f"INSERT INTO delta.`{table}` SELECT id, 'b' FROM range(20, 30)")
    session.sql(f"ALTER TABLE delta.`{table}` CLUSTER BY NONE")
    session.sql(f"DELETE FROM delta.`{table}` WHERE n IN (3, 25)")
    before = rows_of(session, table)
    assert len(before) == 28

    assert run(table, "purge").status == "committed"
    assert run(table, run_id="optimize", verify="full").status == "committed"
    ours = Table(str(table)).snapshot()
    (file,) = ours.files(["clustering_provider", "deletion_vector"]).to_pylist()
    assert file == {"clustering_provider": None, "deletion_vector": None}
    assert "clustering" in (ours.protocol.writerFeatures or ())
    assert rows_of(session, table) == before
    # And delta-spark takes it from there, either way.
    session.sql(f"INSERT INTO delta.`{table}` SELECT id, 'c' FROM range(30, 40)")
    session.sql(f"ALTER TABLE delta.`{table}` CLUSTER BY (s)")
    session.sql(f"OPTIMIZE delta.`{table}` FULL").collect()
    assert len(rows_of(session, table)) == 38
    assert run(table, run_id="again").status == "nothing_to_do"


def test_delta_spark_reads_a_table_whose_variant_column_is_gone(
    tmp_path: Path, delta_spark_session: SparkSession
) -> None:
    session, table = delta_spark_session, tmp_path / "table"
    session.sql(
        f"CREATE TABLE delta.`{table}` (n BIGINT, v VARIANT) USING delta "
        "TBLPROPERTIES ('delta.columnMapping.mode' = 'name')"
    )
    for first in (0, 10, 20):
        values = ", ".join(f"({n}, parse_json('{{\"a\": {n}}}'))" for n in range(first, first + 10))
        session.sql(f"INSERT INTO delta.`{table}` VALUES {values}")
    session.sql(f"ALTER TABLE delta.`{table}` DROP COLUMN v")
    before = rows_of(session, table)
    assert before == [(n,) for n in range(30)]
    assert run(table, "purge", verify="full").status == "committed"
    assert run(table, "purge", run_id="again").status == "nothing_to_do"
    assert run(table, run_id="optimize", full=True).status in ("committed", "nothing_to_do")
    assert rows_of(session, table) == before
    assert "variantType" in (Table(str(table)).snapshot().protocol.readerFeatures or ())
    for key in Table(str(table)).snapshot().files(["key"]).column(0).to_pylist():
        assert len(pq.read_schema(table / key)) == 1


def test_delta_spark_reads_a_shallow_clone_whose_own_files_were_compacted(
    tmp_path: Path, delta_spark_session: SparkSession
) -> None:
    session, source, clone = delta_spark_session, tmp_path / "source", tmp_path / "clone"
    session.sql(f"CREATE TABLE delta.`{source}` (n BIGINT) USING delta")
    for first in (0, 10):
        session.sql(f"INSERT INTO delta.`{source}` SELECT id FROM range({first}, {first + 10})")
    session.sql(f"CREATE TABLE delta.`{clone}` SHALLOW CLONE delta.`{source}`")
    for first in (20, 30, 40):
        session.sql(f"INSERT INTO delta.`{clone}` SELECT id FROM range({first}, {first + 10})")
    files_of_source = sorted(path.name for path in source.rglob("*.parquet"))
    own = [key for key in Table(str(clone)).snapshot().files(["key"]).column(0).to_pylist() if key[0] != "/"]
    plan = run(clone, dry_run=True).plan
    assert plan is not None
    report = run(clone)
    assert report.status == "committed"
    assert report.foreign is not None
    assert report.foreign["files"] == plan["foreign"]["files"] > 0
    assert report.metrics["numRemovedFiles"] == plan["numFilesToRemove"] == len(own) > 1
    assert rows_of(session, clone) == [(n,) for n in range(50)]
    assert sorted(path.name for path in source.rglob("*.parquet")) == files_of_source
    session.sql(f"DELETE FROM delta.`{clone}` WHERE n IN (5, 25)")
    assert run(clone, "purge", run_id="purge").status in ("committed", "nothing_to_do")
    assert rows_of(session, clone) == [(n,) for n in range(50) if n not in (5, 25)]
