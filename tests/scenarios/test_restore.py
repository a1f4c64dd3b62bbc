"""RESTORE: the table is what it was; where it cannot be, the run is refused before it writes anything."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from tests.support.environment.corpus import Corpus, Entry, corpus_cases
from tests.support.runs import maintenance_runs
from tests.support.runs.maintenance_runs import mark_deleted
from tests.support.runs.vacuum_runs import NO_RETENTION, contents, done, refusal, run_vacuum
from tests.support.tables.hand_made_tables import column, write_log
from tests.support.tables.small_tables import write_days

from delta_log import Snapshot, Table
from delta_log.runtime import Runtime
from delta_log.testing import FaultyStorage
from delta_maintenance.cli.main import main
from delta_maintenance.contract import JobReport, JobSpec, TransactionId
from delta_maintenance.job import JobSite, run_job, run_on
from delta_maintenance.progress import SilentProgress
from delta_maintenance.text.report import render_report

#: Tables with an earlier version whose inline deletion vector is no Z85, so that we do not read its rows.
_NOT_Z85 = {"krs-cdf-table-with-dv"}


def restore(
    table: Path,
    *,
    run_id: str = "restoring",
    dry_run: bool = False,
    transaction: TransactionId | None = None,
    **options: Any,
) -> JobReport:
    spec = JobSpec("restore", str(table), run_id, options, dry_run=dry_run, transaction=transaction)
    return run_job(spec, JobSite(), SilentProgress())


def _state(snapshot: Snapshot) -> dict[str, Any]:
    """What RESTORE brings back: files with their vectors and row ids, schema, partition columns, properties."""
    columns = ["path", "partition_values", "size", "stats", "tags", "deletion_vector", "base_row_id"]
    rows = snapshot.files(columns).to_pylist()
    return {
        "files": sorted(rows, key=str),
        "schema": json.loads(snapshot.metadata.schemaString),
        "partition_columns": snapshot.partition_columns,
        "properties": {
            name: value for name, value in snapshot.properties.items() if "ommitTimestamp" not in name
        },
        "clustering": snapshot.domain_metadata.get("delta.clustering"),
    }


@pytest.fixture
def written(tmp_path: Path) -> Path:
    """Version 3 has four appends; then come a delete (4), a column (5) and an overwrite (6)."""
    path = tmp_path / "events"
    write_days(path, files=4, rows=5)
    DeltaTable(str(path)).delete("id < 5")
    more = pa.table({"day": [None], "id": [99], "more": ["x"]}).cast(
        pa.schema([("day", pa.date32()), ("id", pa.int64()), ("more", pa.string())])
    )
    write_deltalake(str(path), more, mode="append", schema_mode="merge")
    write_deltalake(str(path), more, mode="overwrite", schema_mode="overwrite")
    return path


@pytest.mark.parametrize("version", range(7))
def test_each_version_comes_back(written: Path, version: int) -> None:
    table = Table(str(written))
    target, before = table.snapshot(version), table.snapshot()
    planned = restore(written, dry_run=True, to_version=version)
    assert table.snapshot().version == before.version
    report = done(restore(written, to_version=version))
    assert report.plan == planned.plan
    restored = table.snapshot()
    assert _state(restored) == _state(target)
    assert restored.to_arrow().to_pylist() == target.to_arrow().to_pylist()
    assert DeltaTable(str(written)).to_pyarrow_table().num_rows == target.to_arrow().num_rows
    if version == before.version:
        assert (report.status, restored.version) == ("nothing_to_do", before.version)
        return
    (commit,) = table.history(1)
    assert (report.status, report.version, commit["operation"]) == ("committed", 7, "RESTORE")
    assert commit["operationParameters"] == {"version": version}
    assert commit["operationMetrics"] == report.metrics
    assert restore(written, to_version=version).status == "nothing_to_do"


@pytest.mark.slow
@pytest.mark.parametrize("entry", corpus_cases(lambda entry: entry["readable"] and entry["data"] == "full"))
def test_each_version_of_a_corpus_table_comes_back_or_is_refused_without_a_trace(
    entry: Entry, corpus: Corpus, tmp_path: Path
) -> None:
    latest = entry["latest_version"]
    for version in range(max(0, latest - 8), latest):
        path = corpus.copy_of(entry["name"], tmp_path / str(version))
        table, before = Table(str(path)), contents(path)
        report = restore(path, to_version=version)
        if report.error is not None:
            assert report.error.kind == "refused", report.error
            assert contents(path) == before
            continue
        restored, target = _state(table.snapshot()), _state(table.snapshot(version))
        for state in (restored, target):
            # A file that was never removed keeps what is said of it now: row ids, and statistics and tags as a checkpoint spells them.
            for file in state["files"]:
                for name in ("base_row_id", "stats", "tags"):
                    file.pop(name)
            state["properties"].pop("delta.columnMapping.maxColumnId", None)
        assert restored == target
        if entry["name"] in _NOT_Z85:
            continue
        rows = [snapshot.to_arrow() for snapshot in (table.snapshot(), table.snapshot(version))]
        assert corpus.digest(rows[0]) == corpus.digest(rows[1])


def test_rows_that_a_vector_hid_come_back(tmp_path: Path) -> None:
    write_days(tmp_path / "t", files=1, rows=10)
    maintenance_runs.enable_deletion_vectors(tmp_path / "t")
    table = Table(str(tmp_path / "t"))
    (key,) = maintenance_runs.keys(tmp_path / "t")
    first = mark_deleted(tmp_path / "t", {key: [1, 2]})
    mark_deleted(tmp_path / "t", {key: [1, 2, 3, 4]})
    report = done(restore(tmp_path / "t", to_version=first))
    assert table.snapshot().num_deleted_rows == 2
    assert table.changes(report.version or 0).read_all()["_change_type"].to_pylist() == ["insert", "insert"]


def test_a_time_chooses_the_version(written: Path) -> None:
    times = {commit["version"]: commit["timestamp"] for commit in Table(str(written)).history()}
    moment = datetime.fromtimestamp(times[3] / 1000, timezone.utc).isoformat()
    report = done(restore(written, to_timestamp=moment))
    assert report.plan is not None
    assert report.plan["version"] == 3
    (commit,) = Table(str(written)).history(1)
    assert commit["operationParameters"] == {"timestamp": moment}


def test_a_run_is_undone_by_its_id(tmp_path: Path) -> None:
    write_days(tmp_path / "t", files=4)
    before = _state(Table(str(tmp_path / "t")).snapshot())
    assert maintenance_runs.run(tmp_path / "t", run_id="bad-run").status == "committed"
    report = done(restore(tmp_path / "t", undo_run="bad-run"))
    assert report.plan is not None
    assert report.plan["version"] == 3
    assert _state(Table(str(tmp_path / "t")).snapshot()) == before


def test_a_retry_of_a_task_undoes_nothing_twice(tmp_path: Path) -> None:
    write_days(tmp_path / "t", files=4)
    assert maintenance_runs.run(tmp_path / "t", run_id="bad-run").status == "committed"
    tries = [
        done(restore(tmp_path / "t", transaction=TransactionId("task", 5), undo_run="bad-run"))
        for _ in range(2)
    ]
    assert [(report.status, report.version) for report in tries] == [("committed", 5), ("already_done", 5)]
    assert "an earlier try committed version 5" in render_report(tries[1].to_dict())


def test_a_run_is_not_undone_together_with_what_others_did_since(tmp_path: Path) -> None:
    write_days(tmp_path / "t", files=4)
    assert maintenance_runs.run(tmp_path / "t", run_id="bad-run").status == "committed"
    write_days(tmp_path / "t", files=1)
    said = refusal(restore(tmp_path / "t", undo_run="bad-run"))
    assert "version 5 changed the table after it" in said
    assert "restore version 3 by to_version" in said
    assert "holds no commit of a run other" in refusal(restore(tmp_path / "t", undo_run="other"))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "needs exactly one of to_version, to_timestamp, undo_run; given: none"),
        ({"to_version": 1, "undo_run": "a"}, "given: to_version, undo_run"),
        ({"to_version": 99}, "has no version for version 99"),
        ({"to_version": -1}, "it must be a version number"),
        ({"to_timestamp": "soon"}, "it must be a time such as"),
    ],
)
def test_a_request_without_one_version_is_refused(written: Path, options: dict[str, Any], words: str) -> None:
    assert words in refusal(restore(written, **options))


def test_files_that_vacuum_deleted_are_named_with_the_nearest_whole_versions(written: Path) -> None:
    table = Table(str(written))
    kept = set(table.snapshot(2).files(["key"])["key"].to_pylist())
    (lost,) = set(table.snapshot(3).files(["key"])["key"].to_pylist()) - kept
    before = contents(written)
    (written / lost).unlink()
    report = restore(written, to_version=4)
    assert report.error is not None
    assert report.error.type == "RestoreRefused"
    assert (report.error.facts["missing"], report.error.facts["num_missing"]) == ([lost], 1)
    assert (report.error.facts["newest_before"], report.error.facts["oldest_after"]) == (2, None)
    assert "Restore version 2, the nearest with all files" in report.error.message
    assert contents(written) == {key: data for key, data in before.items() if key != lost}
    assert restore(written, to_version=2).status == "committed"


def test_after_a_vacuum_without_retention_no_earlier_state_is_restored(written: Path) -> None:
    done(run_vacuum(written, **NO_RETENTION))
    said = refusal(restore(written, to_version=3))
    # VACUUM has committed twice after version 6.
    assert "Restore version 6, the nearest with all files" in said


def test_where_the_state_before_the_latest_is_gone_no_version_is_named(written: Path) -> None:
    for path in written.rglob("*.parquet"):
        if path.relative_to(written).as_posix() not in maintenance_runs.keys(written):
            path.unlink()
    said = refusal(restore(written, to_version=5))
    assert "No other version before the latest has all files" in said


def test_an_append_only_table_is_refused(written: Path) -> None:
    DeltaTable(str(written)).alter.set_table_properties({"delta.appendOnly": "true"})
    assert "delta.appendOnly allows no commit to remove rows" in refusal(restore(written, to_version=3))


def _identity_table(path: Path, step: int, marks: tuple[int | None, int | None]) -> Path:
    """Two versions of a table without files, whose identity column has reached two high-water marks."""
    field = column("id", "long")
    schemas = []
    for mark in marks:
        facts = {
            "delta.identity.start": 1,
            "delta.identity.step": step,
            "delta.identity.allowExplicitInsert": False,
        }
        if mark is not None:
            facts["delta.identity.highWaterMark"] = mark
        schemas.append({**field, "metadata": facts})
    write_log(path, [schemas[0]], [])
    first = (path / "_delta_log" / f"{0:020}.json").read_text().splitlines()
    metadata = json.loads(first[1])
    metadata["metaData"]["schemaString"] = json.dumps({"type": "struct", "fields": [schemas[1]]})
    metadata["metaData"]["description"] = "now"
    (path / "_delta_log" / f"{1:020}.json").write_text(json.dumps(metadata) + "\n")
    return path


@pytest.mark.parametrize(
    ("step", "marks", "reached"),
    [(1, (5, 9), 9), (1, (9, 5), 9), (-1, (-5, -9), -9), (1, (None, 7), 7), (1, (7, None), 7)],
)
def test_identity_columns_never_give_a_value_twice(
    tmp_path: Path, step: int, marks: tuple[int | None, int | None], reached: int
) -> None:
    table = _identity_table(tmp_path / "t", step, marks)
    done(restore(table, to_version=0))
    (field,) = json.loads(Table(str(table)).snapshot().metadata.schemaString)["fields"]
    assert field["metadata"]["delta.identity.highWaterMark"] == reached
    assert Table(str(table)).snapshot().metadata.description is None


def _second_commit(table: Path, *actions: dict[str, Any]) -> None:
    text = "".join(json.dumps(action) + "\n" for action in actions)
    (table / "_delta_log" / f"{1:020}.json").write_text(text)


def test_identity_columns_are_the_same_under_another_name(tmp_path: Path) -> None:
    facts = {"delta.identity.step": 1, "delta.columnMapping.physicalName": "p", "delta.columnMapping.id": 1}
    then, now = (
        {**column(name, "long"), "metadata": {**facts, "delta.identity.highWaterMark": mark}}
        for name, mark in (("old", 100), ("new", 500))
    )
    mapped = {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "1"}
    table = write_log(tmp_path / "t", [then], [], configuration=mapped)
    commit = table / "_delta_log" / f"{0:020}.json"
    commit.write_text(
        commit.read_text().replace(
            '"minReaderVersion": 1, "minWriterVersion": 2', '"minReaderVersion": 2, "minWriterVersion": 6'
        )
    )
    metadata = json.loads(commit.read_text().splitlines()[1])
    metadata["metaData"]["schemaString"] = json.dumps({"type": "struct", "fields": [now]})
    _second_commit(table, metadata)
    done(restore(table, to_version=0))
    (field,) = json.loads(Table(str(table)).snapshot().metadata.schemaString)["fields"]
    assert (field["name"], field["metadata"]["delta.identity.highWaterMark"]) == ("old", 500)


@pytest.mark.parametrize("ids_now", [None, 0], ids=["ids are gone", "the mark is gone"])
def test_row_ids_that_the_table_has_dropped_do_not_come_back(tmp_path: Path, ids_now: int | None) -> None:
    tracked = {"delta.enableRowTracking": "true"}
    file = {"path": "f.parquet", "size": 1, "stats": '{"numRecords":2}', "defaultRowCommitVersion": 0}
    table = write_log(
        tmp_path / "t", [column("id", "long")], [{**file, "baseRowId": 0}], configuration=tracked
    )
    (table / "f.parquet").write_bytes(b"1")
    commit = table / "_delta_log" / f"{0:020}.json"
    lines = [json.loads(line) for line in commit.read_text().splitlines()]
    domain = {"domain": "delta.rowTracking", "configuration": '{"rowIdHighWaterMark":1}', "removed": False}
    features = {"writerFeatures": ["rowTracking", "domainMetadata"]}
    lines[0] = {"protocol": {"minReaderVersion": 1, "minWriterVersion": 7, **features}}
    commit.write_text("".join(json.dumps(one) + "\n" for one in [*lines, {"domainMetadata": domain}]))
    again = {**file, "baseRowId": ids_now, "partitionValues": {}, "modificationTime": 1, "dataChange": False}
    dropped = {"metaData": {**lines[1]["metaData"], "configuration": {}}}
    _second_commit(table, dropped, {"add": again}, {"domainMetadata": {**domain, "removed": True}})
    told = refusal(restore(table, to_version=0))
    assert "dropped row ids" in told
    assert Table(str(table)).snapshot().version == 1


def test_the_log_that_a_dropped_feature_needs_stays_protected(tmp_path: Path) -> None:
    table = write_log(tmp_path / "t", [column("id", "long")], [])
    metadata = json.loads((table / "_delta_log" / f"{0:020}.json").read_text().splitlines()[1])
    boundary = {"delta.requireCheckpointProtectionBeforeVersion": "10"}
    _second_commit(table, {"metaData": {**metadata["metaData"], "configuration": {**boundary, "more": "x"}}})
    done(restore(table, to_version=0))
    assert Table(str(table)).snapshot().properties == boundary


def test_features_of_the_protocol_stay(tmp_path: Path) -> None:
    write_days(tmp_path / "t", files=2)
    maintenance_runs.enable_deletion_vectors(tmp_path / "t")
    write_days(tmp_path / "t", files=1)
    table = Table(str(tmp_path / "t"))
    protocol = table.snapshot().protocol
    report = done(restore(tmp_path / "t", to_version=1))
    assert table.snapshot().protocol == protocol
    assert report.plan is not None
    assert not report.plan["changesProtocol"]
    assert "delta.enableDeletionVectors" not in table.snapshot().properties


@pytest.mark.parametrize(
    ("meanwhile", "error"),
    [
        (lambda path: write_days(path, files=1), "ConcurrentAppend"),
        (
            lambda path: DeltaTable(str(path)).alter.set_table_properties({"delta.appendOnly": "false"}),
            "MetadataChanged",
        ),
        (
            lambda path: DeltaTable(str(path)).alter.set_table_properties(
                {"delta.checkpointPolicy": "classic"}
            ),
            "MetadataChanged",
        ),
        (lambda path: DeltaTable(str(path)).delete("id = 19"), "ConcurrentDelete"),
    ],
)
def test_a_commit_of_another_writer_wins(
    tmp_path: Path, meanwhile: Callable[[Path], object], error: str
) -> None:
    path = tmp_path / "t"
    write_days(path, files=4, rows=5)
    DeltaTable(str(path)).alter.set_table_properties({"delta.logRetentionDuration": "interval 9 days"})
    opened = Table(str(path))
    pending = [meanwhile]

    def before(name: str, key: str) -> None:
        if name == "put_if_absent" and pending:
            pending.pop()(path)

    opened.storage = FaultyStorage(opened.storage, before)
    spec = JobSpec("restore", str(path), "restoring", {"to_version": 2})
    report = run_on(opened, spec, JobSite(runtime=Runtime(sleep=lambda seconds: None)), SilentProgress())
    assert report.error is not None
    assert (report.error.type, report.error.kind) == (error, "conflict")
    assert Table(str(path)).history(1)[0]["operation"] != "RESTORE"


def test_the_command_says_what_it_restores(written: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["restore", str(written), "--to-version", "3", "--dry-run"]) == 0
    assert "Would restore version 3" in capsys.readouterr().out
    assert main(["restore", str(written), "--to-version", "3"]) == 0
    said = capsys.readouterr().out
    assert "Committed version 7, which restores version 3" in said
    assert "also restored: metadata" in said
    assert main(["restore", str(written), "--to-version", "3"]) == 0
    assert "Nothing to do" in capsys.readouterr().out
