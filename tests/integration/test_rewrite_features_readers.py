"""What delta-spark keeps beside the values of rows outlives our rewrites: row ids, identities, physical names, wider types,
default values; and it renames columns of files that we wrote.
"""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.kept_by_rewrites import check_rewritten, facts_of
from tests.maintenance_runs import run

from delta_log import Table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

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
    tmp_path: Path, delta_spark_session: SparkSession
) -> None:
    session, table = delta_spark_session, tmp_path / "table"
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
