"""Symbolic links in a table: files behind them are neither deleted nor taken for orphans."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.support.runs.vacuum_runs import (
    NO_RETENTION,
    done,
    files_below,
    live_files,
    refusal,
    run_vacuum,
)
from tests.support.tables.vacuumable_tables import age, write_vacuumable


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return write_vacuumable(tmp_path / "table")


def test_a_removed_file_behind_a_link_is_left_alone(table: Path, tmp_path: Path) -> None:
    shutil.move(table / "day=2024-01-01", tmp_path / "elsewhere")
    (table / "day=2024-01-01").symlink_to(tmp_path / "elsewhere")
    before = {path.name for path in (tmp_path / "elsewhere").iterdir()}
    modes: tuple[dict[str, Any], ...] = ({"lite": True}, {})
    for options in modes:
        run_vacuum(table, **NO_RETENTION, **options)
        assert {path.name for path in (tmp_path / "elsewhere").iterdir()} == before


@pytest.mark.parametrize("mode", [{}, {"lite": True}])
def test_a_file_that_a_link_of_the_table_leads_to_is_no_orphan(table: Path, mode: dict[str, Any]) -> None:
    day = table / "day=2024-01-01"
    day.rename(table / "real")
    day.symlink_to(table / "real")
    if mode:  # a commit has removed a file of this name
        (file,) = (
            path.name
            for path in (table / "real").iterdir()
            if f"day=2024-01-01/{path.name}" in live_files(table)
        )
        commit = table / "_delta_log" / f"{7:020d}.json"
        commit.write_text(
            json.dumps({"remove": {"path": f"real/{file}", "dataChange": True, "deletionTimestamp": 1}})
        )
        age(table)
    before = files_below(table)
    message = refusal(run_vacuum(table, **NO_RETENTION, **mode))
    assert "is reached through the symbolic link day=2024-01-01" in message
    assert files_below(table) == before


def test_the_target_of_a_live_file_that_is_a_link_is_kept(table: Path) -> None:
    file = table / min(live_files(table))
    file.rename(table / "moved")
    file.symlink_to(table / "moved")
    message = refusal(run_vacuum(table, **NO_RETENTION))
    assert f"is reached through the symbolic link {file.relative_to(table)}" in message
    assert (table / "moved").exists()


def test_a_link_that_no_live_file_needs_is_no_reason_to_refuse(table: Path) -> None:
    (table / "link").symlink_to(table / "day=2024-01-01")
    done(run_vacuum(table, **NO_RETENTION))
    assert files_below(table) == live_files(table) | {"link"}
