"""OPTIMIZE on copies of every corpus table: rows are kept, by our reading and by that of two other implementations.

So are field ids and, where rows are tracked, their ids and commit versions; and what a new file's statistics say is what
is in the file.
"""

from __future__ import annotations

import contextlib
import io
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.checks.kept_by_rewrites import Facts, check_rewritten, facts_of
from tests.support.environment.corpus import Corpus, Entry, corpus_cases, corpus_is_there
from tests.support.runs.corpus_rewrites import (
    NOT_BY_DELTA_SPARK,
    REFUSED,
    OnSpark,
    check_with_delta_rs,
    optimised,
    rows_by_delta_spark,
    run_on_spark,
)
from tests.support.tables.tracked_rows import turn_row_tracking_on

from delta_log import Table
from delta_log.log.actions import decode_actions
from delta_log.log.file_names import commit_key
from delta_maintenance.cli import main as cli

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: One of each kind: these are optimised by the Spark engine as well.
ON_SPARK = (
    "dat-column_mapping",
    "dat-deletion_vectors",
    "dat-multi_partitioned_2",
    "dat-timestamp_ntz",
    "golden-data-reader-escaped-chars",
    "golden-kernel-timestamp-INT96",
    "golden-parquet-all-types-legacy-format",
    "golden-type-widening-nested",
    "golden-v2-checkpoint-parquet",
    "kernel-column-mapping-id",
    "krs-v1-multi-part-partitioned-struct-stats-only",
    "spark-partitioned-table-with-dv-large",
    "spark-table-with-dv-small",
)
#: These are read by delta-spark as well, and so are the tables above and those that delta-rs misreads: partition values and column
#: names that need care, types, nullability and bounds. delta-rs reads all others.
BY_DELTA_SPARK = (
    "dat-generated_columns",
    "golden-124-decimal-decode-bug",
    "golden-data-reader-date-types-JST",
    "golden-data-reader-partition-values",
    "golden-kernel-timestamp-partition-col-ISO8601",
    "golden-time-travel-schema-changes-b",
    "kernel-data-reader-partition-values-column-mapping-name",
    "krs-cdf-column-mapping-id-mode",
    "krs-cdf-table-backtick-column-names",
    "krs-external-table-different-nullability",
    "krs-stats-writing-all-types",
    "krs-timestamp-truncation-stats",
    "rs-delta-0.8.0-special-partition",
    "spark-identity_test_written_by_version_5",
)
#: The gate lets no table through whose rows are tracked already: of these it is turned on for the Spark engine too.
TRACKED_ON_SPARK = (
    "dat-column_mapping",
    "golden-type-widening-nested",
    "spark-partitioned-table-with-dv-large",
)


def optimize(table: Path, *arguments: str) -> tuple[int, dict[str, Any]]:
    """The command line's own entry: its exit code and the one JSON object on its standard output."""
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        code = cli.main(["optimize", str(table), "--full", "--json", *arguments])
    return code, json.loads(output.getvalue())


def check(
    table: Path,
    entry: Entry,
    corpus: Corpus,
    before: Facts,
    report: dict[str, Any],
    *,
    copied: bool = False,
) -> None:
    assert report["status"] == "committed"
    assert report["version"] == before.snapshot.version + 1
    for action in decode_actions((table / commit_key(report["version"])).read_bytes(), "commit"):
        assert action.remove is None or action.remove.dataChange is False
    snapshot = Table(str(table)).snapshot()
    assert snapshot.num_deletion_vectors == 0
    assert corpus.digest(snapshot.to_arrow()) == entry["content_digest"]
    assert check_rewritten(table, before, copied=copied) == report["metrics"]["numAddedFiles"] > 0
    assert [path.name for path in table.glob("_maintenance*")] == []
    code, again = optimize(table, "--engine", "local")
    assert (code, again["status"]) == (0, "nothing_to_do")
    assert Table(str(table)).snapshot().version == report["version"]


@pytest.mark.parametrize("rewrite", ["encode", "copy"])
@pytest.mark.parametrize("entry", corpus_cases(optimised))
def test_the_local_engine_keeps_the_rows(entry: Entry, corpus: Corpus, tmp_path: Path, rewrite: str) -> None:
    table = corpus.copy_of(entry["name"], tmp_path)
    before = facts_of(table)
    code, report = optimize(table, "--engine", "local", "--rewrite", rewrite)
    assert code == 0
    check(table, entry, corpus, before, report, copied=rewrite == "copy")
    check_with_delta_rs(table, entry, corpus)


