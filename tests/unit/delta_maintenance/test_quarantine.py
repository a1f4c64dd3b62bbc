"""What a vacuum puts into quarantine is out of the table, and no order of failures loses it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.small_tables import write_days
from tests.vacuum_histories import DAY_MS, NOW_MS, RUNTIME, History, dying_everywhere, histories
from tests.vacuum_runs import age, done, files_below, run_vacuum

from delta_log import Table
from delta_log.errors import DeltaLogError
from delta_log.log_segment import find_log_segment
from delta_log.runtime import Runtime
from delta_log.snapshot import Snapshot
from delta_log.storage import Storage, open_storage
from delta_maintenance import cli
from delta_maintenance.contract import JobReport, JobSpec
from delta_maintenance.job import JobSite, run_job
from delta_maintenance.operations.quarantine import QUARANTINE_DIRECTORY, purge, quarantines, restore
from delta_maintenance.operations.vacuum import VacuumOutcome, vacuum
from delta_maintenance.operations.vacuum_survey import survey
from delta_maintenance.plan.vacuum_options import VacuumOptions
from delta_maintenance.progress import SilentProgress

NO_CHECK: dict[str, Any] = {"retain_hours": 0, "retention_check": False}
NOTHING = pa.chunked_array([], pa.string())


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Two partitions; its six first files were removed by a compaction, and one is nobody's. A month old."""
    path = tmp_path / "table"
    write_days(path)
    DeltaTable(str(path)).optimize.compact()
    (path / "day=2024-01-01" / "orphan").write_bytes(b"old")
    age(path)
    return path


def bring_back(table: Path, *, dry_run: bool = False, **options: Any) -> JobReport:
    spec = JobSpec("restore-quarantine", str(table), "test-run", options, dry_run=dry_run)
    return run_job(spec, JobSite(), SilentProgress())


def contents(table: Path) -> dict[str, bytes]:
    return {name: (table / name).read_bytes() for name in files_below(table)}


def live(table: Path) -> set[str]:
    return set(Table(str(table)).snapshot().files(["key"]).column("key").to_pylist())


def test_what_goes_waits_under_a_hidden_name_and_comes_back_whole(table: Path) -> None:
    before = contents(table)
    planned = done(run_vacuum(table, **NO_CHECK, quarantine=True, dry_run=True))
    assert contents(table) == before
    report = done(run_vacuum(table, **NO_CHECK, quarantine=True))
    assert planned.plan is not None
    assert report.plan is not None
    assert report.plan["digest"] == planned.plan["digest"]
    place = f"{QUARANTINE_DIRECTORY}/{report.plan['quarantine']}/files/"
    waiting = {name.removeprefix(place) for name in files_below(table) if name.startswith(place)}
    assert waiting == before.keys() - live(table)
    assert len(waiting) == report.metrics["numDeletedFiles"] == 7
    end = Table(str(table)).history(1)[0]
    assert end["operationParameters"] == {"status": "COMPLETED", "quarantine": report.plan["quarantine"]}
    # No vacuum looks there, neither ours nor another's.
    assert done(run_vacuum(table, **NO_CHECK)).status == "nothing_to_do"
    theirs = DeltaTable(str(table)).vacuum(0, dry_run=True, enforce_retention_duration=False, full=True)
    assert not [path for path in theirs if QUARANTINE_DIRECTORY in path]
    assert DeltaTable(str(table)).to_pyarrow_table().num_rows == 600
    assert done(bring_back(table, dry_run=True)).metrics["numRestoredFiles"] == 7
    restored = done(bring_back(table))
    assert (restored.status, restored.metrics["numRestoredFiles"]) == ("restored", 7)
    assert contents(table) == before
    assert not (table / QUARANTINE_DIRECTORY).exists()
    assert done(bring_back(table)).status == "nothing_to_do"


def test_a_lite_vacuum_has_a_quarantine_too(table: Path) -> None:
    before = contents(table)
    report = done(run_vacuum(table, **NO_CHECK, lite=True, quarantine=True))
    assert report.metrics["numDeletedFiles"] == 6
    assert done(bring_back(table)).metrics["numRestoredFiles"] == 6
    assert contents(table) == before


def test_an_older_version_can_be_read_again(table: Path) -> None:
    done(run_vacuum(table, **NO_CHECK, quarantine=True))
    with pytest.raises(DeltaLogError):
        Table(str(table)).snapshot(version=1).to_arrow()
    done(bring_back(table))
    assert Table(str(table)).snapshot(version=1).to_arrow().num_rows > 0


def test_a_later_run_deletes_what_has_waited_long_enough(table: Path) -> None:
    done(run_vacuum(table, **NO_CHECK, quarantine=True))
    waiting = files_below(table) - live(table)

    def later(days: int) -> Runtime:
        runtime = Runtime()
        return Runtime(now_ms=lambda: runtime.now_ms() + days * DAY_MS)

    def purged(days: int, *, dry_run: bool = False) -> JobReport:
        options = {"retain_hours": 24 * 365, "purge_quarantine_hours": 7 * 24}
        return done(run_vacuum(table, runtime=later(days), dry_run=dry_run, **options))

    early = purged(6)
    assert (early.status, early.metrics["numPurgedFiles"]) == ("nothing_to_do", 0)
    assert files_below(table) - live(table) == waiting
    planned = purged(8, dry_run=True)
    assert planned.plan is not None
    assert planned.plan["numQuarantinedFilesToDelete"] == 7
    late = purged(8)
    assert (late.status, late.metrics["numPurgedFiles"]) == ("cleaned", 7)
    assert late.metrics["sizeOfPurgedData"] == planned.plan["sizeOfQuarantinedDataToDelete"] > 0
    assert files_below(table) == live(table)
    assert not (table / QUARANTINE_DIRECTORY).exists()


