"""A lite VACUUM: files that the log has removed since the last vacuum."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from deltalake import DeltaTable, write_deltalake
from tests.support.runs.vacuum_runs import (
    NO_RETENTION,
    done,
    files_below,
    live_files,
    refusal,
    run_vacuum,
    vacuum_on,
)
from tests.support.tables.vacuum_histories import (
    DAY_MS,
    NOW_MS,
    history_of_removals,
)
from tests.support.tables.vacuumable_tables import age, make_removals_old, old_file, write_vacuumable

from delta_log.log.log_segment import find_log_segment
from delta_log.snapshot.snapshot import Snapshot
from delta_log.storage.opening import open_storage
from delta_log.testing import FaultyStorage
from delta_maintenance.progress import SilentProgress
from delta_maintenance.vacuum.candidates import find_candidates
from delta_maintenance.vacuum.options import VacuumOptions


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return write_vacuumable(tmp_path / "table")


def test_a_lite_vacuum_starts_where_the_last_one_stopped(table: Path) -> None:
    make_removals_old(table)
    old_file(table / "orphan")
    before = files_below(table)
    report = done(run_vacuum(table, lite=True))
    assert report.metrics["numDeletedFiles"] == 6
    assert files_below(table) == live_files(table) | {"orphan"}
    assert before - files_below(table) == before - live_files(table) - {"orphan"}
    note = json.loads((table / "_delta_log" / "_last_vacuum_info").read_text())
    assert note == {"latestCommitVersionOutsideOfRetentionWindow": 6}
    assert done(run_vacuum(table, lite=True)).status == "nothing_to_do"
    write_deltalake(str(table), DeltaTable(str(table)).to_pyarrow_table(), mode="overwrite")
    age(table)
    make_removals_old(table)
    assert done(run_vacuum(table, lite=True)).metrics["numDeletedFiles"] == 2


def test_a_lite_vacuum_needs_all_commits_since_the_last_one(table: Path) -> None:
    DeltaTable(str(table)).create_checkpoint()
    (table / "_delta_log" / f"{0:020d}.json").unlink()
    assert "Run a full vacuum once" in refusal(run_vacuum(table, lite=True))
    done(run_vacuum(table))
    assert done(run_vacuum(table, lite=True)).status == "nothing_to_do"


def test_a_lite_vacuum_refuses_a_log_with_a_hole_that_a_checkpoint_covers(table: Path) -> None:
    DeltaTable(str(table)).create_checkpoint()
    (table / "_delta_log" / f"{2:020d}.json").unlink()
    before = files_below(table)
    assert "version 2 is not in the log" in refusal(run_vacuum(table, lite=True, **NO_RETENTION))
    for commit in (table / "_delta_log").glob("*.json"):
        commit.unlink()
    assert "version 0 is not in the log" in refusal(run_vacuum(table, lite=True, **NO_RETENTION))
    assert files_below(table) == before


def test_on_an_object_store_a_lite_vacuum_looks_at_a_file_just_before_it_deletes_it() -> None:
    history = history_of_removals("gone", "old", "young")
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
    outcome = vacuum_on(history.storage, lite=True)
    assert outcome.metrics["numDeletedFiles"] == 1
    assert outcome.metrics["sizeOfDeletedData"] == 3
    assert (outcome.facts["numAbsentFiles"], outcome.facts["numYoungFiles"]) == (1, 1)
    assert "young" in history.storage.objects
    # A young file is left, so the next lite vacuum must start where this one did.
    assert "_delta_log/_last_vacuum_info" not in history.storage.objects
    history.storage._clock_ms = later = NOW_MS + 8 * DAY_MS
    assert vacuum_on(history.storage, later, lite=True).metrics["numDeletedFiles"] == 1
    assert "_delta_log/_last_vacuum_info" in history.storage.objects


def test_a_vacuum_by_inventory_does_not_move_the_start_of_the_next_lite_one(
    table: Path, tmp_path: Path
) -> None:
    lines = [f"{table / key},1,false,1000" for key in live_files(table)]
    (tmp_path / "list.csv").write_text("path,length,isDir,modificationTime\n" + "\n".join(lines) + "\n")
    done(run_vacuum(table, inventory=str(tmp_path / "list.csv"), **NO_RETENTION))
    assert done(run_vacuum(table, lite=True, **NO_RETENTION)).metrics["numDeletedFiles"] == 6
