"""VACUUM where something is not as it looks: links, other tables, other clocks, logs with holes, rights that end."""

from __future__ import annotations

import json
import os
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from tests.support.runs.vacuum_runs import age, done, files_below, run_vacuum
from tests.support.tables.small_tables import write_days
from tests.support.tables.vacuum_histories import DAY_MS, NOW_MS, PROTOCOL, RUNTIME, History, metadata

from delta_log import Table
from delta_log.errors import StorageError
from delta_log.log.log_segment import find_log_segment
from delta_log.runtime import Runtime
from delta_log.snapshot.snapshot import Snapshot
from delta_log.storage.opening import open_storage
from delta_log.storage.storage import Storage
from delta_log.testing import FaultyStorage
from delta_maintenance.contract import JobReport
from delta_maintenance.errors import VacuumRefused
from delta_maintenance.progress import SilentProgress
from delta_maintenance.vacuum.candidates import find_candidates
from delta_maintenance.vacuum.execution import VacuumOutcome, execute_plan
from delta_maintenance.vacuum.options import VacuumOptions

NO_CHECK: dict[str, Any] = {"retain_hours": 0, "retention_check": False}


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Two partitions; of its six files four were removed by a compaction. All of it is a month old."""
    path = tmp_path / "table"
    write_days(path)
    DeltaTable(str(path)).optimize.compact()
    age(path)
    return path


def live(table: Path) -> set[str]:
    return set(Table(str(table)).snapshot().files(["key"]).column("key").to_pylist())


def refusal(report: JobReport) -> str:
    assert report.error is not None
    assert report.error.kind == "refused", report.error
    return str(report.error.message)


def history_of(*removed: str, size: int | None = 4) -> History:
    """A table in memory with one live file, and others that were removed a month ago."""
    history = History()
    history.commit([{"protocol": PROTOCOL}, {"metaData": metadata()}], NOW_MS - 31 * DAY_MS)
    for key in ("live", *removed):
        history.put(key, NOW_MS - 31 * DAY_MS)
        history.live[key] = None
        history.commit([history.add(key)], NOW_MS - 31 * DAY_MS)
    for key in removed:
        remove = history.remove(key, NOW_MS - 30 * DAY_MS)
        remove["remove"]["size"] = size
        del history.live[key]
        history.commit([remove], NOW_MS - 30 * DAY_MS)
    history.storage._clock_ms = NOW_MS
    return history


def run(storage: Storage, now_ms: int = NOW_MS, **options: Any) -> VacuumOutcome:
    snapshot = Snapshot(storage, find_log_segment(storage))
    found = find_candidates(
        storage, open_storage, snapshot, VacuumOptions(**options), now_ms, SilentProgress()
    )
    return execute_plan(storage, found, SilentProgress(), RUNTIME, {})


@pytest.mark.parametrize("mode", [{}, {"lite": True}])
def test_what_a_link_of_the_table_leads_to_is_not_taken_for_an_orphan(
    table: Path, mode: dict[str, Any]
) -> None:
    day = table / "day=2024-01-01"
    day.rename(table / "real")
    day.symlink_to(table / "real")
    if mode:  # what lies there was once a file of the table under that name
        (file,) = (
            path.name for path in (table / "real").iterdir() if f"day=2024-01-01/{path.name}" in live(table)
        )
        commit = table / "_delta_log" / f"{7:020d}.json"
        commit.write_text(
            json.dumps({"remove": {"path": f"real/{file}", "dataChange": True, "deletionTimestamp": 1}})
        )
        age(table)
    before = files_below(table)
    message = refusal(run_vacuum(table, **NO_CHECK, **mode))
    assert "is reached through the symbolic link day=2024-01-01" in message
    assert files_below(table) == before


def test_a_file_that_is_a_link_keeps_what_it_leads_to(table: Path) -> None:
    file = table / min(live(table))
    file.rename(table / "moved")
    file.symlink_to(table / "moved")
    message = refusal(run_vacuum(table, **NO_CHECK))
    assert f"is reached through the symbolic link {file.relative_to(table)}" in message
    assert (table / "moved").exists()


def test_a_link_within_the_table_that_nobody_needs_is_no_reason_to_refuse(table: Path) -> None:
    (table / "link").symlink_to(table / "day=2024-01-01")
    done(run_vacuum(table, **NO_CHECK))
    assert files_below(table) == live(table) | {"link"}


def test_another_table_below_is_found_though_an_inventory_shows_its_data_alone(
    table: Path, tmp_path: Path
) -> None:
    write_days(table / "day=2024-01-01" / "inner")
    age(table)
    lines = [f"{path},{path.stat().st_size},false,1000" for path in table.rglob("*.parquet")]
    (tmp_path / "list.csv").write_text("path,length,isDir,modificationTime\n" + "\n".join(lines) + "\n")
    before = files_below(table)
    message = refusal(run_vacuum(table, inventory=str(tmp_path / "list.csv"), **NO_CHECK))
    assert "Another Delta table lies below this one: day=2024-01-01/inner" in message
    assert files_below(table) == before


@pytest.mark.parametrize("mode", ["lite", "inventory"])
def test_a_log_without_its_files_is_refused_in_every_mode(table: Path, tmp_path: Path, mode: str) -> None:
    options: dict[str, Any] = {"lite": True}
    if mode == "inventory":
        lines = [f"{path},1,false,1000" for path in table.rglob("*.parquet")]
        (tmp_path / "list.csv").write_text("path,length,isDir,modificationTime\n" + "\n".join(lines) + "\n")
        options = {"inventory": str(tmp_path / "list.csv")}
    for key in live(table):
        (table / key).unlink()
    before = files_below(table)
    assert before
    assert "live files of version 6 are not in the store" in refusal(run_vacuum(table, **options, **NO_CHECK))
    assert files_below(table) == before


def test_a_clock_that_is_ahead_of_the_store_deletes_nothing(table: Path) -> None:
    young = table / "day=2024-01-01" / "in-flight.parquet"
    young.write_bytes(b"young")
    next_year = Runtime(now_ms=lambda: int(time.time() * 1000) + 365 * DAY_MS)
    assert "minutes ahead of the store's" in refusal(run_vacuum(table, runtime=next_year))
    assert young.exists()
    end = Table(str(table)).history(1)[0]
    assert end["operationParameters"] == {"status": "FAILED"}


def test_a_lite_vacuum_refuses_a_log_with_a_hole_that_a_checkpoint_covers(table: Path) -> None:
    DeltaTable(str(table)).create_checkpoint()
    (table / "_delta_log" / f"{2:020d}.json").unlink()
    before = files_below(table)
    assert "version 2 is not in the log" in refusal(run_vacuum(table, lite=True, **NO_CHECK))
    for commit in (table / "_delta_log").glob("*.json"):
        commit.unlink()
    assert "version 0 is not in the log" in refusal(run_vacuum(table, lite=True, **NO_CHECK))
    assert files_below(table) == before


def test_on_an_object_store_a_lite_vacuum_looks_at_files_when_they_are_about_to_go() -> None:
    history = history_of("gone", "old", "young")
    del history.storage.objects["gone"]
    history.put("young", NOW_MS - 1_000)
    heads: list[str] = []
    counting = FaultyStorage(
        history.storage, before=lambda name, key: heads.append(key) if name == "head" else None
    )
    snapshot = Snapshot(counting, find_log_segment(counting))
    planned = find_candidates(
        counting, open_storage, snapshot, VacuumOptions(lite=True), NOW_MS, SilentProgress()
    )
    assert planned.plan.candidates.column("key").to_pylist() == ["gone", "old", "young"]
    assert planned.plan.size_bytes == 12
    assert heads == []
    outcome = run(history.storage, lite=True)
    assert outcome.metrics["numDeletedFiles"] == 1
    assert outcome.metrics["sizeOfDeletedData"] == 3
    assert (outcome.facts["numAbsentFiles"], outcome.facts["numYoungFiles"]) == (1, 1)
    assert "young" in history.storage.objects
    # What is left is not forgotten: the next one starts where this one did.
    assert "_delta_log/_last_vacuum_info" not in history.storage.objects
    history.storage._clock_ms = later = NOW_MS + 8 * DAY_MS
    assert run(history.storage, later, lite=True).metrics["numDeletedFiles"] == 1
    assert "_delta_log/_last_vacuum_info" in history.storage.objects


def test_an_inventory_does_not_speak_for_what_is_newer_than_it(table: Path, tmp_path: Path) -> None:
    lines = [f"{table / key},1,false,1000" for key in live(table)]
    (tmp_path / "list.csv").write_text("path,length,isDir,modificationTime\n" + "\n".join(lines) + "\n")
    done(run_vacuum(table, inventory=str(tmp_path / "list.csv"), **NO_CHECK))
    assert done(run_vacuum(table, lite=True, **NO_CHECK)).metrics["numDeletedFiles"] == 6


def test_rights_that_end_half_way_are_told_with_what_is_gone_and_what_is_left() -> None:
    names = [f"part-{number:05d}" for number in range(9_000)]
    history = history_of()
    for name in names:
        history.put(name, NOW_MS - 30 * DAY_MS)

    def refuse(name: str, key: str) -> None:
        if name == "delete" and key >= "part-05000":
            raise StorageError(f"{key}: access was denied.", key)

    with pytest.raises(Exception, match=r"5,000 files .* were deleted, 4,000 are left") as caught:
        run(FaultyStorage(history.storage, before=refuse))
    assert (caught.value.deleted_files, caught.value.remaining_files) == (5_000, 4_000)  # type: ignore[attr-defined]
    last = max(
        key for key in history.storage.objects if key.startswith("_delta_log/") and key.endswith(".json")
    )
    assert b'"status":"FAILED"' in history.storage.objects[last][0]
    assert run(history.storage).metrics["numDeletedFiles"] == 4_000


def test_an_error_that_nobody_foresaw_is_recorded_too() -> None:
    history = history_of("old")

    def fail(name: str, key: str) -> None:
        if name == "delete":
            raise MemoryError

    with pytest.raises(MemoryError):
        run(FaultyStorage(history.storage, before=fail))
    ends = [body for body, _ in history.storage.objects.values() if b"VACUUM END" in body]
    assert len(ends) == 1
    assert b'"status":"FAILED"' in ends[0]


def test_a_dry_run_proves_where_a_proof_is_demanded(table: Path) -> None:
    (table / "orphan").write_bytes(b"x")
    os.utime(table / "orphan", (1, 1))
    plan = done(run_vacuum(table, dry_run=True, require_proof=True)).plan
    assert plan is not None
    assert plan["proof"] == "commits"
    DeltaTable(str(table)).create_checkpoint()
    for path in (table / "_delta_log").iterdir():
        if path.name.endswith((".crc", f"{0:020d}.json")):
            path.unlink()
    assert "cannot be proved" in refusal(run_vacuum(table, dry_run=True, require_proof=True))


@pytest.mark.parametrize("line", ['{"add":7}', '{"remove":["a"]}', '{"add":{}}', "[1]", "7", "[" * 5000])
def test_a_commit_before_the_checkpoint_that_is_none_is_named(table: Path, line: str) -> None:
    DeltaTable(str(table)).create_checkpoint()
    first = table / "_delta_log" / f"{0:020}.json"
    first.write_text(line + "\n")
    age(
        table
    )  # of what was committed since the cutoff, the first reading of the log has looked at it already
    before = files_below(table)
    report = run_vacuum(table, retain_hours=0, retention_check=False)
    assert report.error is not None
    assert (report.error.type, report.error.kind) == ("VacuumRefused", "refused")
    assert f"{0:020}.json cannot be read as a commit" in report.error.message
    assert files_below(table) == before


def test_another_tables_log_in_this_place_is_refused(table: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    write_days(other)
    shutil.rmtree(table / "_delta_log")
    shutil.copytree(other / "_delta_log", table / "_delta_log")
    age(table)
    before = files_below(table)
    assert "are not in the store" in refusal(run_vacuum(table, **NO_CHECK))
    assert files_below(table) == before


def test_a_table_that_is_replaced_meanwhile_is_left_alone() -> None:
    history = history_of("old")
    written: list[str] = []

    def replace(name: str, key: str) -> None:
        if name == "list_tree" and not written:
            written.append(key)
            history.commit([{"metaData": metadata(table_id="another")}], NOW_MS)

    with pytest.raises(VacuumRefused, match="was another one a moment ago"):
        run(FaultyStorage(history.storage, before=replace))
    assert "old" in history.storage.objects
