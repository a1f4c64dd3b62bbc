"""A table that a vacuum puts into quarantine, and the place of the quarantine."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.runs.vacuum_runs import NO_RETENTION, done, run_vacuum
from tests.support.tables.vacuumable_tables import old_file, write_vacuumable

from delta_maintenance.vacuum.quarantine.quarantine import QUARANTINE_DIRECTORY


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """A table with six files that a compaction removed, and one orphan. All is a month old."""
    path = write_vacuumable(tmp_path / "table")
    old_file(path / "day=2024-01-01" / "orphan")
    return path


@pytest.fixture
def place(table: Path) -> Path:
    """The directory of the one quarantine of a table."""
    report = done(run_vacuum(table, **NO_RETENTION, quarantine=True))
    assert report.plan is not None
    name: str = report.plan["quarantine"]
    return table / QUARANTINE_DIRECTORY / name
