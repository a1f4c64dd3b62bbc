"""Temporary files of killed processes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.support.runs.vacuum_runs import (
    NO_RETENTION,
    contents,
    done,
    run_vacuum,
)
from tests.support.tables.vacuumable_tables import write_vacuumable


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return write_vacuumable(tmp_path / "table")


TEMPORARY = f".00000000000000000007.json.{'0123456789abcdef' * 2}.tmp"


DIRECTORIES = (
    "",
    "_delta_log",
    "_maintenance",
    "_maintenance/a run",
    "_delta_quarantine/one",
    "day=2024-01-01",
)


def test_a_vacuum_removes_and_counts_the_temporary_files_of_killed_processes(table: Path) -> None:
    done(run_vacuum(table, **NO_RETENTION))
    for directory in DIRECTORIES:
        for name in (TEMPORARY, TEMPORARY.replace("7", "8"), f"{TEMPORARY[:-4]}.crc"):
            (table / directory).mkdir(parents=True, exist_ok=True)
            (table / directory / name).touch()
        os.utime(table / directory / TEMPORARY, (1, 1))
    everything = contents(table)
    planned = done(run_vacuum(table, dry_run=True))
    assert planned.plan is not None
    assert planned.plan["numTemporaryFilesToDelete"] == len(DIRECTORIES)
    assert contents(table) == everything
    report = done(run_vacuum(table))
    assert report.status == "cleaned"
    assert report.metrics["numDeletedTemporaryFiles"] == len(DIRECTORIES)
    gone = {str(Path(directory, TEMPORARY)) for directory in DIRECTORIES}
    assert set(contents(table)) == set(everything) - gone
    assert done(run_vacuum(table)).status == "nothing_to_do"
