"""Live files that are not in the store stop a vacuum."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.support.runs.vacuum_runs import (
    NO_RETENTION,
    files_below,
    live_files,
    refusal,
    run_vacuum,
)
from tests.support.tables.small_tables import write_days
from tests.support.tables.vacuumable_tables import age, write_vacuumable


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return write_vacuumable(tmp_path / "table")


def test_a_table_whose_live_files_are_not_there_is_refused(table: Path) -> None:
    lost = min(live_files(table))
    (table / lost).unlink()
    before = files_below(table)
    assert f"1 live files of version 6 are not in the store, for example {lost!r}" in refusal(
        run_vacuum(table, **NO_RETENTION)
    )
    assert files_below(table) == before


@pytest.mark.parametrize("mode", ["lite", "inventory"])
def test_a_log_without_its_files_is_refused_in_every_mode(table: Path, tmp_path: Path, mode: str) -> None:
    options: dict[str, Any] = {"lite": True}
    if mode == "inventory":
        lines = [f"{path},1,false,1000" for path in table.rglob("*.parquet")]
        (tmp_path / "list.csv").write_text("path,length,isDir,modificationTime\n" + "\n".join(lines) + "\n")
        options = {"inventory": str(tmp_path / "list.csv")}
    for key in live_files(table):
        (table / key).unlink()
    before = files_below(table)
    assert before
    assert "live files of version 6 are not in the store" in refusal(
        run_vacuum(table, **options, **NO_RETENTION)
    )
    assert files_below(table) == before


def test_the_log_of_another_table_is_refused(table: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    write_days(other)
    shutil.rmtree(table / "_delta_log")
    shutil.copytree(other / "_delta_log", table / "_delta_log")
    age(table)
    before = files_below(table)
    assert "are not in the store" in refusal(run_vacuum(table, **NO_RETENTION))
    assert files_below(table) == before
