"""Deleting quarantines that have waited long enough."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from tests.support.repetition import examples
from tests.support.runs.mutated_quarantines import vacuum_into_quarantine
from tests.support.runs.quarantine_runs import (
    BROKEN_MANIFESTS,
    age_manifests,
    as_an_earlier_build_wrote_it,
    clock_ahead,
    data_contents,
    purge_after_a_week,
    restore_quarantine,
    table_files,
)
from tests.support.runs.vacuum_runs import (
    NO_RETENTION,
    contents,
    done,
    files_below,
    live_files,
    run_vacuum,
)
from tests.support.tables.vacuum_histories import (
    DAY_MS,
    NOW_MS,
    History,
    dying_everywhere,
    histories,
)

from delta_log import Table
from delta_log.storage.storage import Storage
from delta_maintenance.contract import JobReport
from delta_maintenance.progress import SilentProgress
from delta_maintenance.vacuum.quarantine.purge import purge
from delta_maintenance.vacuum.quarantine.quarantine import QUARANTINE_DIRECTORY, list_quarantines

NOTHING = pa.chunked_array([], pa.string())


def test_a_later_run_deletes_a_quarantine_that_is_old_enough(table: Path) -> None:
    done(run_vacuum(table, **NO_RETENTION, quarantine=True))
    waiting = files_below(table) - live_files(table)

    def purged(days: int, *, dry_run: bool = False) -> JobReport:
        age_manifests(table, days)
        return done(purge_after_a_week(table, dry_run=dry_run))

    early = purged(6)
    assert (early.status, early.metrics["numPurgedFiles"]) == ("nothing_to_do", 0)
    assert files_below(table) - live_files(table) == waiting
    planned = purged(2, dry_run=True)
    assert planned.plan is not None
    assert planned.plan["numQuarantinedFilesToDelete"] == 7
    late = purged(0)
    assert (late.status, late.metrics["numPurgedFiles"]) == ("cleaned", 7)
    assert late.metrics["sizeOfPurgedData"] == planned.plan["sizeOfQuarantinedDataToDelete"] > 0
    assert files_below(table) == live_files(table)
    assert not (table / QUARANTINE_DIRECTORY).exists()


def test_a_file_that_the_table_needs_again_is_not_deleted(table: Path) -> None:
    report = done(run_vacuum(table, **NO_RETENTION, quarantine=True))
    storage = Table(str(table)).storage
    (quarantine,) = list_quarantines(storage)
    assert quarantine.since_ms is not None
    (((key, *_), _),) = quarantine.files()
    needed = pa.chunked_array([[key]], pa.string())
    found = purge(storage, 0, quarantine.since_ms, needed, SilentProgress(), dry_run=False)
    assert (found.num_files, found.num_needed) == (6, 1)
    assert report.plan is not None
    assert done(restore_quarantine(table, name=report.plan["quarantine"])).metrics["numRestoredFiles"] == 1
    assert key in files_below(table)


@pytest.mark.parametrize("spoil", [*BROKEN_MANIFESTS[:4], as_an_earlier_build_wrote_it])
def test_a_broken_quarantine_is_deleted_by_the_time_of_its_manifest(
    table: Path, place: Path, spoil: Callable[[Path], None]
) -> None:
    spoil(place)
    if spoil is as_an_earlier_build_wrote_it:  # its own time is old, and the time of the store is not
        manifest = json.loads((place / "manifest.json").read_bytes())
        (place / "manifest.json").write_text(json.dumps({**manifest, "quarantinedMs": 0}))
    assert done(purge_after_a_week(table)).metrics["numPurgedFiles"] == 0
    age_manifests(table, 8)
    assert done(purge_after_a_week(table)).metrics["numPurgedFiles"] == 7
    assert files_below(table) == live_files(table)


def test_a_quarantine_without_a_manifest_is_named_and_left(table: Path, place: Path) -> None:
    (place / "manifest.json").unlink()
    waiting = contents(place)
    report = done(run_vacuum(table, purge_quarantine_hours=0))
    assert report.metrics["numBrokenQuarantines"] == 1
    assert report.plan is not None
    assert report.plan["brokenQuarantines"] == {place.name: "it has no manifest.json"}
    assert contents(place) == waiting


def test_a_clock_that_is_ahead_of_the_store_deletes_no_quarantine(table: Path, place: Path) -> None:
    before = data_contents(table)
    # A dry run writes nothing, so it cannot compare the clocks.
    planned = done(purge_after_a_week(table, runtime=clock_ahead(40), dry_run=True))
    assert planned.plan is not None
    assert planned.plan["numQuarantinedFilesToDelete"] == 7
    report = purge_after_a_week(table, runtime=clock_ahead(40))
    assert report.error is not None
    assert report.error.type == "ClockAhead"
    assert data_contents(table) == before


@given(histories(max_steps=5))
@examples(8)
def test_the_next_purge_completes_one_that_died_anywhere(history: History) -> None:
    vacuum_into_quarantine(history.storage, retain_hours=0)
    left = table_files(history)
    history.storage._clock_ms = NOW_MS + DAY_MS

    def end(storage: Storage) -> None:
        purge(storage, 1, NOW_MS + DAY_MS, NOTHING, SilentProgress(), dry_run=False)

    for died in dying_everywhere(history, end):
        if died:
            assert table_files(history) == left
            end(history.storage)
            assert table_files(history) == left
            assert not [key for key in history.storage.objects if key.startswith(QUARANTINE_DIRECTORY)]
