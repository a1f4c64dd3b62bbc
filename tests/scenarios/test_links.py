"""Symbolic links in a table's directory: no operation reads, writes or deletes anything behind them."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.support.runs.maintenance_runs import WatchedEngine
from tests.support.runs.maintenance_runs import run as rewrite
from tests.support.runs.vacuum_runs import NO_RETENTION, contents, done, plan_on, run_vacuum
from tests.support.tables.small_tables import write_days
from tests.support.tables.vacuumable_tables import age, write_vacuumable

from delta_log import Table
from delta_log.errors import SymbolicLinkRefused
from delta_log.runtime import Runtime
from delta_log.storage.opening import open_storage
from delta_log.testing import FaultyStorage
from delta_maintenance.contract import JobReport, JobSpec
from delta_maintenance.errors import VacuumIncomplete
from delta_maintenance.job import JobSite, run_job
from delta_maintenance.listing.hidden_names import HiddenNames
from delta_maintenance.progress import SilentProgress
from delta_maintenance.vacuum.execution import execute_plan
from delta_maintenance.vacuum.quarantine.restoration import restore

DAY = "day=2024-01-01"


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return write_vacuumable(tmp_path / "table")


def run(operation: str, table: Path, *, dry_run: bool = False, **options: Any) -> JobReport:
    spec = JobSpec(operation, str(table), "test-run", options, dry_run=dry_run)
    return run_job(spec, JobSite(), SilentProgress())


def swapped_for_a_link(directory: Path) -> Path:
    """Replace a directory by a link to another one outside of the table, which has files of the same names."""
    outside = directory.parent.parent / "outside" / directory.name
    outside.mkdir(parents=True)
    for path in directory.iterdir():
        (outside / path.name).write_bytes(b"theirs")
    directory.rename(directory.parent.parent / "taken away")
    directory.symlink_to(outside)
    return outside


@pytest.mark.parametrize(
    ("mode", "moment"),
    [
        ("full", "delete"),
        ("full", "remove_dir"),
        ("quarantine", "copy"),
        ("quarantine", "delete"),
        ("lite", "delete"),
    ],
)
def test_a_directory_that_is_swapped_during_a_vacuum_leads_nowhere(
    table: Path, mode: str, moment: str
) -> None:
    """The directory is replaced after VACUUM START, when all checks of the plan have passed."""
    before: dict[str, bytes] = {}

    def swap(name: str, key: str) -> None:
        if name == moment and key.startswith(DAY) and not before:
            before.update(contents(swapped_for_a_link(table / DAY).parent))

    (table / DAY / "empty").mkdir()
    os.utime(table / DAY / "empty", (1, 1))
    options: dict[str, Any] = NO_RETENTION if mode == "full" else {**NO_RETENTION, mode: True}
    storage = FaultyStorage(open_storage(str(table)), before=swap)
    planned = plan_on(storage, int(time.time() * 1000), **options)
    # Either the deletion is incomplete, or the last check of the live files meets the link.
    with suppress(VacuumIncomplete, SymbolicLinkRefused):
        execute_plan(storage, planned, SilentProgress(), Runtime(), {})
    assert before
    assert contents(table.parent / "outside") == before


@pytest.mark.parametrize("operation", ["optimize", "purge", "vacuum", "checkpoint"])
@pytest.mark.parametrize("place", [DAY, "_delta_log"])
def test_a_table_that_lies_behind_a_link_is_refused_with_the_remedy(
    table: Path, operation: str, place: str
) -> None:
    real = table.parent / "real"
    (table / place).rename(real)
    (table / place).symlink_to(real)
    before = contents(table.parent)
    options = {"full": True} if operation == "optimize" else NO_RETENTION if operation == "vacuum" else {}
    report = run(operation, table, **options)
    if operation == "checkpoint" and place == DAY:
        assert report.error is None, "it reads the log alone"
        return
    assert report.error is not None
    assert report.error.kind == "refused"
    assert "symbolic link" in str(report.error.message)
    assert "Put the files in the place of the link" in str(report.error.message)
    assert contents(table.parent) == before


def test_a_file_that_is_a_link_is_refused_before_any_other_bin_is_written(table: Path) -> None:
    """The bin without a link comes first, and one worker does one bin after the other."""
    link = table / max(Table(str(table)).snapshot().files(["key"])["key"].to_pylist())
    assert not link.parent.samefile(table / DAY)
    link.rename(table.parent / "real")
    link.symlink_to(table.parent / "real")
    before = contents(table.parent)
    for dry_run in (False, True):
        report = run("optimize", table, dry_run=dry_run, full=True)
        assert report.error is not None
        assert report.error.kind == "refused"
        assert f"{link} is a symbolic link" in report.error.message
    assert contents(table.parent) == before


@pytest.mark.parametrize("place", ["_maintenance", "_maintenance/test-run"])
def test_manifests_behind_a_link_are_neither_read_nor_written_nor_deleted(table: Path, place: str) -> None:
    victim = table.parent / "victim"
    victim.mkdir()
    for name in (f"{'0' * 32}.json", f"test-run/{'0' * 32}.json", f".{'0' * 32}.tmp"):
        (victim / name).parent.mkdir(exist_ok=True)
        (victim / name).write_text("{}")
        os.utime(victim / name, (1, 1))
    (table / place).parent.mkdir(exist_ok=True)
    (table / place).symlink_to(victim)
    before, live = contents(victim), Table(str(table)).snapshot().version
    report = run("optimize", table, full=True)
    assert report.error is not None
    assert "is a symbolic link" in str(report.error.message)
    done(run_vacuum(table, **NO_RETENTION))
    assert contents(victim) == before
    assert Table(str(table)).snapshot().version == live + 2, "VACUUM START and END"


def test_a_quarantine_behind_a_link_is_neither_restored_nor_purged(table: Path) -> None:
    done(run_vacuum(table, quarantine=True, **NO_RETENTION))
    (table / "_delta_quarantine").rename(table.parent / "victim")
    (table / "_delta_quarantine").symlink_to(table.parent / "victim")
    before = contents(table.parent / "victim")
    hidden = HiddenNames.of(Table(str(table)).snapshot())
    with pytest.raises(SymbolicLinkRefused):
        restore(open_storage(str(table)), hidden, None, SilentProgress(), dry_run=False)
    report = run_vacuum(table, purge_quarantine_hours=0, **NO_RETENTION)
    assert report.error is not None
    assert "_delta_quarantine is a symbolic link" in str(report.error.message)
    assert contents(table.parent / "victim") == before


@pytest.mark.parametrize("place", ["files", "manifest.json", "files.jsonl"])
def test_a_link_in_one_quarantine_stops_no_other(table: Path, place: str) -> None:
    done(run_vacuum(table, quarantine=True, **NO_RETENTION))
    (table.parent / "victim").mkdir()
    evil = table / "_delta_quarantine" / "evil"
    evil.mkdir()
    (evil / "files").mkdir(exist_ok=True)
    (evil / "files" / "x").write_bytes(b"planted")
    if place == "files":
        (evil / "files" / "x").unlink()
        (evil / "files").rmdir()
    (evil / place).symlink_to(table.parent / "victim")
    (table / DAY / "old").write_bytes(b"orphan")
    os.utime(table / DAY / "old", (1, 1))
    version = Table(str(table)).snapshot().version
    report = done(run_vacuum(table, purge_quarantine_hours=1, **NO_RETENTION))
    assert (report.status, report.version) == ("committed", version + 2)
    assert report.plan is not None
    assert "evil" in report.plan["brokenQuarantines"]
    restored = run("restore-quarantine", table)
    assert restored.status == "restored", restored.error
    assert restored.metrics["numRestoredFiles"] > 0
    assert contents(table.parent / "victim") == {}


def test_a_quarantine_that_is_swapped_for_a_link_takes_nothing_from_a_vacuum_that_is_done(
    table: Path,
) -> None:
    done(run_vacuum(table, quarantine=True, **NO_RETENTION))
    (table.parent / "victim").mkdir()
    (table / "_delta_quarantine").rename(table.parent / "taken away")
    (table / "_delta_quarantine").symlink_to(table.parent / "victim")
    (table / DAY / "old").write_bytes(b"orphan")
    os.utime(table / DAY / "old", (1, 1))
    version = Table(str(table)).snapshot().version
    report = done(run_vacuum(table, purge_quarantine_hours=1, **NO_RETENTION))
    assert (report.status, report.version) == ("committed", version + 2)
    assert report.plan is not None
    assert "is a symbolic link" in report.plan["warnings"][-1]


@pytest.mark.parametrize("swapped", ["", "run", "manifest"])
def test_a_manifest_that_is_swapped_for_a_link_takes_nothing_from_a_run_that_is_done(
    table: Path, swapped: str
) -> None:
    write_days(table)
    (table.parent / "victim").mkdir()
    directory = table / "_maintenance"

    def swap(number: int) -> None:
        if number < 2:  # of two bins
            return
        path = directory / swapped
        if swapped == "manifest":
            path = next(iter((directory / "run").glob("*.json")))
        path.rename(table.parent / f"taken away {swapped}")
        path.symlink_to(table.parent / "victim")

    version = Table(str(table)).snapshot().version
    report = rewrite(table, engine=WatchedEngine(swap), full=True)
    assert (report.status, report.version) == ("committed", version + 1)
    assert Table(str(table)).snapshot().version == version + 1
    assert contents(table.parent / "victim") == {}


def test_a_link_in_the_place_of_a_manifest_is_no_manifest(table: Path) -> None:
    write_days(table)
    victim = table.parent / "victim.json"
    victim.write_text("{}")
    (table / "_maintenance" / "run").mkdir(parents=True)
    (table / "_maintenance" / "run" / f"{'0' * 32}.json").symlink_to(victim)
    assert rewrite(table, full=True).status == "committed"
    assert victim.read_text() == "{}"


def test_change_data_behind_a_link_stays(table: Path) -> None:
    (table.parent / "victim").mkdir()
    (table.parent / "victim" / "old.parquet").write_bytes(b"theirs")
    (table / "_change_data").symlink_to(table.parent / "victim")
    age(table.parent / "victim")
    done(run_vacuum(table, **NO_RETENTION))
    assert (table.parent / "victim" / "old.parquet").exists()
    assert (table / "_change_data").is_symlink()


def test_an_inventory_that_names_files_behind_a_link_deletes_none(table: Path) -> None:
    outside = table.parent / "outside"
    outside.mkdir()
    (outside / "file").write_bytes(b"theirs")
    (table / "link").symlink_to(outside)
    (table / "old").write_bytes(b"orphan")
    (table.parent / "list.csv").write_text(
        "path,length,isDir,modificationTime\n"
        + "".join(f"{table}/{name},4,false,1000\n" for name in ("link/file", "old"))
    )
    done(run_vacuum(table, inventory=str(table.parent / "list.csv"), **NO_RETENTION))
    assert (outside / "file").exists()
    assert not (table / "old").exists()
