"""Which files and directories a plan names, and which plans are refused."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from deltalake import DeltaTable
from tests.support.runs.vacuum_runs import (
    NO_RETENTION,
    done,
    files_below,
    live_files,
    refusal,
    run_vacuum,
)
from tests.support.tables.vacuumable_tables import age, make_removals_old, old_file, write_vacuumable


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return write_vacuumable(tmp_path / "table")


def test_removed_files_are_deleted_after_the_retention(table: Path) -> None:
    # By the timestamps in the log, the files were removed a moment ago.
    assert done(run_vacuum(table)).status == "nothing_to_do"
    make_removals_old(table)
    before = files_below(table)
    report = done(run_vacuum(table))
    assert files_below(table) == live_files(table)
    assert report.plan is not None
    assert report.plan["reasons"].keys() == {"expired_tombstone"}
    assert report.metrics["numDeletedFiles"] == len(before) - len(live_files(table)) == 6
    assert DeltaTable(str(table)).to_pyarrow_table().num_rows == 600


def test_young_files_stay(table: Path) -> None:
    (table / "day=2024-01-01" / "in-flight.parquet").write_bytes(b"young")
    old_file(table / "orphan.parquet")
    done(run_vacuum(table))
    assert "day=2024-01-01/in-flight.parquet" in files_below(table)
    assert "orphan.parquet" not in files_below(table)


def test_change_data_is_deleted_by_its_age_alone(table: Path) -> None:
    old_file(table / "_change_data" / "day=2024-01-01" / "cdc-1.parquet")
    (table / "_change_data" / "cdc-2.parquet").write_bytes(b"young")
    report = done(run_vacuum(table))
    assert report.plan is not None
    assert report.plan["reasons"] == {"old_change_data": {"numFiles": 1, "numBytes": 3}}
    assert "_change_data/cdc-2.parquet" in files_below(table)
    assert not (table / "_change_data" / "day=2024-01-01").exists()


def test_hidden_names_and_links_are_never_touched(table: Path, tmp_path: Path) -> None:
    kept = ["_private/x", ".cache/x", "day=2024-01-01/_temporary/x", "day=2024-01-01/.x.crc", "_SUCCESS"]
    for name in kept:
        old_file(table / name)
    old_file(tmp_path / "outside" / "file")
    (table / "link").symlink_to(tmp_path / "outside")
    (table / "link.parquet").symlink_to(tmp_path / "outside" / "file")
    done(run_vacuum(table, **NO_RETENTION))
    assert files_below(table) == live_files(table) | set(kept) | {"link", "link.parquet"}
    assert (tmp_path / "outside" / "file").exists()


def test_directories_that_become_empty_are_deleted_and_young_ones_stay(table: Path) -> None:
    old_file(table / "a" / "b" / "orphan")
    old_file(table / "full" / ".hidden")
    (table / "young").mkdir()
    (table / "old" / "er").mkdir(parents=True)
    for path in (table / "old" / "er", table / "old", table / "a"):
        os.utime(path, (1, 1))
    planned = run_vacuum(table, dry_run=True)
    report = done(run_vacuum(table))
    assert planned.plan is not None
    assert planned.plan["numDirectoriesToDelete"] == report.metrics["numDeletedDirectories"] == 4
    left = {path.name for path in table.iterdir() if path.is_dir()}
    assert left == {"_delta_log", "day=2024-01-01", "day=2024-01-02", "full", "young"}


def test_a_predicate_narrows_what_is_deleted(table: Path) -> None:
    make_removals_old(table)
    for name in ("orphan", "day=2024-01-01/orphan", "day=2024-01-02/orphan", "day=garbage/orphan"):
        old_file(table / name)
    before = files_below(table)
    done(run_vacuum(table, where="day = '2024-01-02'"))
    gone = before - files_below(table)
    assert len(gone) == 4
    assert all(key.startswith("day=2024-01-02/") for key in gone)
    assert not (table / "_delta_log" / "_last_vacuum_info").exists()


def test_a_copy_whose_log_names_the_old_place_is_refused(table: Path, tmp_path: Path) -> None:
    for commit in (table / "_delta_log").glob("*.json"):
        commit.write_text(commit.read_text().replace('"path":"day', f'"path":"file://{table}/day'))
    copy = Path(shutil.copytree(table, tmp_path / "copy"))
    age(copy)
    before = files_below(copy)
    assert "Nothing was deleted" in refusal(run_vacuum(copy, **NO_RETENTION))
    assert files_below(copy) == before
    # At the old address, the absolute paths of the log are right.
    done(run_vacuum(table, **NO_RETENTION))
    assert files_below(table) == live_files(table)


def test_an_approved_plan_may_not_grow(table: Path) -> None:
    old_file(table / "orphan")
    approved = done(run_vacuum(table, dry_run=True)).plan
    old_file(table / "another")
    assert "grown beyond what was approved" in refusal(run_vacuum(table, approved=approved))
    (table / "another").unlink()
    make_removals_old(
        table
    )  # the run keeps the cutoff of the approved plan, so newly expired files do not count
    assert done(run_vacuum(table, approved=done(run_vacuum(table, dry_run=True)).plan)).status == "committed"
