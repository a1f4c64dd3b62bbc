"""Our checkpoints and checksums, read by us and by two other implementations, with everything older taken away."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import deltalake
import pyarrow as pa
import pytest
from tests.support.checks.checkpoint_state import state_of
from tests.support.environment.corpus import Corpus, Entry, corpus_cases, corpus_is_there

from delta_log import Table
from delta_log.checkpoint.staged import TopFormat
from delta_log.checkpoint.writer import (
    CheckpointMismatch,
    CheckpointPolicy,
    CheckpointResult,
    write_checkpoint,
)
from delta_log.errors import UnsupportedFeature
from delta_log.log.file_names import LAST_CHECKPOINT, checksum_key, commit_key
from delta_log.log.log_segment import find_log_segment, list_log
from delta_log.runtime import Runtime
from delta_log.snapshot.snapshot import Snapshot
from delta_log.snapshot.version_checksum import write_version_checksum
from delta_log.table_config.features import supports

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: Long ago: the tombstones of the corpus have not expired.
THEN_MS = 0
#: Tables that can be read and not checkpointed, and the features that the refusal names.
REFUSED = {"rs-table_with_liquid_clustering": {"liquid"}}


def readable(entry: Entry) -> bool:
    return bool(entry["readable"])


def with_one_more_commit(table: Path) -> Table:
    """A version without a checkpoint, whatever the corpus has."""
    snapshot = Table(str(table)).snapshot()
    info = {"operation": "TEST", "inCommitTimestamp": snapshot.timestamp_ms + 1}
    commit = table / commit_key(snapshot.version + 1)
    commit.write_text(json.dumps({"commitInfo": info}) + "\n")
    return Table(str(table))


def leave_only(table: Path, result: CheckpointResult) -> None:
    """Take away all of the log but one version's commit, its checkpoint and the pointer."""
    kept = {commit_key(result.version), LAST_CHECKPOINT, *result.keys}
    for path in (table / "_delta_log").rglob("*"):
        if path.is_file() and path.relative_to(table).as_posix() not in kept:
            path.unlink()


def checkpointed(
    table: Path, policy: CheckpointPolicy | None = None, now_ms: int = THEN_MS
) -> CheckpointResult:
    opened = with_one_more_commit(table)
    result = write_checkpoint(opened.storage, opened.snapshot(), Runtime(now_ms=lambda: now_ms), policy)
    leave_only(table, result)
    return result


def policies(table: Path) -> list[CheckpointPolicy]:
    return (
        ["classic", "v2"] if supports(Table(str(table)).snapshot().protocol, "v2Checkpoint") else ["classic"]
    )


@pytest.mark.parametrize("entry", corpus_cases(readable))
def test_the_state_from_our_checkpoint_alone_is_the_state_before(
    entry: Entry, corpus: Corpus, tmp_path: Path
) -> None:
    for policy in policies(corpus.table(entry["name"])):
        table = corpus.copy_of(entry["name"], tmp_path / policy)
        opened = with_one_more_commit(table)
        if entry["name"] in REFUSED:
            with pytest.raises(UnsupportedFeature) as caught:
                write_checkpoint(opened.storage, opened.snapshot(), Runtime())
            assert set(caught.value.features) == REFUSED[entry["name"]]
            return
        snapshot = opened.snapshot()
        result = write_checkpoint(opened.storage, snapshot, Runtime(now_ms=lambda: THEN_MS), policy)
        assert (result.version, result.policy) == (entry["latest_version"] + 1, policy)
        stats = "json" if "json" in result.stats_forms else "struct"
        before = state_of(snapshot, THEN_MS, stats=stats)
        leave_only(table, result)
        after = Table(str(table)).snapshot()
        assert after.commits_since_checkpoint == 0
        assert state_of(after, THEN_MS, stats=stats) == before
        if entry["content_digest"]:
            assert corpus.digest(after.to_arrow()) == entry["content_digest"]


