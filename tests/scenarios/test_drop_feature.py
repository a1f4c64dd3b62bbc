"""DROP FEATURE: the protocol is lower, the rows are the same, and a run that stopped anywhere goes on."""

from __future__ import annotations

import json
import struct
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from tests.support.environment.corpus import Corpus, Entry, corpus_cases
from tests.support.runs.maintenance_runs import enable_deletion_vectors, keys, mark_deleted
from tests.support.runs.vacuum_runs import contents, done, refusal
from tests.support.tables.small_tables import write_days

from delta_log import Table
from delta_log.checkpoint.writer import write_checkpoint
from delta_log.data.deletion_vector import encode_z85
from delta_log.errors import StorageError
from delta_log.log.actions import Protocol, decode_commit
from delta_log.log.file_names import commit_key
from delta_log.runtime import Runtime
from delta_log.table_config.features import supports, without_feature
from delta_log.testing import FaultyStorage
from delta_maintenance.cli.main import main
from delta_maintenance.contract import JobReport, JobSpec
from delta_maintenance.drop_feature.plan.drop_plan import DROPPABLE
from delta_maintenance.job import JobSite, run_job, run_on
from delta_maintenance.progress import SilentProgress


def drop(table: Path, feature: str, *, dry_run: bool = False) -> JobReport:
    spec = JobSpec(
        "drop-feature", str(table), "dropping", {"feature": feature}, engine="local", dry_run=dry_run
    )
    return run_job(spec, JobSite(), SilentProgress())


def _commit(table: Path, *actions: dict[str, Any]) -> None:
    version = Table(str(table)).snapshot().version + 1
    (table / commit_key(version)).write_text("".join(json.dumps(action) + "\n" for action in actions))


def _features(table: Path) -> set[str]:
    protocol = Table(str(table)).snapshot().protocol
    return {*(protocol.readerFeatures or ()), *(protocol.writerFeatures or ())}


def _rows(table: Path, columns: list[str] | None = None) -> Counter[str]:
    return Counter(map(str, Table(str(table)).snapshot().to_arrow(columns).to_pylist()))


def _metadata(
    table: Path, properties: dict[str, str], schema: Callable[[dict[str, Any]], None] | None = None
) -> dict[str, Any]:
    found = Table(str(table)).snapshot().metadata
    parsed = json.loads(found.schemaString)
    if schema is not None:
        for field in parsed["fields"]:
            schema(field)
    return {
        "metaData": {
            "id": found.id,
            "format": {"provider": "parquet", "options": {}},
            "schemaString": json.dumps(parsed),
            "partitionColumns": list(found.partition_columns),
            "configuration": {**found.properties, **properties},
        }
    }


def _with_feature(
    table: Path, *features: str, reader: bool = True, properties: dict[str, str] | None = None
) -> None:
    names = list(features)
    protocol = {
        "minReaderVersion": 3 if reader else 1,
        "minWriterVersion": 7,
        "writerFeatures": [*names, "appendOnly", "invariants"],
    }
    protocol |= {"readerFeatures": names} if reader else {}
    _commit(table, {"protocol": protocol}, _metadata(table, properties or {}))


def _vectors(table: Path) -> None:
    enable_deletion_vectors(table)
    first, second, *_ = sorted(keys(table))
    mark_deleted(table, {first: [0, 3], second: [1]})


def _v2_checkpoint(table: Path) -> None:
    _with_feature(table, "v2Checkpoint", properties={"delta.checkpointPolicy": "v2"})
    spec = JobSpec("checkpoint", str(table), "run", {"policy": "v2"})
    done(run_job(spec, JobSite(), SilentProgress()))


def _row_tracking(table: Path) -> None:
    _with_feature(table, "domainMetadata", "rowTracking",  reader=False, properties={
        "delta.enableRowTracking": "true",
        "delta.rowTracking.materializedRowIdColumnName": "_row_id_x",
        "delta.rowTracking.materializedRowCommitVersionColumnName": "_row_version_x",
    })  # fmt: skip
    adds = [
        action.add
        for version in range(4)
        for action in decode_commit((table / commit_key(version)).read_bytes(), "")
        if action.add
    ]
    rows = [{"path": a.path, "size": a.size, "modificationTime": a.modificationTime, "dataChange": False, "stats": a.stats,
             "partitionValues": a.partitionValues, "baseRowId": 100 * n, "defaultRowCommitVersion": 0} for n, a in enumerate(adds)]  # fmt: skip
    mark = {"domain": "delta.rowTracking", "configuration": '{"rowIdHighWaterMark":399}', "removed": False}
    _commit(table, {"domainMetadata": mark}, *({"add": row} for row in rows))


