"""What the log protects."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.support.runs.vacuum_runs import (
    NO_RETENTION,
    files_below,
    refusal,
    run_vacuum,
)
from tests.support.tables.vacuumable_tables import write_vacuumable


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return write_vacuumable(tmp_path / "table")


def test_an_invalid_path_in_the_log_is_refused(table: Path) -> None:
    commit = table / "_delta_log" / f"{7:020d}.json"
    remove = {"path": "day=1/bro%ff", "dataChange": True, "deletionTimestamp": 1}
    commit.write_text(json.dumps({"remove": remove}) + "\n")
    before = files_below(table)
    assert "bro%ff" in refusal(run_vacuum(table, **NO_RETENTION))
    assert files_below(table) == before