@pytest.mark.skipif(not corpus_is_there(), reason="no corpus to count")
def test_nearly_every_readable_table_passes_the_gate() -> None:
    assert len(corpus_cases(readable)) - len(REFUSED) >= 75


@pytest.mark.parametrize(
    "entry",
    corpus_cases(
        lambda entry: (
            readable(entry)
            and entry["name"] not in REFUSED
            and entry["oracles"].get("deltalake") in ("agree", "rows_agree")
        )
    ),
)
def test_delta_rs_reads_the_same_rows_from_our_checkpoint(
    entry: Entry, corpus: Corpus, tmp_path: Path
) -> None:
    for policy in policies(corpus.table(entry["name"])):
        table = corpus.copy_of(entry["name"], tmp_path / policy)
        with_one_more_commit(table)
        before = by_delta_rs(table)
        (table / commit_key(entry["latest_version"] + 1)).unlink()
        checkpointed(table, policy)
        assert by_delta_rs(table) == before


def by_delta_rs(table: Path) -> tuple[int, list[str], list[str]]:
    opened = deltalake.DeltaTable(str(table))
    rows = pa.table(
        deltalake.QueryBuilder().register("t", opened).execute("SELECT * FROM t").read_all()
    ).to_pylist()
    return opened.version(), sorted(opened.file_uris()), sorted(json.dumps(row, default=str) for row in rows)


# -- incremental --------------------------------------------------------------------------------------------------


def incrementally_checkpointed(table: Path) -> tuple[Snapshot, CheckpointResult]:
    """A full V2 checkpoint, a commit that says the same of the oldest file once more, and what has changed since."""
    opened = with_one_more_commit(table)
    runtime = Runtime(now_ms=lambda: THEN_MS)
    write_checkpoint(opened.storage, opened.snapshot(), runtime, "v2", incremental=False, sidecar_actions=1)
    before = opened.snapshot()
    commit = table / commit_key(before.version + 1)
    info = {"operation": "TEST", "inCommitTimestamp": before.timestamp_ms + 1}
    lines: list[dict[str, Any]] = [{"commitInfo": info}]
    lines += [{"add": as_add(file)} for file in before.files().to_pylist()[-1:]]
    commit.write_text("".join(json.dumps(line) + "\n" for line in lines))
    snapshot = Table(str(table)).snapshot()
    result = write_checkpoint(opened.storage, snapshot, runtime, "v2", sidecar_actions=1)
    assert result.reused_sidecars == max(0, snapshot.num_files - 1) + len(unexpired(snapshot))
    return snapshot, result


def unexpired(snapshot: Snapshot) -> list[str]:
    return list(state_of(snapshot, THEN_MS)["tombstones"])


def as_add(file: dict[str, Any]) -> dict[str, Any]:
    """A live file as the log says it."""
    names = {
        "path": "path",
        "partition_values": "partitionValues",
        "size": "size",
        "modification_time": "modificationTime",
        "stats": "stats",
        "deletion_vector": "deletionVector",
        "base_row_id": "baseRowId",
        "default_row_commit_version": "defaultRowCommitVersion",
        "clustering_provider": "clusteringProvider",
    }
    found = {name: file[column] for column, name in names.items() if file[column] is not None}
    found["partitionValues"] = dict(found.get("partitionValues") or {})
    vector = found.get("deletionVector")
    if vector is not None:
        found["deletionVector"] = {name: value for name, value in vector.items() if value is not None}
    return {**found, "dataChange": False}


@pytest.mark.parametrize("entry", corpus_cases(lambda e: bool(readable(e) and e["name"] not in REFUSED)))
def test_an_incremental_checkpoint_alone_gives_the_same_state_and_rows(
    entry: Entry, corpus: Corpus, tmp_path: Path
) -> None:
    if "v2" not in policies(corpus.table(entry["name"])):
        return
    table = corpus.copy_of(entry["name"], tmp_path)
    by_rust = entry["oracles"].get("deltalake") in ("agree", "rows_agree")
    rows = by_delta_rs(table)[1:] if by_rust else None
    snapshot, result = incrementally_checkpointed(table)
    stats = "json" if "json" in result.stats_forms else "struct"
    before = state_of(snapshot, THEN_MS, stats=stats)
    leave_only(table, result)
    after = Table(str(table)).snapshot()
    assert after.commits_since_checkpoint == 0
    assert state_of(after, THEN_MS, stats=stats) == before
    if entry["content_digest"]:
        assert corpus.digest(after.to_arrow()) == entry["content_digest"]
    if by_rust:
        assert by_delta_rs(table)[1:] == rows