def _column_mapping(table: Path) -> None:
    ids = iter(range(1, 9))

    def mapped(field: dict[str, Any]) -> None:
        field["metadata"] = {
            "delta.columnMapping.id": next(ids),
            "delta.columnMapping.physicalName": field["name"],
        }

    properties = {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "3"}
    _commit(
        table,
        {"protocol": {"minReaderVersion": 2, "minWriterVersion": 5}},
        _metadata(table, properties, mapped),
    )
    # DROP COLUMN text: the files still hold it.
    dropped = _metadata(table, {})
    schema = json.loads(dropped["metaData"]["schemaString"])
    schema["fields"] = [field for field in schema["fields"] if field["name"] != "text"]
    dropped["metaData"]["schemaString"] = json.dumps(schema)
    _commit(table, dropped)


def _type_widening(table: Path) -> None:
    def widened(field: dict[str, Any]) -> None:
        if field["name"] == "id":
            field["metadata"] = {"delta.typeChanges": [{"fromType": "integer", "toType": "long"}]}

    _with_feature(table, "typeWidening", properties={"delta.enableTypeWidening": "true"})
    _commit(table, _metadata(table, {}, widened))


MADE: dict[str, Callable[[Path], None]] = {
    "deletionVectors": _vectors,
    "v2Checkpoint": _v2_checkpoint,
    "rowTracking": _row_tracking,
    "columnMapping": _column_mapping,
    "typeWidening": _type_widening,
    "vacuumProtocolCheck": lambda table: _with_feature(table, "vacuumProtocolCheck"),
    "timestampNtz": lambda table: _with_feature(table, "timestampNtz"),
}
each_feature = pytest.mark.parametrize("feature", MADE)


def _made(path: Path, feature: str) -> Path:
    write_days(path, files=4, rows=10)
    MADE[feature](path)
    return path


@each_feature
def test_the_feature_goes_and_the_rows_stay(feature: str, tmp_path: Path) -> None:
    table = _made(tmp_path / "t", feature)
    before, files = _rows(table), contents(table)
    planned = done(drop(table, feature, dry_run=True))
    assert contents(table) == files
    report = done(drop(table, feature))
    assert (report.status, report.plan) == ("committed", planned.plan)
    snapshot = Table(str(table)).snapshot()
    assert report.version == snapshot.version
    assert feature not in _features(table)
    assert report.plan is not None
    assert report.plan["protocol"]["minReaderVersion"] == snapshot.protocol.minReaderVersion == 1
    assert _rows(table) == before
    assert snapshot.num_deletion_vectors == 0
    # delta-rs reads it by the protocol that is left.
    read = DeltaTable(str(table)).to_pyarrow_table()
    assert Counter(map(str, read.select(snapshot.schema.names).to_pylist())) == before
    protected = {
        n: v for n, v in snapshot.properties.items() if n == "delta.requireCheckpointProtectionBeforeVersion"
    }
    assert protected == (
        {}
        if feature == "rowTracking"
        else {"delta.requireCheckpointProtectionBeforeVersion": str(report.version)}
    )
    assert ("checkpointProtection" in _features(table)) == bool(protected)
    assert drop(table, feature).status == "nothing_to_do"


@each_feature
def test_a_run_that_dies_anywhere_is_finished_by_the_next(feature: str, tmp_path: Path) -> None:
    for number in range(60):
        table = _made(tmp_path / str(number), feature)
        before, writes = _rows(table), iter(range(10_000))

        def fail(name: str, key: str, *, writes: Any = writes, last: int = number) -> None:
            if name in ("put", "put_if_absent", "open_write") and next(writes) >= last:
                raise StorageError(f"{key}: the process is dead", key)

        opened = Table(str(table))
        opened.storage = FaultyStorage(opened.storage, fail)
        spec = JobSpec("drop-feature", str(table), "dropping", {"feature": feature}, engine="local")
        died = run_on(opened, spec, JobSite(runtime=Runtime(sleep=lambda _: None)), SilentProgress())
        assert _rows(table) == before
        done(drop(table, feature))
        assert feature not in _features(table)
        assert _rows(table) == before
        if died.error is None:
            return
    raise AssertionError("the run never came to its end")


