"""delta-spark deletes and updates rows while a bin of ours is rewritten; what then is committed, every reader reads."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import deltalake
import pyarrow as pa
import pytest
from tests.support.runs.maintenance_runs import WatchedEngine, run

from delta_log import Table
from delta_maintenance.engine.engine import BinResult
from delta_maintenance.engine.spark.spark_engine import SparkEngine
from delta_maintenance.progress import ProgressReporter
from delta_maintenance.rewrite.manifest.manifest_file import RunKey
from delta_maintenance.rewrite.task import RewriteTask

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.spark]


class OnSpark(WatchedEngine):
    """The same with the Spark engine."""

    def __init__(self, session: SparkSession, after: Callable[[int], object]) -> None:
        super().__init__(after)
        self._session, self._then = session, after

    def run(
        self, tasks: Sequence[RewriteTask], progress: ProgressReporter, run_key: RunKey
    ) -> Generator[BinResult, None, None]:
        yield from SparkEngine(lambda: self._session).run(tasks, progress, run_key)
        self._then(len(tasks))


@pytest.mark.parametrize(
    ("options", "row_tracking"),
    [
        ({"rewrite": "auto"}, True),
        ({"rewrite": "copy"}, False),
        ({"layout": "hilbert", "by": ["name", "id"], "target_size_bytes": 600}, True),
    ],
    ids=["decoded", "copied", "laid out by Spark"],
)
def test_deletions_by_delta_spark_are_taken_over_for_every_reader(
    *, options: dict[str, Any], row_tracking: bool, tmp_path: Path, delta_spark_session: SparkSession
) -> None:
    session, table = delta_spark_session, tmp_path / "table"
    properties = "'delta.enableDeletionVectors' = 'true', 'delta.enableChangeDataFeed' = 'true'"
    if row_tracking:
        properties += ", 'delta.feature.rowTracking' = 'supported'"
    session.sql(
        f"CREATE TABLE delta.`{table}` (id BIGINT, name STRING) USING delta TBLPROPERTIES ({properties})"
    )
    for first in range(0, 40, 10):
        session.range(first, first + 10, numPartitions=1).selectExpr("id", "'n' || id AS name").write.format(
            "delta"
        ).mode("append").save(str(table))
    session.sql(f"DELETE FROM delta.`{table}` WHERE id = 3")

    def others(_: int) -> None:
        session.sql(f"DELETE FROM delta.`{table}` WHERE id IN (5, 12, 39)")
        session.sql(f"UPDATE delta.`{table}` SET name = 'new' WHERE id = 20")
        session.sql(f"INSERT INTO delta.`{table}` VALUES (100, 'late')")

    engine = OnSpark(session, others) if "layout" in options else WatchedEngine(others)
    report = run(table, engine=engine, remap=True, **options)
    assert (report.status, report.dropped_bins, report.remapped_bins) == ("committed", 0, 1)
    assert (report.metrics["numCopiedBytes"] > 0) == (options.get("rewrite") == "copy")
    assert (report.metrics["numAddedFiles"] > 1) == ("layout" in options)
    gone = {3, 5, 12, 39}
    expected = sorted(
        [(n, "new" if n == 20 else f"n{n}") for n in range(40) if n not in gone] + [(100, "late")]
    )

    def by_spark(version: int | None = None) -> list[tuple[int, str]]:
        reader = session.read.format("delta")
        if version is not None:
            reader = reader.option("versionAsOf", version)
        return sorted((row[0], row[1]) for row in reader.load(str(table)).collect())

    ours = Table(str(table)).snapshot().to_arrow()
    assert sorted(zip(*(ours.column(name).to_pylist() for name in ("id", "name")), strict=True)) == expected
    assert report.version is not None
    assert by_spark() == by_spark(report.version - 1) == expected
    if not row_tracking:
        query = deltalake.QueryBuilder().register("t", deltalake.DeltaTable(str(table)))
        theirs = pa.table(query.execute("SELECT id, name FROM t").read_all())
        assert sorted(zip(*(theirs.column(n).to_pylist() for n in ("id", "name")), strict=True)) == expected

    changes = session.sql(f"SELECT * FROM table_changes_by_path('{table}', 0)").collect()
    told = sorted((row["_change_type"], row["id"]) for row in changes if row["_commit_version"] > 4)
    deleted = [("delete", n) for n in sorted(gone)]
    assert told == [*deleted, ("insert", 100), ("update_postimage", 20), ("update_preimage", 20)]

    # Another deletion, in the new file; then everything is purged.
    session.sql(f"DELETE FROM delta.`{table}` WHERE id = 30")
    expected.remove((30, "n30"))
    assert by_spark() == expected
    assert run(table, "purge", run_id="next").status == "committed"
    assert by_spark() == expected
    assert Table(str(table)).snapshot().num_deletion_vectors == 0