#: The one table of the corpus whose checkpoint has another metadata than its commits.
NOT_OF_ITS_LOG = "krs-parquet_row_group_skipping"
#: Their pointers state a number of actions that their checkpoints do not have.
WRONG_SIZE = ("rs-checkpoint_with_partitions", "rs-table_failed_last_checkpoint_update")


@pytest.mark.slow
@pytest.mark.parametrize("entry", corpus_cases(lambda e: bool(readable(e) and e["name"] not in REFUSED)))
def test_other_writers_checkpoints_are_compared_with_the_log_and_left_alone(
    entry: Entry, corpus: Corpus, tmp_path: Path
) -> None:
    table = corpus.copy_of(entry["name"], tmp_path)
    storage = Table(str(table)).storage
    listing = list_log(storage)
    keys = frozenset(file.key for checkpoint in listing.checkpoints for file in checkpoint.files)
    files = {path: path.read_bytes() for path in (table / "_delta_log").rglob("*") if path.is_file()}
    for version in {checkpoint.version for checkpoint in listing.checkpoints}:
        # From commits alone, so that the checkpoint is not compared with itself, where they are still there.
        unusable = keys if set(range(version + 1)) <= set(listing.commits) else frozenset()
        snapshot = Snapshot(storage, find_log_segment(storage, version, unusable))
        if entry["name"] == NOT_OF_ITS_LOG:
            with pytest.raises(CheckpointMismatch) as caught:
                write_checkpoint(storage, snapshot, Runtime())
            assert caught.value.differences == ("metaData",)
            continue
        result = write_checkpoint(storage, snapshot, Runtime())
        assert result.already_there
        pointer = table / LAST_CHECKPOINT
        stated = json.loads(files.get(pointer) or b"{}")
        if stated.get("version") == version:
            assert result.actions == stated["size"] or entry["name"] in WRONG_SIZE
    changed = {path for path, content in files.items() if path.read_bytes() != content}
    assert changed <= {table / LAST_CHECKPOINT}


# -- delta-spark --------------------------------------------------------------------------------------------------

#: One of each kind.
ON_SPARK = (
    "dat-column_mapping",
    "dat-deletion_vectors",
    "dat-multi_partitioned_2",
    "dat-timestamp_ntz",
    "golden-type-widening-nested",
    "golden-v2-checkpoint-parquet",
    "kernel-column-mapping-id",
    "kernel-pagination-v2-checkpoint-json",
    "krs-v1-multi-part-partitioned-struct-stats-only",
    "krs-v2-json-sidecars-struct-stats-only",
    "golden-table-with-icebegCompatV2Enabled",
    "spark-table-with-dv-small",
)


@pytest.mark.spark
@pytest.mark.parametrize("entry", corpus_cases(lambda entry: entry["name"] in ON_SPARK))
def test_delta_spark_reads_the_rows_of_the_manifest_from_our_checkpoint(
    entry: Entry, corpus: Corpus, tmp_path: Path, delta_spark_session: SparkSession
) -> None:
    for policy in policies(corpus.table(entry["name"])):
        table = corpus.copy_of(entry["name"], tmp_path / policy)
        checkpointed(table, policy)
        rows = load(delta_spark_session, table).toArrow()
        assert corpus.digest(rows) == entry["content_digest"]


def load(session: SparkSession, table: Path) -> DataFrame:
    for checksum in table.rglob(".*.crc"):
        checksum.unlink()  # Hadoop's own, and for some files of the corpus out of date
    return session.read.format("delta").load(str(table))