@pytest.mark.slow
@pytest.mark.parametrize("entry", corpus_cases(lambda entry: entry["readable"] and entry["data"] == "full"))
def test_features_of_a_corpus_table_go_or_are_refused_without_a_trace(
    entry: Entry, corpus: Corpus, tmp_path: Path
) -> None:
    original = corpus.copy_of(entry["name"], tmp_path / "original")
    protocol, rows = Table(str(original)).snapshot().protocol, _rows(original)
    for feature in (name for name in DROPPABLE if supports(protocol, name)):
        table = corpus.copy_of(entry["name"], tmp_path / feature)
        before, report = contents(table), drop(table, feature)
        if report.error is not None:
            assert report.error.type in ("FeatureKept", "UnsupportedFeature"), report.error
            assert contents(table) == before
            continue
        assert _rows(table) == rows
        if Table(str(table)).snapshot().protocol.minReaderVersion == 1:
            assert DeltaTable(str(table)).to_pyarrow_table().num_rows == rows.total()


def test_history_keeps_its_vectors_from_a_vacuum_that_knows_none(tmp_path: Path) -> None:
    table = _made(tmp_path / "t", "deletionVectors")
    vectors = {path.name for path in table.glob("deletion_vector_*.bin")}
    assert vectors
    done(drop(table, "deletionVectors"))
    removed = Table(str(table)).snapshot().tombstones(["key"])["key"].to_pylist()
    assert vectors <= set(removed)


def test_files_lose_dropped_columns_before_their_names_are_free(tmp_path: Path) -> None:
    table = _made(tmp_path / "t", "columnMapping")
    done(drop(table, "columnMapping"))
    more = json.loads(Table(str(table)).snapshot().metadata.schemaString)
    more["fields"].append({"name": "text", "type": "string", "nullable": True, "metadata": {}})
    metadata = _metadata(table, {})
    metadata["metaData"]["schemaString"] = json.dumps(more)
    _commit(table, metadata)
    assert set(Table(str(table)).snapshot().to_arrow(["text"])["text"].to_pylist()) == {None}


def test_a_feature_of_readers_goes_for_good_when_history_has_gone(tmp_path: Path) -> None:
    table = _made(tmp_path / "t", "vacuumProtocolCheck")
    done(drop(table, "vacuumProtocolCheck"))
    said = refusal(drop(table, "checkpointProtection"))
    assert "the log still holds versions before 5" in said
    done(
        run_job(JobSpec("checkpoint", str(table), "run", {"policy": "classic"}), JobSite(), SilentProgress())
    )
    for file in (table / "_delta_log").iterdir():
        if file.name[:20].isdigit() and int(file.name[:20]) < 5:
            file.unlink()
    done(drop(table, "checkpointProtection"))
    assert Table(str(table)).snapshot().protocol == Protocol(1, 2)


