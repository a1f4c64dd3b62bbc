"""Symbolic links in a table's directory: no operation reads, writes or deletes anything behind them."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from tests.support.runs.maintenance_runs import WatchedEngine
from tests.support.runs.maintenance_runs import run as rewrite
from tests.support.runs.vacuum_runs import age, done, run_vacuum
from tests.support.tables.small_tables import write_days

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
from delta_maintenance.vacuum.candidates import find_candidates
from delta_maintenance.vacuum.execution import execute_plan
from delta_maintenance.vacuum.options import VacuumOptions
from delta_maintenance.vacuum.quarantine.restoration import restore

NO_CHECK: dict[str, Any] = {"retain_hours": 0, "retention_check": False}
DAY = "day=2024-01-01"


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Two partitions; of its six files four were removed by a compaction. All of it is a month old."""
    path = tmp_path / "table"
    write_days(path)
    DeltaTable(str(path)).optimize.compact()
    age(path)
    return path


def run(operation: str, table: Path, **options: Any) -> JobReport:
    return run_job(JobSpec(operation, str(table), "test-run", options), JobSite(), SilentProgress())


def swapped_for_a_link(directory: Path) -> Path:
    """A directory of somebody else that has the same files, and a link to it in the place of the first."""
    outside = directory.parent.parent / "outside" / directory.name
    outside.mkdir(parents=True)
    for path in directory.iterdir():
        (outside / path.name).write_bytes(b"theirs")
    directory.rename(directory.parent.parent / "taken away")
    directory.symlink_to(outside)
    return outside


