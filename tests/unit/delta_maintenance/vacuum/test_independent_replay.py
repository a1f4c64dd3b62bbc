"""The second reading of the log: what it knows, and logs that it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest
from deltalake import DeltaTable
from tests.support.runs.vacuum_runs import (
    NO_RETENTION,
    files_below,
    refusal,
    run_vacuum,
)
from tests.support.tables.vacuumable_tables import age, write_vacuumable


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return write_vacuumable(tmp_path / "table")


def test_a_gap_in_the_log_is_refused(table: Path) -> None:
    (table / "_delta_log" / f"{3:020d}.json").unlink()
    before = files_below(table)
    assert "missing" in refusal(run_vacuum(table, **NO_RETENTION))
    assert files_below(table) == before


@pytest.mark.parametrize("line", ['{"add":7}', '{"remove":["a"]}', '{"add":{}}', "[1]", "7", "[" * 5000])
def test_a_malformed_commit_before_the_checkpoint_is_named(table: Path, line: str) -> None:
    DeltaTable(str(table)).create_checkpoint()
    first = table / "_delta_log" / f"{0:020}.json"
    first.write_text(line + "\n")
    # The first reading looks at commits since the cutoff. So make this one older.
    age(table)
    before = files_below(table)
    report = run_vacuum(table, retain_hours=0, retention_check=False)
    assert report.error is not None
    assert (report.error.type, report.error.kind) == ("VacuumRefused", "refused")
    assert f"{0:020}.json cannot be read as a commit" in report.error.message
    assert files_below(table) == before
