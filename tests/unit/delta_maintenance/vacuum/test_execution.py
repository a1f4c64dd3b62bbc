"""Executing a plan: the two commits, and what they say about failures."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from deltalake import DeltaTable
from tests.support.runs.vacuum_runs import (
    NO_RETENTION,
    done,
    refusal,
    run_vacuum,
    vacuum_on,
)
from tests.support.tables.vacuum_histories import (
    DAY_MS,
    history_of_removals,
)
from tests.support.tables.vacuumable_tables import write_vacuumable

from delta_log import Table
from delta_log.runtime import Runtime
from delta_log.testing import FaultyStorage


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return write_vacuumable(tmp_path / "table")


def test_the_log_says_what_was_done(table: Path) -> None:
    report = done(run_vacuum(table, **NO_RETENTION))
    end, start = Table(str(table)).history(2)
    assert (start["operation"], end["operation"]) == ("VACUUM START", "VACUUM END")
    assert start["operationParameters"] == {
        "retentionCheckEnabled": False,
        "opType": "FULL",
        "defaultRetentionMillis": 604_800_000,
        "specifiedRetentionMillis": 0,
    }
    assert start["operationMetrics"]["numFilesToDelete"] == 6
    assert end["operationParameters"] == {"status": "COMPLETED"}
    assert end["operationMetrics"]["numDeletedFiles"] == 6
    assert end["operationMetrics"]["numVacuumedDirectories"] == 3
    assert report.version == end["version"]
    assert DeltaTable(str(table)).version() == end["version"]


def test_a_clock_that_is_ahead_of_the_store_deletes_nothing(table: Path) -> None:
    young = table / "day=2024-01-01" / "in-flight.parquet"
    young.write_bytes(b"young")
    next_year = Runtime(now_ms=lambda: int(time.time() * 1000) + 365 * DAY_MS)
    assert "minutes ahead of the store's" in refusal(run_vacuum(table, runtime=next_year))
    assert young.exists()
    end = Table(str(table)).history(1)[0]
    assert end["operationParameters"] == {"status": "FAILED"}


def test_an_unexpected_error_is_recorded_in_the_log() -> None:
    history = history_of_removals("old")

    def fail(name: str, key: str) -> None:
        if name == "delete":
            raise MemoryError

    with pytest.raises(MemoryError):
        vacuum_on(FaultyStorage(history.storage, before=fail))
    ends = [body for body, _ in history.storage.objects.values() if b"VACUUM END" in body]
    assert len(ends) == 1
    assert b'"status":"FAILED"' in ends[0]