def by_delta_spark(session: SparkSession, table: Path) -> list[str]:
    return sorted(row[0] for row in load(session, table).selectExpr("CAST(struct(*) AS STRING)").collect())


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize(
    ("policy", "as_json", "as_struct"),
    [
        ("classic", "true", "false"),
        ("classic", "false", "true"),
        ("v2", "true", "true"),
        ("v2", "false", "true"),
    ],
)
def test_delta_spark_skips_files_and_carries_on_from_our_checkpoint(
    policy: CheckpointPolicy,
    as_json: str,
    as_struct: str,
    tmp_path: Path,
    delta_spark_session: SparkSession,
    spark_table: SparkTable,
) -> None:
    table = tmp_path / "t"
    properties = {
        "delta.checkpointPolicy": policy,
        "delta.checkpoint.writeStatsAsJson": as_json,
        "delta.checkpoint.writeStatsAsStruct": as_struct,
    }
    spark_table.copy_to(table, properties)
    opened = Table(str(table))
    snapshot = opened.snapshot()
    result = write_checkpoint(opened.storage, snapshot, Runtime())
    assert result.policy == policy
    copy = tmp_path / "copy"
    leave_only(table, result)
    table.rename(copy)
    assert by_delta_spark(delta_spark_session, copy) == spark_table.rows
    # Skipped by what the checkpoint says of the files: a file that no longer exists is not asked for.
    files = snapshot.files(["key", "stats", "partition_values"]).to_pylist()
    for file in files:
        if json.loads(file["stats"])["minValues"]["id"] < 200:
            (copy / file["key"]).unlink()
    frame = load(delta_spark_session, copy)
    assert frame.where("id >= 200 AND day = DATE'2024-01-02'").count() == 50
    delta_spark_session.sql(f"DELETE FROM delta.`{copy}` WHERE id >= 299")
    assert Table(str(copy)).snapshot().version == result.version + 1
    assert load(delta_spark_session, copy).where("id >= 200").count() == 99


@pytest.mark.spark
@pytest.mark.parametrize("top_format", ["json", "parquet"])
def test_delta_spark_reads_an_incremental_checkpoint_and_carries_on(
    top_format: TopFormat, tmp_path: Path, delta_spark_session: SparkSession, spark_table: SparkTable
) -> None:
    table, copy = tmp_path / "t", tmp_path / "copy"
    spark_table.copy_to(table, {"delta.checkpointPolicy": "v2"})
    storage = Table(str(table)).storage
    write_checkpoint(storage, Table(str(table)).snapshot(), Runtime(), sidecar_actions=1)
    delta_spark_session.sql(f"DELETE FROM delta.`{table}` WHERE id = 250")
    result = write_checkpoint(
        storage, Table(str(table)).snapshot(), Runtime(), sidecar_actions=1, top_format=top_format
    )
    assert result.reused_sidecars > 3
    leave_only(table, result)
    table.rename(copy)
    expected = [row for row in spark_table.rows if not row.startswith("{250,")]
    assert len(expected) == len(spark_table.rows) - 1
    assert by_delta_spark(delta_spark_session, copy) == expected
    delta_spark_session.sql(f"DELETE FROM delta.`{copy}` WHERE id = 251")
    assert Table(str(copy)).snapshot().version == result.version + 1
    assert load(delta_spark_session, copy).count() == len(expected) - 1


@dataclass(frozen=True)
class SparkTable:
    """A table that delta-spark has written once for all tests of this file, and its rows. Write to copies only."""

    session: SparkSession
    path: Path
    rows: list[str]

    def copy_to(self, target: Path, properties: Mapping[str, str] | None = None) -> None:
        shutil.copytree(self.path, target)
        if properties:
            stated = ", ".join(f"'{name}' = '{value}'" for name, value in properties.items())
            self.session.sql(f"ALTER TABLE delta.`{target}` SET TBLPROPERTIES ({stated})")