def test_what_the_table_needs_again_is_not_deleted(table: Path) -> None:
    report = done(run_vacuum(table, **NO_CHECK, quarantine=True))
    storage = Table(str(table)).storage
    (quarantine,) = quarantines(storage)
    (((key, *_), _),) = quarantine.files()
    needed = pa.chunked_array([[key]], pa.string())
    found = purge(storage, 0, quarantine.since_ms, needed, SilentProgress(), dry_run=False)
    assert (found.num_files, found.num_needed) == (6, 1)
    assert report.plan is not None
    assert done(bring_back(table, name=report.plan["quarantine"])).metrics["numRestoredFiles"] == 1
    assert key in files_below(table)


def test_another_file_in_the_place_is_left_alone(table: Path) -> None:
    done(run_vacuum(table, **NO_CHECK, quarantine=True))
    orphan = table / "day=2024-01-01" / "orphan"
    for content in (b"new", b"of another size"):
        orphan.write_bytes(content)
        report = done(bring_back(table))
        assert report.metrics["numConflictingFiles"] == 1
        assert report.plan is not None
        assert report.plan["conflicts"] == ["day=2024-01-01/orphan"]
        assert orphan.read_bytes() == content
    orphan.unlink()
    done(bring_back(table))
    assert orphan.read_bytes() == b"old"


def test_a_quarantine_that_is_not_there_is_named_with_those_that_are(table: Path) -> None:
    name = (done(run_vacuum(table, **NO_CHECK, quarantine=True)).plan or {})["quarantine"]
    report = bring_back(table, name="nothing")
    assert report.error is not None
    assert report.error["kind"] == "refused"
    assert f"no quarantine nothing. Its quarantines: {name}" in report.error["message"]


def test_the_command_line_says_what_it_did(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [str(table), "--retain-hours", "0", "--no-retention-check"]
    assert cli.main(["vacuum", *arguments, "--quarantine", "--purge-quarantine", "168", "--dry-run"]) == 0
    text = capsys.readouterr().out
    assert "into quarantine" in text
    assert "and 0 files, 0 B, of older quarantines" in text
    assert cli.main(["vacuum", *arguments, "--quarantine"]) == 0
    assert "Moved into quarantine 7 files" in capsys.readouterr().out
    assert cli.main(["restore-quarantine", str(table), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["metrics"]["numRestoredFiles"] == 7
    assert cli.main(["restore-quarantine", str(table)]) == 0
    assert "Nothing is in quarantine." in capsys.readouterr().out
    assert cli.main(["vacuum", *arguments, "--quarantine"]) == 0
    capsys.readouterr()
    assert cli.main(["vacuum", *arguments, "--purge-quarantine", "0"]) == 0
    text = capsys.readouterr().out
    assert "7 files" in text
    assert "of older quarantines were deleted" in text


# -- whatever fails, and wherever ----------------------------------------------------------------------------


def execute(storage: Storage, **options: Any) -> VacuumOutcome:
    snapshot = Snapshot(storage, find_log_segment(storage))
    wanted = VacuumOptions(retention_check=False, quarantine=True, **options)
    found = survey(storage, open_storage, snapshot, wanted, NOW_MS, SilentProgress())
    return vacuum(storage, found, SilentProgress(), RUNTIME, {})


def data(history: History) -> dict[str, bytes]:
    return {
        key: content
        for key, (content, _) in history.storage.objects.items()
        if not key.startswith(("_delta_log/", QUARANTINE_DIRECTORY))
    }


def waiting(history: History) -> dict[str, bytes]:
    return {
        key.partition("/files/")[2]: content
        for key, (content, _) in history.storage.objects.items()
        if key.startswith(QUARANTINE_DIRECTORY) and "/files/" in key
    }


@given(histories(max_steps=5), st.sampled_from([0.0, 24.0]))
@settings(max_examples=5)
def test_a_vacuum_that_dies_anywhere_loses_nothing(history: History, hours: float) -> None:
    before, start = data(history), dict(history.storage.objects)
    execute(history.storage, retain_hours=hours)
    expected = data(history)
    assert waiting(history) == {key: before[key] for key in before.keys() - expected.keys()}
    history.storage.objects = start

    for died in dying_everywhere(history, lambda storage: execute(storage, retain_hours=hours)):
        if died:
            assert {**waiting(history), **data(history)} == before
            execute(history.storage, retain_hours=hours)
            assert data(history) == expected
            restore(history.storage, None, SilentProgress(), dry_run=False)
            assert data(history) == before
            assert not waiting(history)


@given(histories(max_steps=5))
@settings(max_examples=8)
def test_a_restoration_that_dies_anywhere_loses_nothing(history: History) -> None:
    before = data(history)
    execute(history.storage, retain_hours=0)

    for died in dying_everywhere(
        history, lambda storage: restore(storage, None, SilentProgress(), dry_run=False)
    ):
        if died:
            assert {**waiting(history), **data(history)} == before
            restore(history.storage, None, SilentProgress(), dry_run=False)
            assert data(history) == before
            assert not waiting(history)


@given(histories(max_steps=5))
@settings(max_examples=8)
def test_a_deletion_of_a_quarantine_that_dies_anywhere_is_ended_by_the_next(history: History) -> None:
    execute(history.storage, retain_hours=0)
    left = data(history)

    def end(storage: Storage) -> None:
        purge(storage, 1, NOW_MS + DAY_MS, NOTHING, SilentProgress(), dry_run=False)

    for died in dying_everywhere(history, end):
        if died:
            assert data(history) == left
            end(history.storage)
            assert data(history) == left
            assert not [key for key in history.storage.objects if key.startswith(QUARANTINE_DIRECTORY)]
