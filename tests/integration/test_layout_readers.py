"""OPTIMIZE with layouts on copies of every corpus table, on both engines, as other implementations read the result; and clustered
tables that delta-spark and this provider maintain in turn.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from tests.support.checks.kept_by_rewrites import check_rewritten, facts_of
from tests.support.environment.corpus import Corpus, Entry, corpus_cases
from tests.support.runs.corpus_rewrites import (
    NOT_BY_DELTA_SPARK,
    OnSpark,
    check_with_delta_rs,
    optimised,
    rows_by_delta_spark,
    run_on_spark,
)
from tests.support.runs.layout_columns import sortable
from tests.support.runs.maintenance_runs import run

from delta_log import Table
from delta_log.table_config.clustering import CUBE_TAG, OWN_PROVIDER
from delta_maintenance.layout.layout import KINDS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: One of each kind: these are laid out by the Spark engine as well, and read by delta-spark.
ON_SPARK = (
    "dat-column_mapping",
    "dat-deletion_vectors",
    "dat-multi_partitioned_2",
    "golden-parquet-all-types-legacy-format",
    "golden-type-widening-nested",
    "spark-partitioned-table-with-dv-large",
)


def layout_of(entry: Entry, table: Path) -> dict[str, Any]:
    """A layout of each kind in turn, by at most four of the columns that can be sorted by."""
    columns = sortable(table)
    if not columns:
        pytest.skip(f"{entry['name']} has no column to sort by")
    kind = KINDS[sum(entry["name"].encode()) % len(KINDS)]
    return {"layout": kind, "by": columns[:4], "target_size_bytes": 4096, "verify": "full"}


@pytest.mark.parametrize("entry", corpus_cases(optimised))
def test_the_local_engine_keeps_the_rows(entry: Entry, corpus: Corpus, tmp_path: Path) -> None:
    table = corpus.copy_of(entry["name"], tmp_path)
    before, options = facts_of(table), layout_of(entry, table)
    assert run(table, **options).status == "committed"
    assert corpus.digest(Table(str(table)).snapshot().to_arrow()) == entry["content_digest"]
    assert check_rewritten(table, before) > 0
    assert run(table, run_id="again", **options).status == "nothing_to_do"
    check_with_delta_rs(table, entry, corpus)


@pytest.fixture(scope="module")
def laid_out_on_spark(corpus: Corpus, tmp_path_factory: pytest.TempPathFactory) -> dict[str, OnSpark]:
    tables = {name: corpus.copy_of(name, tmp_path_factory.mktemp("spark")) for name in ON_SPARK}
    options = {table: layout_of(corpus.entry(name), table) for name, table in tables.items()}
    return dict(zip(tables, run_on_spark("optimize", list(tables.values()), options), strict=True))


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize("entry", corpus_cases(lambda entry: entry["name"] in ON_SPARK))
def test_the_spark_engine_keeps_the_rows_and_delta_spark_reads_them(
    entry: Entry,
    corpus: Corpus,
    laid_out_on_spark: dict[str, OnSpark],
    compiling_delta_spark_session: SparkSession,
) -> None:
    done = laid_out_on_spark[entry["name"]]
    assert (done.report["status"], done.report["engine"]) == ("committed", "spark")
    assert corpus.digest(Table(str(done.table)).snapshot().to_arrow()) == entry["content_digest"]
    assert check_rewritten(done.table, done.before) > 0
    check_with_delta_rs(done.table, entry, corpus)
    assert entry["name"] not in NOT_BY_DELTA_SPARK
    assert (
        corpus.digest(rows_by_delta_spark(compiling_delta_spark_session, done.table))
        == entry["content_digest"]
    )


class Clustered:
    """A table that delta-spark has made, clustered by two columns."""

    def __init__(self, session: SparkSession, path: Path) -> None:
        self.session, self.path, self.runs = session, path, 0
        self.sql(
            f"CREATE TABLE delta.`{path}` (a LONG, b STRING, c STRUCT<x: INT, y: DATE>) USING delta CLUSTER BY (a, b)"
        )

    def sql(self, statement: str) -> Any:
        return self.session.sql(statement)

    def insert(self, first: int, last: int) -> None:
        self.sql(
            f"INSERT INTO delta.`{self.path}` SELECT id * 7919 % 1000, concat('k', id % 13), "
            f"named_struct('x', cast(id AS INT), 'y', date'2026-01-01') FROM range({first}, {last})"
        )

    def ours(self, operation: str = "optimize", **options: Any) -> Any:
        self.runs += 1
        return run(self.path, operation, run_id=f"run{self.runs}", **options)

    def spark(self) -> Any:
        """The metrics of delta-spark's own OPTIMIZE."""
        return self.sql(f"OPTIMIZE delta.`{self.path}`").collect()[0]["metrics"]

    def rows(self) -> pa.Table:
        rows = self.session.read.format("delta").load(str(self.path)).selectExpr("a", "b", "c.x").toArrow()
        return rows.sort_by("x")

    def cubes(self) -> set[tuple[str | None, str | None]]:
        """Provider and cube of each file."""
        files = Table(str(self.path)).snapshot().files(["clustering_provider", "tags"]).to_pylist()
        return {(row["clustering_provider"], dict(row["tags"] or ()).get(CUBE_TAG)) for row in files}