@pytest.fixture(scope="module")
def spark_table(delta_spark_session: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> SparkTable:
    """300 rows in six files, of which some rows and one file are deleted again."""
    session, table = delta_spark_session, tmp_path_factory.mktemp("spark") / "table"
    session.sql(
        f"CREATE TABLE delta.`{table}` (id BIGINT, price DECIMAL(10,2), name STRING, at TIMESTAMP, "
        f"local TIMESTAMP_NTZ, inner STRUCT<x: FLOAT, ok: BOOLEAN>, day DATE) USING delta "
        f"PARTITIONED BY (day) TBLPROPERTIES ('delta.enableDeletionVectors' = 'true', "
        "'delta.enableRowTracking' = 'true', 'delta.enableInCommitTimestamps' = 'true', "
        "'delta.feature.v2Checkpoint' = 'supported')"
    )
    for batch in range(3):
        rows = session.range(batch * 100, batch * 100 + 100, 1, 1).selectExpr(
            "id",
            "CAST(id / 4 AS DECIMAL(10,2)) AS price",
            "IF(id % 7 = 0, NULL, CONCAT('näme ', id)) AS name",
            "TIMESTAMP_MICROS(1700000000123456 + id) AS at",
            "CAST(TIMESTAMP_MICROS(1700000000123456 + id) AS TIMESTAMP_NTZ) AS local",
            "NAMED_STRUCT('x', CAST(id / 3 AS FLOAT), 'ok', id % 2 = 0) AS inner",
            "DATE_ADD(DATE'2024-01-01', CAST(id % 2 AS INT)) AS day",
        )
        rows.write.format("delta").mode("append").save(str(table))
    session.sql(f"DELETE FROM delta.`{table}` WHERE id IN (3, 5)")
    session.sql(f"DELETE FROM delta.`{table}` WHERE id >= 100 AND id < 200 AND day = DATE'2024-01-01'")
    written = by_delta_spark(session, table)
    assert len(written) == 300 - 2 - 50
    return SparkTable(session, table, written)


@pytest.mark.spark
def test_delta_spark_accepts_our_checksum_and_states_the_same(
    tmp_path: Path, delta_spark_session: SparkSession, spark_table: SparkTable
) -> None:
    table, copy = tmp_path / "t", tmp_path / "copy"
    spark_table.copy_to(table)
    snapshot = Table(str(table)).snapshot()
    theirs_path = table / checksum_key(snapshot.version)
    theirs = json.loads(theirs_path.read_bytes())
    theirs_path.unlink()
    assert write_version_checksum(Table(str(table)).storage, snapshot, theirs["txnId"])
    ours = json.loads(theirs_path.read_bytes())
    said_by_both = {name: value for name, value in theirs.items() if name != "allFiles"}
    assert {name: canonical(ours.get(name)) for name in said_by_both} == {
        name: canonical(value) for name, value in said_by_both.items()
    }
    table.rename(copy)
    assert load(delta_spark_session, copy).count() == 300 - 2 - 50
    opened = delta_log_of(delta_spark_session, copy)
    stated = opened.checksumOpt()
    assert stated.isDefined()
    assert stated.get().numFiles() == snapshot.num_files
    assert stated.get().tableSizeBytes() == snapshot.size_bytes
    delta_spark_session.sql(f"DELETE FROM delta.`{copy}` WHERE id = 250")
    following = json.loads((copy / checksum_key(snapshot.version + 1)).read_bytes())
    found = Table(str(copy)).snapshot()
    assert (following["numFiles"], following["tableSizeBytes"]) == (found.num_files, found.size_bytes)


def canonical(value: Any) -> Any:
    """The order of domains and of features means nothing."""
    if isinstance(value, list):
        return sorted((canonical(item) for item in value), key=str)
    return {k: canonical(v) for k, v in value.items()} if isinstance(value, dict) else value


def delta_log_of(session: SparkSession, table: Path) -> Any:
    jvm: Any = session._jvm
    return jvm.org.apache.spark.sql.delta.DeltaLog.forTable(
        session._jsparkSession, str(table)
    ).unsafeVolatileSnapshot()
