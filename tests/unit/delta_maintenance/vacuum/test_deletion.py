"""Deletions that the store stops half way."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.support.runs.vacuum_runs import (
    NO_RETENTION,
    run_vacuum,
    vacuum_on,
)
from tests.support.tables.vacuum_histories import (
    DAY_MS,
    NOW_MS,
    history_of_removals,
)
from tests.support.tables.vacuumable_tables import write_vacuumable

from delta_log.errors import StorageError
from delta_log.testing import FaultyStorage


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return write_vacuumable(tmp_path / "table")


def test_rights_that_end_half_way_are_reported_with_the_files_gone_and_left() -> None:
    names = [f"part-{number:05d}" for number in range(9_000)]
    history = history_of_removals()
    for name in names:
        history.put(name, NOW_MS - 30 * DAY_MS)

    def refuse(name: str, key: str) -> None:
        if name == "delete" and key >= "part-05000":
            raise StorageError(f"{key}: access was denied.", key)

    with pytest.raises(Exception, match=r"5,000 files .* were deleted, 4,000 are left") as caught:
        vacuum_on(FaultyStorage(history.storage, before=refuse))
    assert (caught.value.deleted_files, caught.value.remaining_files) == (5_000, 4_000)  # type: ignore[attr-defined]
    last = max(
        key for key in history.storage.objects if key.startswith("_delta_log/") and key.endswith(".json")
    )
    assert b'"status":"FAILED"' in history.storage.objects[last][0]
    assert vacuum_on(history.storage).metrics["numDeletedFiles"] == 4_000


def test_a_missing_right_is_reported_with_the_files_gone_and_left(table: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may delete everything")
    directory = table / "day=2024-01-02"
    directory.chmod(0o555)
    try:
        report = run_vacuum(table, **NO_RETENTION)
    finally:
        directory.chmod(0o755)
    assert report.error is not None
    assert (report.error.facts["deleted_files"], report.error.facts["remaining_files"]) == (3, 3)
