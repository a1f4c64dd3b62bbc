"""Row ids and row commit versions outlive OPTIMIZE and REORG PURGE, and new ids are never given twice."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from tests.support.repetition import examples
from tests.support.runs.maintenance_runs import WatchedEngine, mark_deleted, run
from tests.support.tables.rewritable_tables import (
    ROW_TRACKING_COLUMNS,
    File,
    GeneratedTable,
    as_multiset,
    generated_tables,
)

from delta_log import Table
from delta_log.errors import InvalidMetadata
from delta_log.log.actions import decode_actions
from delta_log.log.file_names import commit_key
from delta_maintenance.errors import TaskFailed

WAYS: dict[str, tuple[str, dict[str, Any]]] = {
    "optimize": ("optimize", {"full": True, "verify": "full"}),
    "batches": (
        "optimize",
        {"full": True, "batch_size_bytes": 1, "target_size_bytes": 2000, "min_file_size_bytes": 0},
    ),
    "purge": ("purge", {"target_size_bytes": 2000}),
    "copied": ("optimize", {"full": True, "rewrite": "copy", "verify": "full"}),
}


def tracked_rows(path: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = Table(str(path)).snapshot().scan(row_tracking=True).read_all().to_pylist()
    return rows


def small_table() -> GeneratedTable:
    rows = [{"long": number} for number in range(6)]
    files = [
        File(("long",), rows, frozenset({1}), None, extra=extra, has_stats=True, row_group=2)
        for extra in (False, True)
    ]
    return GeneratedTable(("long",), "none", False, False, tuple(files), row_tracking=True)


@pytest.mark.parametrize("way", WAYS)
@examples(8)
@given(table=generated_tables().map(lambda table: replace(table, row_tracking=True)))
def test_every_row_keeps_its_id_and_its_commit_version(way: str, table: GeneratedTable) -> None:
    operation, options = WAYS[way]
    with TemporaryDirectory() as directory:
        path = Path(directory) / "t"
        table.write(path)
        before = tracked_rows(path)
        report = run(path, operation, **options)
        after = tracked_rows(path)
        assert as_multiset(after) == as_multiset(before)
        ids = [row["_row_id"] for row in after]
        assert len(set(ids)) == len(ids)
        check_given_ids(path, table.first_row_id(len(table.files)))
        assert run(path, operation, run_id="again", **options).status == "nothing_to_do", report
        # What was rewritten is rewritten again, now from the columns that hold the ids.
        rewrite = options.get("rewrite", "auto")
        run(path, "optimize", run_id="more", full=True, target_size_bytes=100_000, rewrite=rewrite)
        assert as_multiset(tracked_rows(path)) == as_multiset(before)
        check_given_ids(path, table.first_row_id(len(table.files)))


class Killed(BaseException):
    """What ends a process in the middle of its work."""


def test_what_was_finished_before_row_ids_were_given_anew_is_done_again(tmp_path: Path) -> None:
    """As a backfill does it: the same files, added once more."""
    table = small_table()
    table.write(tmp_path)

    def end(_: int) -> None:
        raise Killed

    with pytest.raises(Killed):
        run(tmp_path, engine=WatchedEngine(end), full=True)
    version = Table(str(tmp_path)).snapshot().version
    adds = [
        action.add
        for number in range(version + 1)
        for action in decode_actions((tmp_path / commit_key(number)).read_bytes(), "commit")
        if action.add is not None
    ]
    actions: list[dict[str, Any]] = [{"commitInfo": {"timestamp": 1, "operation": "BACKFILL"}}]
    for add in adds:
        assert add.baseRowId is not None
        again = msgspec.to_builtins(add) | {"baseRowId": add.baseRowId + 100, "dataChange": False}
        actions.append({"add": again | {"defaultRowCommitVersion": version + 1}})
    mark = {"domain": "delta.rowTracking", "configuration": '{"rowIdHighWaterMark":199}', "removed": False}
    text = "".join(json.dumps(action) + "\n" for action in [*actions, {"domainMetadata": mark}])
    (tmp_path / commit_key(version + 1)).write_text(text)
    before = tracked_rows(tmp_path)
    assert min(row["_row_id"] for row in before) >= 100
    assert run(tmp_path, full=True).status == "committed"
    assert as_multiset(tracked_rows(tmp_path)) == as_multiset(before)


def check_given_ids(path: Path, mark: int) -> None:
    """Each commit gives ids above all that were ever given, says so, and that it kept those of the rows."""
    for version in range(1, Table(str(path)).snapshot().version + 1):
        actions = decode_actions((path / commit_key(version)).read_bytes(), "commit")
        info = actions[0].commitInfo
        assert info is not None
        assert info["tags"]["delta.rowTracking.preserved"] == "true"
        for action in actions:
            if action.add is not None:
                assert action.add.baseRowId == mark
                assert action.add.defaultRowCommitVersion == version
                mark += json.loads(action.add.stats or "{}")["numRecords"]
        domains = [action.domainMetadata for action in actions if action.domainMetadata is not None]
        if any(action.add is not None for action in actions):
            assert [domain.domain for domain in domains] == ["delta.rowTracking"]
            assert json.loads(domains[0].configuration) == {"rowIdHighWaterMark": mark - 1}


def test_the_columns_that_hold_ids_have_no_statistics(tmp_path: Path) -> None:
    small_table().write(tmp_path)
    run(tmp_path, full=True)
    (file,) = Table(str(tmp_path)).snapshot().files().to_pylist()
    assert set(ROW_TRACKING_COLUMNS.values()) <= set(pq.read_schema(tmp_path / file["key"]).names)
    assert json.loads(file["stats"])["nullCount"] == {"long": 0}


def test_a_row_that_is_deleted_after_a_compaction_takes_its_id_with_it(tmp_path: Path) -> None:
    small_table().write(tmp_path)
    run(tmp_path, full=True)
    before = tracked_rows(tmp_path)
    (key,) = Table(str(tmp_path)).snapshot().files(["key"]).column("key").to_pylist()
    mark_deleted(tmp_path, {key: [0, 3]})
    run(tmp_path, "purge", run_id="purge")
    assert tracked_rows(tmp_path) == [row for number, row in enumerate(before) if number not in (0, 3)]


def test_a_file_without_a_base_id_is_named_and_nothing_is_committed(tmp_path: Path) -> None:
    small_table().write(tmp_path)
    commit = tmp_path / commit_key(0)
    lines = [json.loads(line) for line in commit.read_text().splitlines()]
    for line in lines:
        line.get("add", {}).pop("baseRowId", None)
    commit.write_text("".join(json.dumps(line) + "\n" for line in lines))
    with pytest.raises(TaskFailed, match="no baseRowId"):
        run(tmp_path, full=True)
    assert Table(str(tmp_path)).snapshot().version == 0


def test_properties_that_do_not_name_the_columns_are_refused(tmp_path: Path) -> None:
    small_table().write(tmp_path)
    commit = tmp_path / commit_key(0)
    commit.write_text(commit.read_text().replace("materializedRowIdColumnName", "materializedOtherName"))
    with pytest.raises(InvalidMetadata, match="not named"):
        run(tmp_path, full=True)
    assert Table(str(tmp_path)).snapshot().version == 0