@pytest.fixture
def clustered(delta_spark_session: SparkSession, tmp_path: Path) -> Clustered:
    return Clustered(delta_spark_session, tmp_path / "c")


@pytest.mark.slow
@pytest.mark.spark
def test_delta_spark_goes_on_from_our_cubes_and_we_from_its(clustered: Clustered) -> None:
    for start in range(0, 400, 100):
        clustered.insert(start, start + 100)
    before = clustered.rows()
    assert clustered.ours(verify="full").status == "committed"
    ((provider, ours),) = clustered.cubes()
    assert provider == "liquid"
    found = clustered.spark()
    assert (found["numFilesAdded"], found["clusteringStats"]["inputNumZCubes"]) == (0, 1)
    assert clustered.rows() == before
    # New rows make our cube due again: delta-spark takes it in, as one of its own.
    clustered.insert(400, 500)
    found = clustered.spark()
    assert found["clusteringStats"]["inputNumZCubes"] == 1
    assert found["clusteringStats"]["inputOtherFiles"]["numFiles"] > 0
    ((_, theirs),) = clustered.cubes()
    assert theirs != ours
    assert clustered.ours().status == "nothing_to_do"
    clustered.insert(500, 600)
    report = clustered.ours()
    assert report.selection["left"] == {}
    assert clustered.rows().num_rows == 600
    assert clustered.spark()["numFilesAdded"] == 0


@pytest.mark.slow
@pytest.mark.spark
def test_other_clustering_columns_leave_older_cubes_to_a_full_run(clustered: Clustered) -> None:
    clustered.insert(0, 100)
    clustered.ours()
    clustered.sql(f"ALTER TABLE delta.`{clustered.path}` CLUSTER BY (b)")
    assert clustered.ours().selection["left"].keys() == {"clustered_otherwise"}
    assert clustered.spark()["numFilesAdded"] == 0
    assert clustered.ours(full=True).status == "committed"
    assert clustered.spark()["numFilesAdded"] == 0
    clustered.sql(f"ALTER TABLE delta.`{clustered.path}` CLUSTER BY NONE")
    clustered.insert(100, 200)
    assert clustered.ours().status == "committed"
    assert clustered.cubes() == {(None, None)}
    assert clustered.rows().num_rows == 200


@pytest.mark.slow
@pytest.mark.spark
def test_delta_spark_takes_a_cube_for_open_that_a_smaller_seal_has_closed(clustered: Clustered) -> None:
    for start in (0, 100):
        clustered.insert(start, start + 100)
        assert clustered.ours(seal_size_bytes=1).status == "committed"
    assert clustered.ours(seal_size_bytes=1).selection["left"].keys() == {"sealed"}
    assert len(clustered.cubes()) > 1
    before = clustered.rows()
    assert clustered.spark()["clusteringStats"]["inputNumZCubes"] > 1
    assert len(clustered.cubes()) == 1
    assert clustered.rows() == before


@pytest.mark.slow
@pytest.mark.spark
def test_delta_spark_leaves_cubes_of_our_own_alone(clustered: Clustered) -> None:
    for start in (0, 100):
        clustered.insert(start, start + 100)
        assert clustered.ours(seal_size_bytes=1, own_cubes=True).status == "committed"
    ours = clustered.cubes()
    assert {provider for provider, _ in ours} == {OWN_PROVIDER}
    assert clustered.spark()["numFilesAdded"] == 0
    clustered.insert(200, 300)
    before = clustered.rows()
    assert clustered.spark()["numFilesRemoved"] > 0
    assert {cube for cube in clustered.cubes() if cube[0] == OWN_PROVIDER} == ours
    assert clustered.rows() == before


@pytest.mark.slow
@pytest.mark.spark
def test_delta_spark_accepts_what_purges_and_packing_leave(clustered: Clustered) -> None:
    clustered.sql(
        f"ALTER TABLE delta.`{clustered.path}` SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')"
    )
    clustered.insert(0, 200)
    clustered.ours()
    cubes = clustered.cubes()
    clustered.sql(f"DELETE FROM delta.`{clustered.path}` WHERE c.x % 10 = 0")
    left = clustered.rows()
    assert clustered.ours("purge").status == "committed"
    assert clustered.cubes() == cubes
    assert clustered.spark()["numFilesAdded"] == 0
    for start in (200, 210):
        clustered.insert(start, start + 10)
    assert clustered.ours(layout="pack").status == "committed"
    assert clustered.cubes() == {*cubes, (None, None)}
    found = clustered.spark()["clusteringStats"]
    assert (found["inputNumZCubes"], found["inputOtherFiles"]["numFiles"]) == (1, 1)
    assert clustered.rows().num_rows == left.num_rows + 20
