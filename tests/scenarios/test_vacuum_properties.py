"""VACUUM deletes exactly the files that no version since the cutoff needed, whatever the history of the table is."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.repetition import examples
from tests.support.runs.vacuum_runs import plan_on, vacuum_on
from tests.support.tables.vacuum_histories import (
    DAY_MS,
    HOUR_MS,
    NOW_MS,
    PROTOCOL,
    RUNTIME,
    History,
    dying_everywhere,
    histories,
    metadata,
)  # fmt: skip

from delta_log.checkpoint.writer import write_checkpoint
from delta_log.errors import DeltaLogError, StorageError
from delta_log.storage.opening import open_storage
from delta_log.storage.storage import Storage
from delta_log.storage.store_clock import CLOCK_MARGIN_MS
from delta_log.testing import FaultyStorage
from delta_maintenance.errors import VacuumRefused
from delta_maintenance.listing.hidden_names import HiddenNames
from delta_maintenance.progress import SilentProgress
from delta_maintenance.vacuum.candidates import PlannedVacuum, find_candidates
from delta_maintenance.vacuum.execution import VacuumOutcome
from delta_maintenance.vacuum.options import VacuumOptions
from delta_maintenance.vacuum.plan.plan import CANDIDATE_SCHEMA, ORPHAN
from delta_maintenance.vacuum.proof import prove

RETENTIONS = st.sampled_from([0.0, 1.0, 24.0, 7 * 24.0, 12 * 24.0])


def plan(storage: Storage, **options: Any) -> PlannedVacuum:
    return plan_on(storage, retention_check=False, **options)


def execute(storage: Storage, **options: Any) -> VacuumOutcome:
    return vacuum_on(storage, retention_check=False, **options)


def keys_of(planned: PlannedVacuum) -> list[str]:
    keys: list[str] = planned.plan.candidates.column("key").to_pylist()
    return keys


def data(history: History) -> set[str]:
    return {key for key in history.storage.objects if not key.startswith("_delta_log/")}


def cutoff_of(hours: float) -> int:
    retention = int(hours * HOUR_MS)
    return NOW_MS - retention - min(CLOCK_MARGIN_MS, retention)


@given(histories(), RETENTIONS)
@examples(30)
def test_exactly_what_nothing_needs_is_deleted(history: History, hours: float) -> None:
    before, times = data(history), {key: time for key, (_, time) in history.storage.objects.items()}
    cutoff = cutoff_of(hours)
    hidden = HiddenNames(("_p=", "p="))
    expected = {
        key
        for key in before
        if times[key] < cutoff and not hidden.hides(key) and key not in history.needed_since(cutoff)
    }
    planned = plan(history.storage, retain_hours=hours)
    assert keys_of(planned) == sorted(expected)
    assert data(history) == before
    outcome = execute(history.storage, retain_hours=hours)
    assert before - data(history) == expected
    assert outcome.metrics["numDeletedFiles"] == len(expected)
    assert (outcome.version is None) == (not expected)
    assert keys_of(plan(history.storage, retain_hours=hours)) == []


@given(histories(), RETENTIONS)
@examples(15)
def test_the_second_reading_of_the_log_refuses_whatever_is_needed(history: History, hours: float) -> None:
    found = plan(history.storage, retain_hours=hours)
    prove(history.storage, found.basis, found.plan)
    for key in history.needed_since(cutoff_of(hours)):
        row = {"key": key, "size": 1, "modification_time_ms": 1, "reason": ORPHAN}
        wrong = replace(found.plan, candidates=pa.Table.from_pylist([row], CANDIDATE_SCHEMA))
        with pytest.raises(VacuumRefused, match="a second reading of the log protects"):
            prove(history.storage, found.basis, wrong)


def removed_before_a_checkpoint() -> History:
    """A table whose checkpoint holds a removal of an hour ago without its time. The commits before it are gone."""
    history = History()
    history.commit([{"protocol": PROTOCOL}, {"metaData": metadata()}], NOW_MS - 20 * DAY_MS)
    for key in ("a", "f"):
        history.put(key, NOW_MS - 20 * DAY_MS)
        history.live[key] = None
    history.commit([history.add("a"), history.add("f")], NOW_MS - 20 * DAY_MS)
    removed = history.remove("a", None)
    del history.live["a"]
    history.commit([removed], NOW_MS - HOUR_MS)
    write_checkpoint(history.storage, history.snapshot(), RUNTIME)
    history.storage.delete([f"_delta_log/{version:020d}.json" for version in (0, 1)])
    return history


def test_the_second_reading_knows_what_was_removed_before_the_checkpoint_it_starts_from() -> None:
    storage = removed_before_a_checkpoint().storage
    found = plan(storage, retain_hours=24.0)
    row = {"key": "a", "size": 1, "modification_time_ms": 1, "reason": ORPHAN}
    wrong = replace(found.plan, candidates=pa.Table.from_pylist([row], CANDIDATE_SCHEMA))
    with pytest.raises(VacuumRefused, match="a second reading of the log protects"):
        prove(storage, found.basis, wrong)


def test_a_recent_commit_that_is_cleaned_while_it_is_read_stops_a_vacuum() -> None:
    storage = removed_before_a_checkpoint().storage
    recent = f"_delta_log/{2:020d}.json"
    found = plan(storage, retain_hours=24.0)

    def cleaned(name: str, key: str) -> None:
        if (name, key) == ("read", recent):
            raise FileNotFoundError(key)

    cleaning = FaultyStorage(storage, before=cleaned)
    with pytest.raises(VacuumRefused, match="2.json: this commit was deleted"):
        prove(cleaning, found.basis, found.plan)
    with pytest.raises(VacuumRefused, match="2.json: this commit was deleted"):
        find_candidates(
            cleaning,
            open_storage,
            found.basis.snapshot,
            VacuumOptions(retention_check=False, retain_hours=24.0),
            NOW_MS,
            SilentProgress(),
        )


@given(histories(), RETENTIONS)
@examples(15)
def test_a_lite_vacuum_finds_nothing_that_a_full_one_does_not(history: History, hours: float) -> None:
    full = set(keys_of(plan(history.storage, retain_hours=hours)))
    if "_delta_log/00000000000000000000.json" not in history.storage.objects:
        with pytest.raises(VacuumRefused, match="every commit since the last vacuum"):
            plan(history.storage, retain_hours=hours, lite=True)
        return
    assert set(keys_of(plan(history.storage, retain_hours=hours, lite=True))) <= full


@given(histories(), RETENTIONS, st.data())
@examples(10)
def test_a_lite_vacuum_deletes_nothing_that_a_full_one_would_not(
    history: History, hours: float, chance: st.DataObject
) -> None:
    if "_delta_log/00000000000000000000.json" not in history.storage.objects:
        return
    spare = sorted(data(history) - history.needed_since(cutoff_of(hours)))
    for key in chance.draw(st.lists(st.sampled_from(spare), unique=True)) if spare else ():
        if chance.draw(st.booleans()):
            del history.storage.objects[key]
        else:  # a writer is about to add it again
            history.put(key, NOW_MS)
    before, full = data(history), set(keys_of(plan(history.storage, retain_hours=hours)))
    outcome = execute(history.storage, retain_hours=hours, lite=True)
    gone = before - data(history)
    assert gone <= full
    assert outcome.metrics["numDeletedFiles"] == len(gone)


@given(histories(max_steps=6), st.data())
@examples(8)
def test_a_run_that_dies_anywhere_loses_nothing_and_its_repetition_ends_the_same(
    history: History, chance: st.DataObject
) -> None:
    hours = chance.draw(st.sampled_from([0.0, 24.0]))
    start = dict(history.storage.objects)
    needed = history.needed_since(cutoff_of(hours)) & data(history)
    execute(history.storage, retain_hours=hours)
    expected = data(history)
    history.storage.objects = start
    for died in dying_everywhere(history, lambda storage: execute(storage, retain_hours=hours)):
        if died:
            assert needed <= data(history)
            history.snapshot().files()
            execute(history.storage, retain_hours=hours)
        assert data(history) == expected


@given(histories(max_steps=6), st.data())
@examples(12)
def test_a_failing_store_loses_nothing_and_is_reported(history: History, chance: st.DataObject) -> None:
    start = dict(history.storage.objects)
    needed = history.needed_since(cutoff_of(0.0)) & data(history)
    execute(history.storage, retain_hours=0)
    expected = data(history)
    number = chance.draw(st.integers(0, 40))
    history.storage.objects = dict(start)
    left = number

    def fail(name: str, key: str) -> None:
        nonlocal left
        left -= 1
        if left < 0 and name in ("delete", "list_tree", "read"):
            raise StorageError(f"{key}: no.", key)

    failure = None
    try:
        execute(FaultyStorage(history.storage, before=fail), retain_hours=0)
    except DeltaLogError as error:
        failure = error
    assert needed <= data(history)
    gone = start.keys() - history.storage.objects.keys()
    assert getattr(failure, "deleted_files", len(gone)) == len(gone)
    execute(history.storage, retain_hours=0)
    assert data(history) == expected


def test_a_failed_vacuum_says_so_in_the_log() -> None:
    history = History()
    history.commit([{"protocol": PROTOCOL}, {"metaData": metadata()}], NOW_MS - 30 * DAY_MS)
    for number in range(5):
        history.put(f"orphan{number}", NOW_MS - 29 * DAY_MS)
    history.storage._clock_ms = NOW_MS
    deletes = 0

    def refuse(name: str, key: str) -> None:
        nonlocal deletes
        if name == "delete":
            deletes += 1
            if deletes > 3:
                raise StorageError(f"{key}: no right to delete.", key)

    with pytest.raises(DeltaLogError, match="3 files .* were deleted, 2 are left") as caught:
        execute(FaultyStorage(history.storage, before=refuse))
    assert (caught.value.deleted_files, caught.value.remaining_files) == (3, 2)  # type: ignore[attr-defined]
    ends = [body for key, (body, _) in history.storage.objects.items() if b"VACUUM END" in body]
    assert len(ends) == 1
    assert b'"status":"FAILED"' in ends[0]
    assert b'"numDeletedFiles":"3"' in ends[0]
