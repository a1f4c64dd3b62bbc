"""REORG PURGE on copies of corpus tables: rows are kept, no deletion vector and no dropped column is left, and a second
run does nothing.

The same facts must stay as after OPTIMIZE (test_optimize_corpus.py).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.checks.kept_by_rewrites import Facts, check_rewritten, facts_of
from tests.support.environment.corpus import Corpus, Entry, corpus_cases, manifest
from tests.support.runs.corpus_rewrites import (
    NOT_BY_DELTA_SPARK,
    OnSpark,
    check_with_delta_rs,
    optimised,
    rows_by_delta_spark,
    run_on_spark,
)
from tests.support.runs.maintenance_runs import drop_column, run
from tests.support.tables.tracked_rows import turn_row_tracking_on

from delta_log import Table
from delta_log.log.actions import decode_actions
from delta_log.log.file_names import commit_key
from delta_log.snapshot.snapshot import Snapshot

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: No table of the corpus has dropped a column. The tests drop these, as column mapping allows.
DROPPED = {
    "dat-column_mapping": "new_int",
    "golden-table-with-columnmapping-mode-name": "nested_struct",
    "krs-cdf-column-mapping-id-mode": "name",
    "krs-cdf-column-mapping-name-mode-3-7": "id",
    "krs-stats-writing-all-types": "nested_struct",
}
#: No table of the corpus that can be purged tracks its rows. The tests turn tracking on for these.
TRACKED = ("golden-dv-partitioned-with-checkpoint", "spark-table-with-dv-small")
ROW_TRACKING = ("_metadata.row_id", "_metadata.row_commit_version")


def with_vectors(entry: Entry) -> bool:
    return optimised(entry) and entry["num_active_files_with_dv"] > 0


def with_dropped_column(entry: Entry) -> bool:
    return entry["name"] in DROPPED


def live_counts(snapshot: Snapshot) -> dict[str, int]:
    """Counts rows by partition from statistics and deletion vectors; -1: the log does not state them."""
    counts: dict[str, int] = {}
    for row in snapshot.files().to_pylist():
        partition = json.dumps(sorted(row["partition_values"] or ()))
        known = (json.loads(row["stats"]) if row["stats"] else {}).get("numRecords")
        deleted = (row["deletion_vector"] or {}).get("cardinality", 0)
        if known is None or counts.get(partition) == -1:
            counts[partition] = -1
        else:
            counts[partition] = counts.get(partition, 0) + known - deleted
    return counts


def check(table: Path, before: Facts, report: dict[str, Any], digest: str, corpus: Corpus) -> None:
    """Checks that the purge only rearranged rows, and that a second purge finds nothing to do."""
    assert report["status"] == "committed"
    after = Table(str(table)).snapshot()
    assert report["version"] == after.version == before.snapshot.version + 1
    actions = decode_actions((table / commit_key(after.version)).read_bytes(), "commit")
    info = actions[0].commitInfo
    assert info is not None
    assert (info["operation"], info["operationParameters"]["applyPurge"]) == ("REORG", "true")
    for action in actions:
        assert action.remove is None or action.remove.dataChange is False
    assert after.num_deletion_vectors == 0
    assert corpus.digest(after.to_arrow()) == digest
    counts = live_counts(before.snapshot)
    for partition, count in live_counts(after).items():
        assert counts[partition] in (count, -1)
    assert check_rewritten(table, before) == report["metrics"]["numAddedFiles"] > 0
    assert run(table, "purge", run_id="again").status == "nothing_to_do"
    assert Table(str(table)).snapshot().version == after.version


@pytest.mark.parametrize("entry", corpus_cases(optimised))
def test_a_purge_keeps_the_rows_and_comes_to_an_end(entry: Entry, corpus: Corpus, tmp_path: Path) -> None:
    table = corpus.copy_of(entry["name"], tmp_path)
    before = facts_of(table)
    report = run(table, "purge", verify="full")
    if with_vectors(entry):
        check(table, before, report.to_dict(), entry["content_digest"], corpus)
        check_with_delta_rs(table, entry, corpus)
    else:
        assert report.status == "nothing_to_do"
        assert Table(str(table)).snapshot().version == before.snapshot.version


@pytest.mark.parametrize("entry", corpus_cases(with_vectors))
def test_a_purge_keeps_row_ids_and_commit_versions(entry: Entry, corpus: Corpus, tmp_path: Path) -> None:
    table = corpus.copy_of(entry["name"], tmp_path)
    turn_row_tracking_on(table)
    before = facts_of(table)
    assert before.tracked
    report = run(table, "purge")
    check(table, before, report.to_dict(), entry["content_digest"], corpus)


@pytest.mark.parametrize("entry", corpus_cases(with_dropped_column))
def test_a_purge_ends_what_is_left_of_a_dropped_column(entry: Entry, corpus: Corpus, tmp_path: Path) -> None:
    table = with_one_dropped(entry["name"], corpus, tmp_path)
    before = facts_of(table)
    digest = corpus.digest(before.snapshot.to_arrow())
    report = run(table, "purge", verify="full")
    check(table, before, report.to_dict(), digest, corpus)


def with_one_dropped(name: str, corpus: Corpus, directory: Path) -> Path:
    """Returns a copy of the table with one column dropped."""
    table = corpus.copy_of(name, directory)
    columns = Table(str(table)).snapshot().schema.names
    drop_column(table, DROPPED[name])
    assert len(Table(str(table)).snapshot().schema.names) == len(columns) - 1
    return table


#: Tables that a purge has work on: how a copy is prepared, and the table's name.
ON_SPARK = [
    *(("as it is", entry["name"]) for entry in manifest() if with_vectors(entry)),
    *(("tracked", name) for name in TRACKED),
    *(("dropped", name) for name in list(DROPPED)[1:3]),
]


def copy_to_purge(what: str, name: str, corpus: Corpus, directory: Path) -> Path:
    if what == "dropped":
        return with_one_dropped(name, corpus, directory / what)
    table = corpus.copy_of(name, directory / what)
    if what == "tracked":
        turn_row_tracking_on(table)
    return table


@pytest.fixture(scope="module")
def spark_purged(corpus: Corpus, tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], OnSpark]:
    directory = tmp_path_factory.mktemp("spark")
    tables = [copy_to_purge(what, name, corpus, directory) for what, name in ON_SPARK]
    return dict(zip(ON_SPARK, run_on_spark("purge", tables), strict=True))


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize(("what", "name"), ON_SPARK)
def test_a_purge_by_the_spark_engine_keeps_what_that_of_the_local_engine_keeps(
    what: str, name: str, corpus: Corpus, spark_purged: dict[tuple[str, str], OnSpark]
) -> None:
    done, entry = spark_purged[what, name], corpus.entry(name)
    assert done.report["engine"] == "spark"
    assert (done.before.tracked is not None) == (what == "tracked")
    digest = corpus.digest(done.before.snapshot.to_arrow())
    assert (digest == entry["content_digest"]) == (what != "dropped")
    check(done.table, done.before, done.report, digest, corpus)
    if what == "as it is":
        check_with_delta_rs(done.table, entry, corpus)


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize(("what", "name"), [case for case in ON_SPARK if case[1] not in NOT_BY_DELTA_SPARK])
def test_delta_spark_reads_the_same_rows_after_a_purge_by_either_engine(
    what: str,
    name: str,
    corpus: Corpus,
    tmp_path: Path,
    delta_spark_session: SparkSession,
    spark_purged: dict[tuple[str, str], OnSpark],
) -> None:
    also = ROW_TRACKING if what == "tracked" else ()
    table = copy_to_purge(what, name, corpus, tmp_path)
    if what == "as it is":
        digest = corpus.entry(name)["content_digest"]
    else:
        before = rows_by_delta_spark(delta_spark_session, table, *also)
        assert before.num_rows == corpus.entry(name)["logical_row_count"]
        digest = corpus.digest(before)
    assert run(table, "purge").status == "committed"
    for purged in (table, spark_purged[what, name].table):
        assert corpus.digest(rows_by_delta_spark(delta_spark_session, purged, *also)) == digest
