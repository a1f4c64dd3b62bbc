"""After our log cleanup, and with our log compactions, other implementations read what they read before."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import deltalake
import pyarrow as pa
import pytest
from deltalake.exceptions import DeltaError
from tests.support.checks.checkpoint_state import state_of
from tests.support.environment.corpus import Corpus, Entry, corpus_cases

from delta_log import Table
from delta_log.checkpoint.writer import CheckpointMismatch, write_checkpoint
from delta_log.errors import CorruptLog, UnsupportedFeature
from delta_log.log.file_names import commit_key
from delta_log.log.log_segment import find_log_segment
from delta_log.runtime import Runtime
from delta_log.upkeep.checkpoint_audit import CheckpointAuditFailed
from delta_log.upkeep.log_compaction import write_log_compaction
from delta_maintenance.log_upkeep.log_cleanup import clean_up, plan_log_cleanup
from delta_maintenance.log_upkeep.plan.log_cleanup import LogCleanupPlan
from delta_maintenance.progress import SilentProgress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DAY_SECONDS = 86_400
PROPERTIES = {
    "delta.logRetentionDuration": "interval 4 days",
    "delta.deletedFileRetentionDuration": "interval 1 days",
    "delta.checkpointInterval": "1000",
}


LIMITED_TIME_TRAVEL = "spark.databricks.delta.vacuum.enforceTimeTravelWithinDeletedFileRetentionDuration"


def aged(table: Path, latest: int) -> None:
    """Makes each commit a day older than the next, and every other file of the log as old as its version."""
    for path in (table / "_delta_log").rglob("*"):
        name = path.name.lstrip(".")
        if path.is_file():
            version = int(name[:20]) if name[:20].isdigit() else 0
            os.utime(path, (time.time() - (latest - version) * DAY_SECONDS,) * 2)


def cleaned(table: Path) -> LogCleanupPlan:
    opened = Table(str(table))
    snapshot = opened.snapshot()
    plan = plan_log_cleanup(opened.storage, snapshot, Runtime().now_ms(), SilentProgress())
    clean_up(opened.storage, snapshot, plan, Runtime(), SilentProgress())
    return plan


def by_delta_rs(table: Path, version: int) -> list[int] | None:
    try:
        return sorted(deltalake.DeltaTable(str(table), version=version).to_pyarrow_table()["id"].to_pylist())
    except DeltaError:
        return None


def test_delta_rs_reads_every_version_from_the_anchor_on(tmp_path: Path) -> None:
    table = tmp_path / "t"
    for number in range(12):
        deltalake.write_deltalake(
            str(table),
            pa.table({"id": [number]}),
            mode="append",
            configuration=PROPERTIES if not number else None,
        )
    deltalake.DeltaTable(str(table)).delete("id = 3")
    opened = Table(str(table))
    for version in (2, 6, 10):
        write_checkpoint(opened.storage, opened.snapshot(version=version), Runtime())
    aged(table, 12)
    before = {version: by_delta_rs(table, version) for version in range(13)}
    assert all(rows is not None for rows in before.values())
    plan = cleaned(table)
    assert plan.anchor is not None
    assert plan.anchor.version == 6
    assert {version: by_delta_rs(table, version) for version in range(6, 13)} == {
        version: before[version] for version in range(6, 13)
    }
    assert by_delta_rs(table, 5) is None
    # And it goes on writing.
    deltalake.write_deltalake(str(table), pa.table({"id": [99]}), mode="append")
    assert Table(str(table)).snapshot().version == 13


# -- every table of the corpus -------------------------------------------------------------------------------------

#: Tables whose checkpoint or checksum contradicts their commits.
REFUSED_AS_UNTRUE = ("krs-crc-full", "krs-parquet_row_group_skipping")


def openable(entry: Entry) -> bool:
    return bool(entry["readable"])


@pytest.mark.parametrize("entry", corpus_cases(openable))
def test_every_table_of_the_corpus_is_the_same_after_a_cleanup(
    entry: Entry, corpus: Corpus, tmp_path: Path
) -> None:
    table = corpus.copy_of(entry["name"], tmp_path)
    opened = Table(str(table))
    snapshot = opened.snapshot()
    now_ms = Runtime().now_ms()
    before = state_of(snapshot, now_ms, stats="none")
    agrees = entry["oracles"].get("deltalake") in ("agree", "rows_agree")
    rows = by_delta_rs_whole(table) if agrees else None
    old = time.time() - 60 * DAY_SECONDS
    try:
        write_checkpoint(opened.storage, snapshot, Runtime())
        for path in (table / "_delta_log").rglob("*"):
            if path.is_file():
                os.utime(path, (old, old))
        plan = cleaned(table)
    except UnsupportedFeature:
        return
    except (CorruptLog, CheckpointMismatch, CheckpointAuditFailed):
        if entry["name"] not in REFUSED_AS_UNTRUE:
            raise
        return
    after = state_of(Table(str(table)).snapshot(), now_ms, stats="none")
    # Expired tombstones leave the log together with their commits.
    assert after == before
    if plan.anchor is not None and plan.entry_points:
        assert not (table / commit_key(0)).exists() or plan.anchor.version == 0
    assert not agrees or by_delta_rs_whole(table) == rows


def by_delta_rs_whole(table: Path) -> tuple[int, list[str]] | None:
    try:
        opened = deltalake.DeltaTable(str(table))
        return opened.version(), sorted(opened.file_uris())
    except DeltaError:
        return None


@pytest.mark.parametrize("entry", corpus_cases(openable))
def test_every_table_of_the_corpus_is_the_same_with_a_log_compaction(
    entry: Entry, corpus: Corpus, tmp_path: Path
) -> None:
    table = corpus.copy_of(entry["name"], tmp_path)
    opened = Table(str(table))
    snapshot = opened.snapshot()
    before = state_of(snapshot, 0, stats="none")
    commits = find_log_segment(opened.storage, snapshot.version).commits
    if len(commits) < 2:
        return
    try:
        write_log_compaction(opened.storage, snapshot, commits[0].version, commits[-1].version)
    except UnsupportedFeature:
        return
    (used,) = find_log_segment(opened.storage, snapshot.version).tail
    assert (used.version, used.end) == (commits[0].version, commits[-1].version)
    assert state_of(Table(str(table)).snapshot(), 0, stats="none") == before


# -- delta-spark ---------------------------------------------------------------------------------------------------


#: By version, the ids that delta-spark has written: eight appends and two deletions.
IDS = [
    *(set(range(version * 10)) for version in range(9)),
    set(range(80)) - {3, 75},
    set(range(80)) - {3, 75} - set(range(20, 30)),
]
LATEST = len(IDS) - 1


@pytest.fixture(scope="module")
def spark_tables(
    delta_spark_session: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str, Path], None]:
    """Copies a table that delta-spark has written, by its checkpoint policy: each is written once."""
    directory = tmp_path_factory.mktemp("spark")

    def copy(policy: str, target: Path) -> None:
        if not (directory / policy).exists():
            write_spark_table(delta_spark_session, directory / policy, policy)
        shutil.copytree(directory / policy, target)

    return copy


def write_spark_table(session: SparkSession, table: Path, policy: str) -> None:
    stated = ", ".join(
        f"'{name}' = '{value}'"
        for name, value in {
            **PROPERTIES,
            "delta.checkpointPolicy": policy,
            "delta.enableDeletionVectors": "true",
            "delta.feature.v2Checkpoint": "supported",
        }.items()
    )
    session.sql(f"CREATE TABLE delta.`{table}` (id BIGINT) USING delta TBLPROPERTIES ({stated})")
    for number in range(8):
        session.range(number * 10, number * 10 + 10, 1, 1).write.format("delta").mode("append").save(
            str(table)
        )
    session.sql(f"DELETE FROM delta.`{table}` WHERE id IN (3, 75)")
    session.sql(f"DELETE FROM delta.`{table}` WHERE id >= 20 AND id < 30")
    assert Table(str(table)).snapshot().version == LATEST


def by_delta_spark(session: SparkSession, table: Path, version: int) -> list[int]:
    frame = session.read.format("delta").option("versionAsOf", version).load(str(table))
    return sorted(row[0] for row in frame.collect())


def without_hadoop_checksums(table: Path) -> None:
    """They are beside the log's files and do not fit those that a test has aged or renamed."""
    for checksum in table.rglob(".*.crc"):
        checksum.unlink()


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize("policy", ["classic", "v2"])
def test_delta_spark_reads_every_version_from_the_anchor_on(
    policy: str,
    tmp_path: Path,
    delta_spark_session: SparkSession,
    spark_tables: Callable[[str, Path], None],
) -> None:
    table = tmp_path / "t"
    spark_tables(policy, table)
    opened = Table(str(table))
    for version in (2, 5):
        write_checkpoint(opened.storage, opened.snapshot(version=version), Runtime())
    kept = range(5, LATEST + 1)
    aged(table, LATEST)
    plan = cleaned(table)
    assert plan.anchor is not None
    assert plan.anchor.version == 5
    assert {file.reason for file in plan.files} >= {
        "expired_commit",
        "expired_checkpoint",
        "expired_checksum",
    }
    assert (plan.compatible_copy_of is not None) is (policy == "v2")
    without_hadoop_checksums(table)
    # The log decides what can be read; here all data files still exist.
    delta_spark_session.conf.set(LIMITED_TIME_TRAVEL, "false")
    try:
        found = {version: by_delta_spark(delta_spark_session, table, version) for version in kept}
    finally:
        delta_spark_session.conf.unset(LIMITED_TIME_TRAVEL)
    assert found == {version: sorted(IDS[version]) for version in kept}
    delta_spark_session.sql(f"DELETE FROM delta.`{table}` WHERE id = 1")
    assert by_delta_spark(delta_spark_session, table, LATEST + 1) == sorted(IDS[LATEST] - {1})


@pytest.mark.slow
@pytest.mark.spark
def test_delta_spark_reads_our_log_compaction_in_place_of_the_commits(
    tmp_path: Path, delta_spark_session: SparkSession, spark_tables: Callable[[str, Path], None]
) -> None:
    table = tmp_path / "t"
    spark_tables("classic", table)
    opened = Table(str(table))
    write_log_compaction(opened.storage, opened.snapshot(), 1, LATEST)
    without_hadoop_checksums(table)
    for version in range(LATEST + 1):
        (table / "_delta_log" / f"{version:020d}.crc").unlink(missing_ok=True)
    # The commits are emptied, so that the rows can come from the compaction alone.
    for version in range(1, LATEST):
        (table / commit_key(version)).write_text(json.dumps({"commitInfo": {"operation": "WRITE"}}) + "\n")

    def ids() -> list[int]:
        return sorted(row[0] for row in delta_spark_session.read.format("delta").load(str(table)).collect())

    assert ids() == sorted(IDS[LATEST])
    delta_spark_session.sql(f"DELETE FROM delta.`{table}` WHERE id = 1")
    assert ids() == sorted(IDS[LATEST] - {1})