@pytest.mark.parametrize("entry", corpus_cases(optimised))
def test_the_local_engine_keeps_row_ids_and_commit_versions(
    entry: Entry, corpus: Corpus, tmp_path: Path
) -> None:
    table = corpus.copy_of(entry["name"], tmp_path)
    turn_row_tracking_on(table)
    before = facts_of(table)
    assert before.tracked
    code, report = optimize(table, "--engine", "local")
    assert code == 0
    check(table, entry, corpus, before, report)


@pytest.mark.parametrize("name", sorted(REFUSED) if corpus_is_there() else [pytest.param("", id="absent")])
def test_what_is_not_supported_is_refused_by_name_and_nothing_is_written(
    name: str, corpus: Corpus, tmp_path: Path
) -> None:
    table = corpus.copy_of(name, tmp_path)
    before = sorted(path.relative_to(table) for path in table.rglob("*"))
    code, report = optimize(table, "--engine", "local")
    assert code == 2
    assert report["error"]["type"] == "UnsupportedFeature"
    assert set(report["error"]["features"]) == REFUSED[name]
    assert sorted(path.relative_to(table) for path in table.rglob("*")) == before


def test_at_least_forty_tables_of_the_corpus_are_optimised(corpus: Corpus) -> None:
    assert len(corpus_cases(optimised)) >= 40


@pytest.fixture(scope="module")
def spark_optimised(corpus: Corpus, tmp_path_factory: pytest.TempPathFactory) -> dict[str, OnSpark]:
    directory = tmp_path_factory.mktemp("spark")
    tables = {name: corpus.copy_of(name, directory) for name in ON_SPARK}
    for name in TRACKED_ON_SPARK:
        tables[f"tracked {name}"] = corpus.copy_of(name, directory / "tracked")
        turn_row_tracking_on(tables[f"tracked {name}"])
    return dict(zip(tables, run_on_spark("optimize", list(tables.values())), strict=True))


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize("entry", corpus_cases(lambda entry: entry["name"] in ON_SPARK))
def test_the_spark_engine_keeps_the_rows(
    entry: Entry, corpus: Corpus, spark_optimised: dict[str, OnSpark]
) -> None:
    done = spark_optimised[entry["name"]]
    assert done.report["engine"] == "spark"
    check(done.table, entry, corpus, done.before, done.report)
    check_with_delta_rs(done.table, entry, corpus)


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize("entry", corpus_cases(lambda entry: entry["name"] in TRACKED_ON_SPARK))
def test_the_spark_engine_keeps_row_ids_and_commit_versions(
    entry: Entry, corpus: Corpus, spark_optimised: dict[str, OnSpark]
) -> None:
    done = spark_optimised[f"tracked {entry['name']}"]
    assert done.before.tracked
    check(done.table, entry, corpus, done.before, done.report)


def read_by_delta_spark(entry: Entry) -> bool:
    if not optimised(entry) or entry["name"] in NOT_BY_DELTA_SPARK:
        return False
    return entry["name"] in ON_SPARK + BY_DELTA_SPARK or entry["oracles"].get("deltalake") != "agree"


@pytest.mark.spark
@pytest.mark.parametrize("entry", corpus_cases(read_by_delta_spark))
def test_delta_spark_reads_the_same_rows(
    entry: Entry,
    corpus: Corpus,
    tmp_path: Path,
    delta_spark_session: SparkSession,
    spark_optimised: dict[str, OnSpark],
) -> None:
    """Whichever engine it was, and whether it copied or encoded, the rows are those of the manifest."""
    table = corpus.copy_of(entry["name"], tmp_path)
    code, _ = optimize(table, "--engine", "local", "--rewrite", "copy")
    assert code == 0
    rewritten = [table]
    if entry["name"] in spark_optimised:
        rewritten.append(spark_optimised[entry["name"]].table)
    for one in rewritten:
        assert corpus.digest(rows_by_delta_spark(delta_spark_session, one)) == entry["content_digest"]
