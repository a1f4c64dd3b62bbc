"""Files of another table, below this one or in its place, are not deleted."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.runs.vacuum_runs import (
    NO_RETENTION,
    files_below,
    refusal,
    run_vacuum,
    vacuum_on,
)
from tests.support.tables.small_tables import write_days
from tests.support.tables.vacuum_histories import (
    NOW_MS,
    history_of_removals,
    metadata,
)
from tests.support.tables.vacuumable_tables import age, write_vacuumable

from delta_log.errors import TableReplaced
from delta_log.testing import FaultyStorage


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return write_vacuumable(tmp_path / "table")


def test_another_table_below_is_found_though_an_inventory_shows_only_its_data(
    table: Path, tmp_path: Path
) -> None:
    write_days(table / "day=2024-01-01" / "inner")
    age(table)
    lines = [f"{path},{path.stat().st_size},false,1000" for path in table.rglob("*.parquet")]
    (tmp_path / "list.csv").write_text("path,length,isDir,modificationTime\n" + "\n".join(lines) + "\n")
    before = files_below(table)
    message = refusal(run_vacuum(table, inventory=str(tmp_path / "list.csv"), **NO_RETENTION))
    assert "Another Delta table lies below this one: day=2024-01-01/inner" in message
    assert files_below(table) == before


def test_a_table_that_is_replaced_meanwhile_is_left_alone() -> None:
    history = history_of_removals("old")
    written: list[str] = []

    def replace(name: str, key: str) -> None:
        if name == "list_tree" and not written:
            written.append(key)
            history.commit([{"metaData": metadata(table_id="another")}], NOW_MS)

    with pytest.raises(TableReplaced, match="its id was .*, and is now another"):
        vacuum_on(FaultyStorage(history.storage, before=replace))
    assert "old" in history.storage.objects