def content_of(directory: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


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
    """After VACUUM START, when everything has been looked at."""
    before: dict[str, bytes] = {}

    def swap(name: str, key: str) -> None:
        if name == moment and key.startswith(DAY) and not before:
            before.update(content_of(swapped_for_a_link(table / DAY)))

    (table / DAY / "empty").mkdir()
    os.utime(table / DAY / "empty", (1, 1))
    options: dict[str, Any] = NO_CHECK if mode == "full" else {**NO_CHECK, mode: True}
    storage = FaultyStorage(open_storage(str(table)), before=swap)
    found = find_candidates(
        storage,
        open_storage,
        Table(str(table)).snapshot(),
        VacuumOptions(**options),
        int(time.time() * 1000),
        SilentProgress(),
    )
    # The deletion says that it could not end, or the last look at the live files is refused.
    with suppress(VacuumIncomplete, SymbolicLinkRefused):
        execute_plan(storage, found, SilentProgress(), Runtime(), {})
    assert before
    assert content_of(table.parent / "outside") == before


@pytest.mark.parametrize("operation", ["optimize", "purge", "vacuum", "checkpoint"])
@pytest.mark.parametrize("place", [DAY, "_delta_log"])
def test_a_table_that_lies_behind_a_link_is_refused_with_the_remedy(
    table: Path, operation: str, place: str
) -> None:
    real = table.parent / "real"
    (table / place).rename(real)
    (table / place).symlink_to(real)
    before = content_of(table.parent)
    options = {"full": True} if operation == "optimize" else NO_CHECK if operation == "vacuum" else {}
    report = run(operation, table, **options)
    if operation == "checkpoint" and place == DAY:
        assert report.error is None, "it reads the log alone"
        return
    assert report.error is not None
    assert report.error.kind == "refused"
    assert "symbolic link" in str(report.error.message)
    assert "Put the files in the place of the link" in str(report.error.message)
    assert content_of(table.parent) == before


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
    before, live = content_of(victim), Table(str(table)).snapshot().version
    report = run("optimize", table, full=True)
    assert report.error is not None
    assert "is a symbolic link" in str(report.error.message)
    done(run_vacuum(table, **NO_CHECK))
    assert content_of(victim) == before
    assert Table(str(table)).snapshot().version == live + 2, "VACUUM START and END"


def test_a_quarantine_behind_a_link_is_neither_restored_nor_purged(table: Path) -> None:
    done(run_vacuum(table, quarantine=True, **NO_CHECK))
    (table / "_delta_quarantine").rename(table.parent / "victim")
    (table / "_delta_quarantine").symlink_to(table.parent / "victim")
    before = content_of(table.parent / "victim")
    hidden = HiddenNames.of(Table(str(table)).snapshot())
    with pytest.raises(SymbolicLinkRefused):
        restore(open_storage(str(table)), hidden, None, SilentProgress(), dry_run=False)
    report = run_vacuum(table, purge_quarantine_hours=0, **NO_CHECK)
    assert report.error is not None
    assert "_delta_quarantine is a symbolic link" in str(report.error.message)
    assert content_of(table.parent / "victim") == before


@pytest.mark.parametrize("place", ["files", "manifest.json", "files.jsonl"])
def test_a_link_in_one_quarantine_stops_no_other(table: Path, place: str) -> None:
    done(run_vacuum(table, quarantine=True, **NO_CHECK))
    (table.parent / "victim").mkdir()
    evil = table / "_delta_quarantine" / "evil"
    evil.mkdir()
    (evil / "files").mkdir(exist_ok=True)
    (evil / "files" / "x").write_bytes(b"planted")
    if place == "files":
        (evil / "files" / "x").unlink()
        (evil / "files").rmdir()
    (evil / place).symlink_to(table.parent / "victim")
    (table / DAY / "old").write_bytes(b"nobody's")
    os.utime(table / DAY / "old", (1, 1))
    version = Table(str(table)).snapshot().version
    report = done(run_vacuum(table, purge_quarantine_hours=1, **NO_CHECK))
    assert (report.status, report.version) == ("committed", version + 2)
    assert report.plan is not None
    assert "evil" in report.plan["brokenQuarantines"]
    restored = run("restore-quarantine", table)
    assert restored.status == "restored", restored.error
    assert restored.metrics["numRestoredFiles"] > 0
    assert content_of(table.parent / "victim") == {}


def test_a_quarantine_that_is_swapped_for_a_link_takes_nothing_from_a_vacuum_that_is_done(
    table: Path,
) -> None:
    done(run_vacuum(table, quarantine=True, **NO_CHECK))
    (table.parent / "victim").mkdir()
    (table / "_delta_quarantine").rename(table.parent / "taken away")
    (table / "_delta_quarantine").symlink_to(table.parent / "victim")
    (table / DAY / "old").write_bytes(b"nobody's")
    os.utime(table / DAY / "old", (1, 1))
    version = Table(str(table)).snapshot().version
    report = done(run_vacuum(table, purge_quarantine_hours=1, **NO_CHECK))
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
    assert content_of(table.parent / "victim") == {}


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
    done(run_vacuum(table, **NO_CHECK))
    assert (table.parent / "victim" / "old.parquet").exists()
    assert (table / "_change_data").is_symlink()


def test_an_inventory_that_names_files_behind_a_link_deletes_none(table: Path) -> None:
    outside = table.parent / "outside"
    outside.mkdir()
    (outside / "file").write_bytes(b"theirs")
    (table / "link").symlink_to(outside)
    (table / "old").write_bytes(b"nobody's")
    (table.parent / "list.csv").write_text(
        "path,length,isDir,modificationTime\n"
        + "".join(f"{table}/{name},4,false,1000\n" for name in ("link/file", "old"))
    )
    done(run_vacuum(table, inventory=str(table.parent / "list.csv"), **NO_CHECK))
    assert (outside / "file").exists()
    assert not (table / "old").exists()


LEFT = f".00000000000000000007.json.{'0123456789abcdef' * 2}.tmp"
PLACES = ("", "_delta_log", "_maintenance", "_maintenance/a run", "_delta_quarantine/one", DAY)


def test_a_vacuum_removes_what_killed_processes_left_and_counts_it(table: Path) -> None:
    done(run_vacuum(table, **NO_CHECK))
    for place in PLACES:
        for name in (LEFT, LEFT.replace("7", "8"), f"{LEFT[:-4]}.crc"):
            (table / place).mkdir(parents=True, exist_ok=True)
            (table / place / name).touch()
        os.utime(table / place / LEFT, (1, 1))
    everything = content_of(table)
    planned = done(run_vacuum(table, dry_run=True))
    assert planned.plan is not None
    assert planned.plan["numTemporaryFilesToDelete"] == len(PLACES)
    assert content_of(table) == everything
    report = done(run_vacuum(table))
    assert report.status == "cleaned"
    assert report.metrics["numDeletedTemporaryFiles"] == len(PLACES)
    gone = {str(table / place / LEFT) for place in PLACES}
    assert set(content_of(table)) == set(everything) - gone
    assert done(run_vacuum(table)).status == "nothing_to_do"