@pytest.mark.parametrize(
    ("feature", "make", "words"),
    [
        ("appendOnly", _vectors, "this release cannot drop it, only deletionVectors"),
        ("inCommitTimestamp", lambda t: _with_feature(t, "inCommitTimestamp", reader=False), "cannot drop it"),
        (
            "rowTracking",
            lambda t: _with_feature(t, "rowTracking", "icebergCompatV3", reader=False),
            "icebergCompatV3 cannot do without it",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_dropped_is_named(
    feature: str, make: Callable[[Path], None], words: str, tmp_path: Path
) -> None:
    write_days(tmp_path / "t", files=4, rows=10)
    make(tmp_path / "t")
    before = contents(tmp_path / "t")
    assert words in refusal(drop(tmp_path / "t", feature))
    assert contents(tmp_path / "t") == before


@pytest.mark.parametrize(
    ("mode", "renamed", "words"),
    [
        ("id", {}, "delta.columnMapping.mode is id"),
        ("name", {"id": "number"}, "files have other names for number"),
        ("name", {"id": "a b"}, "files have other names for a b"),
    ],
)
def test_column_mapping_that_is_in_use_stays(
    mode: str, renamed: dict[str, str], words: str, tmp_path: Path
) -> None:
    table = _made(tmp_path / "t", "columnMapping")

    def rename(field: dict[str, Any]) -> None:
        field["name"] = renamed.get(field["name"], field["name"])

    _commit(table, _metadata(table, {"delta.columnMapping.mode": mode}, rename))
    assert words in refusal(drop(table, "columnMapping"))


@pytest.mark.parametrize("feature", ["columnMapping", "deletionVectors", "typeWidening"])
def test_files_that_no_rewrite_touches_keep_the_feature(feature: str, tmp_path: Path) -> None:
    table = _made(tmp_path / "t", feature)
    file = {"path": "file:///elsewhere/f.parquet", "size": 1, "partitionValues": {"day": "2024-01-01"}}
    vector = {
        "storageType": "p",
        "pathOrInlineDv": "file:///elsewhere/v.bin",
        "sizeInBytes": 34,
        "cardinality": 1,
    }
    _commit(
        table,
        {"add": {**file, "modificationTime": 1, "dataChange": True, "stats": '{"numRecords":5}',
                 "deletionVector": vector if feature == "deletionVectors" else None}},
    )  # fmt: skip
    version = Table(str(table)).snapshot().version
    assert "1 files of the table lie outside of its directory" in refusal(drop(table, feature))
    assert Table(str(table)).snapshot().version == version


def test_a_type_that_is_in_use_stays(tmp_path: Path) -> None:
    table = _made(tmp_path / "t", "timestampNtz")
    schema = json.loads(Table(str(table)).snapshot().metadata.schemaString)
    schema["fields"].append({"name": "at", "type": {"type": "array", "elementType": "timestamp_ntz", "containsNull": True},
                             "nullable": True, "metadata": {}})  # fmt: skip
    metadata = _metadata(table, {})
    metadata["metaData"]["schemaString"] = json.dumps(schema)
    _commit(table, metadata)
    assert "at have the type timestamp_ntz" in refusal(drop(table, "timestampNtz"))


@pytest.mark.parametrize(
    ("protocol", "feature", "left"),
    [
        (Protocol(2, 5), "columnMapping", Protocol(1, 4)),
        (Protocol(3, 7, ["deletionVectors"], ["deletionVectors", "appendOnly", "invariants"]), "deletionVectors", Protocol(1, 2)),
        (Protocol(3, 7, ["deletionVectors"], ["deletionVectors"]), "deletionVectors", Protocol(1, 1)),
        (Protocol(1, 7, None, ["rowTracking", "domainMetadata"]), "rowTracking", Protocol(1, 7, None, ["domainMetadata"])),
        (
            Protocol(3, 7, ["a", "v2Checkpoint"], ["a", "v2Checkpoint"]),
            "v2Checkpoint",
            Protocol(3, 7, ["a"], ["a"]),
        ),
    ],
)  # fmt: skip
def test_the_protocol_that_is_left_is_the_lowest(protocol: Protocol, feature: str, left: Protocol) -> None:
    assert without_feature(protocol, feature) == left


def _dropped_beside(table: Path, other: Callable[[], None]) -> JobReport:
    """Drop a feature while another writer commits once, just before the drop."""
    opened = Table(str(table))
    pending = [other]

    def before(name: str, key: str) -> None:
        if name == "put_if_absent" and key == commit_key(5) and pending:
            pending.pop()()

    opened.storage = FaultyStorage(opened.storage, before)
    spec = JobSpec("drop-feature", str(table), "dropping", {"feature": "vacuumProtocolCheck"}, engine="local")
    return done(run_on(opened, spec, JobSite(runtime=Runtime(sleep=lambda _: None)), SilentProgress()))


def test_another_writer_that_changes_rows_meanwhile_wins_and_the_run_goes_on(tmp_path: Path) -> None:
    table = _made(tmp_path / "t", "vacuumProtocolCheck")

    def removes_a_file() -> None:
        (path,) = {row["path"] for row in Table(str(table)).snapshot().files().to_pylist()[:1]}
        _commit(table, {"remove": {"path": path, "dataChange": True, "deletionTimestamp": 1}})

    report = _dropped_beside(table, removes_a_file)
    assert (report.version, report.metrics["numSteps"]) == (6, 2)
    assert Table(str(table)).snapshot().num_files == 3


def test_a_commit_that_changes_no_rows_meanwhile_moves_the_protected_versions(tmp_path: Path) -> None:
    table = _made(tmp_path / "t", "vacuumProtocolCheck")
    report = _dropped_beside(table, lambda: _commit(table, {"txn": {"appId": "another", "version": 1}}))
    snapshot = Table(str(table)).snapshot()
    # One commit drops the feature and says what is protected, so that no crash comes between.
    assert report.version == snapshot.version == 6
    assert snapshot.properties["delta.requireCheckpointProtectionBeforeVersion"] == "6"


def test_a_vector_without_rows_is_purged_like_any_other(tmp_path: Path) -> None:
    table = tmp_path / "t"
    write_days(table, files=2, rows=10)
    enable_deletion_vectors(table)
    row = Table(str(table)).snapshot().files().to_pylist()[0]
    # Other writers make such vectors: the magic number, and no bitmap.
    body = encode_z85(struct.pack("<IQ", 1681511377, 0))
    file = {
        "path": row["path"],
        "size": row["size"],
        "partitionValues": dict(row["partition_values"]),
        "dataChange": True,
    }
    vector = {"storageType": "i", "pathOrInlineDv": body, "sizeInBytes": 12, "cardinality": 0}
    _commit(
        table,
        {"remove": {**file, "deletionTimestamp": 1}},
        {"add": {**file, "modificationTime": 1, "stats": row["stats"], "deletionVector": vector}},
    )
    rows = _rows(table)
    done(drop(table, "deletionVectors"))
    assert Table(str(table)).snapshot().num_deletion_vectors == 0
    assert Counter(map(str, DeltaTable(str(table)).to_pyarrow_table().to_pylist())) == rows


def test_v2_content_under_a_classic_name_is_no_checkpoint_for_older_readers(tmp_path: Path) -> None:
    table = _made(tmp_path / "t", "v2Checkpoint")
    storage = Table(str(table)).storage
    _commit(table, _metadata(table, {"delta.checkpointPolicy": "classic"}))
    latest = Table(str(table)).snapshot()
    write_checkpoint(storage, latest, Runtime(), policy="v2", top_format="parquet")
    (top,) = (table / "_delta_log").glob(f"{latest.version:020}.checkpoint.*.parquet")
    top.rename(table / "_delta_log" / f"{latest.version:020}.checkpoint.parquet")
    rows = _rows(table)
    report = done(drop(table, "v2Checkpoint"))
    assert _rows(table) == rows
    assert report.version is not None
    # Older readers find a checkpoint with all files, and no commit before it is needed.
    kept = report.version - 1
    for commit in range(kept + 1):
        (table / commit_key(commit)).unlink()
    read = DeltaTable(str(table)).to_pyarrow_table()
    assert Counter(map(str, read.select(latest.schema.names).to_pylist())) == rows
    columns = pq.read_schema(table / "_delta_log" / f"{kept:020}.checkpoint.parquet").names
    assert "sidecar" not in columns


def test_the_command_says_the_steps(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = _made(tmp_path / "t", "deletionVectors")
    command = ["drop-feature", str(table), "--feature", "deletionVectors", "--engine", "local"]
    assert main([*command, "--dry-run"]) == 0
    said = capsys.readouterr().out
    assert "Would drop deletionVectors:" in said
    assert "1. set properties: unset delta.enableDeletionVectors" in said
    assert "2. purge: 2 files with deletion vectors are written anew" in said
    assert main(command) == 0
    assert "without deletionVectors" in capsys.readouterr().out
    assert main(command) == 0
    assert "Nothing to do" in capsys.readouterr().out


@pytest.mark.parametrize("feature", ["deletionVectors", "v2Checkpoint", "typeWidening", "timestampNtz"])
def test_a_drop_is_undone_with_its_purge_and_its_rewrite(feature: str, tmp_path: Path) -> None:
    table = _made(tmp_path / "t", feature)
    before, files, version = _rows(table), keys(table), Table(str(table)).snapshot().version
    done(drop(table, feature))
    spec = JobSpec("restore", str(table), "restoring", {"undo_run": "dropping"})
    report = done(run_job(spec, JobSite(), SilentProgress()))
    assert report.plan is not None
    assert report.plan["version"] == version
    assert feature in _features(table)
    assert (_rows(table), keys(table)) == (before, files)


@pytest.mark.parametrize(
    ("feature", "words"),
    [("columnMapping", "The mode of a table that holds data cannot go back"), ("rowTracking", "has dropped row ids since")],
)  # fmt: skip
def test_a_drop_that_cannot_be_undone_says_why(feature: str, words: str, tmp_path: Path) -> None:
    table = _made(tmp_path / "t", feature)
    done(drop(table, feature))
    before = contents(table)
    spec = JobSpec("restore", str(table), "restoring", {"undo_run": "dropping"})
    assert words in refusal(run_job(spec, JobSite(), SilentProgress()))
    assert contents(table) == before
