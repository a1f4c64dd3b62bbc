"""What a vacuum puts into quarantine is out of the table, and no order of failures loses it."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.runs import mutated_quarantines
from tests.support.runs.mutated_quarantines import end_restoration, execute
from tests.support.runs.vacuum_runs import age, done, files_below, run_vacuum
from tests.support.tables.small_tables import write_days
from tests.support.tables.vacuum_histories import (
    DAY_MS,
    NOW_MS,
    History,
    dying_everywhere,
    histories,
)

from delta_log import Table
from delta_log.errors import DeltaLogError
from delta_log.runtime import Runtime
from delta_log.storage.storage import Storage
from delta_maintenance.cli import main as cli
from delta_maintenance.contract import JobReport, JobSpec
from delta_maintenance.job import JobSite, run_job
from delta_maintenance.progress import SilentProgress
from delta_maintenance.vacuum.quarantine.purge import purge
from delta_maintenance.vacuum.quarantine.quarantine import QUARANTINE_DIRECTORY, list_quarantines

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
    place = table / QUARANTINE_DIRECTORY / report.plan["quarantine"]
    named = {
        "quarantine": report.plan["quarantine"],
        "quarantineDigest": hashlib.sha256((place / "manifest.json").read_bytes()).hexdigest(),
    }
    start = Table(str(table)).history(2)[1]
    assert end["operationParameters"] == {"status": "COMPLETED", **named}
    assert start["operationParameters"].items() >= named.items()
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


def later(days: float) -> Runtime:
    """A machine whose clock is ahead."""
    runtime = Runtime()
    return Runtime(now_ms=lambda: runtime.now_ms() + int(days * DAY_MS))


def wait(table: Path, days: float) -> None:
    """Let every manifest be older by so many days, by its own word and by the store's clock."""
    for path in (table / QUARANTINE_DIRECTORY).glob("*/manifest.json"):
        written = path.stat().st_mtime - days * 86_400
        with suppress(ValueError, TypeError, RecursionError):
            manifest = json.loads(path.read_bytes())
            path.write_text(
                json.dumps({**manifest, "quarantinedMs": manifest["quarantinedMs"] - int(days * DAY_MS)})
            )
        os.utime(path, (written, written))


def purge_after_a_week(table: Path, *, dry_run: bool = False, runtime: Runtime | None = None) -> JobReport:
    options = {"retain_hours": 24 * 365, "purge_quarantine_hours": 7 * 24}
    return run_vacuum(table, runtime=runtime, dry_run=dry_run, **options)


def test_a_later_run_deletes_what_has_waited_long_enough(table: Path) -> None:
    done(run_vacuum(table, **NO_CHECK, quarantine=True))
    waiting = files_below(table) - live(table)

    def purged(days: int, *, dry_run: bool = False) -> JobReport:
        wait(table, days)
        return done(purge_after_a_week(table, dry_run=dry_run))

    early = purged(6)
    assert (early.status, early.metrics["numPurgedFiles"]) == ("nothing_to_do", 0)
    assert files_below(table) - live(table) == waiting
    planned = purged(2, dry_run=True)
    assert planned.plan is not None
    assert planned.plan["numQuarantinedFilesToDelete"] == 7
    late = purged(0)
    assert (late.status, late.metrics["numPurgedFiles"]) == ("cleaned", 7)
    assert late.metrics["sizeOfPurgedData"] == planned.plan["sizeOfQuarantinedDataToDelete"] > 0
    assert files_below(table) == live(table)
    assert not (table / QUARANTINE_DIRECTORY).exists()


def test_what_the_table_needs_again_is_not_deleted(table: Path) -> None:
    report = done(run_vacuum(table, **NO_CHECK, quarantine=True))
    storage = Table(str(table)).storage
    (quarantine,) = list_quarantines(storage)
    assert quarantine.since_ms is not None
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
    assert report.error.kind == "refused"
    assert f"no quarantine nothing. Its quarantines: {name}" in report.error.message


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


# -- what somebody else puts there ---------------------------------------------------------------------------


@pytest.fixture
def place(table: Path) -> Path:
    """The directory of the one quarantine of a table."""
    report = done(run_vacuum(table, **NO_CHECK, quarantine=True))
    assert report.plan is not None
    name: str = report.plan["quarantine"]
    return table / QUARANTINE_DIRECTORY / name


def contents_of_log(table: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (table / "_delta_log").iterdir()}


def test_planted_files_never_become_commits_nor_anything_else(table: Path, place: Path) -> None:
    log, rows = contents_of_log(table), DeltaTable(str(table)).to_pyarrow_table().num_rows
    version = Table(str(table)).snapshot().version
    removes = [
        json.dumps({"remove": {"path": key, "deletionTimestamp": 1, "dataChange": True}})
        for key in live(table)
    ]
    planted = {
        f"_delta_log/{version + 1:020d}.json": "\n".join(removes),
        "_maintenance/run/bin.json": "{}",
        ".hidden": "x",
        "day=2024-01-01/unnamed": "x",
    }
    for key, body in planted.items():
        path = place / "files" / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(body)
    for dry_run in (True, False):
        report = done(bring_back(table, dry_run=dry_run))
        assert (report.metrics["numRestoredFiles"], report.metrics["numUnnamedFiles"]) == (7, 4)
        assert report.plan is not None
        assert sorted(report.plan["leftFiles"]) == sorted(planted)
    assert contents_of_log(table) == log
    assert DeltaTable(str(table)).to_pyarrow_table().num_rows == rows
    for key in planted:
        assert (place / "files" / key).exists()
        assert not (table / key).exists()


def test_a_key_that_leads_out_of_the_table_by_a_link_is_left_alone(
    table: Path, place: Path, tmp_path: Path
) -> None:
    victim = tmp_path / "victim"
    victim.mkdir()
    inside = place / "files" / "day=2024-01-01"
    # One directory to write into, and one to read from.
    shutil.move(table / "day=2024-01-01", tmp_path / "kept")
    (table / "day=2024-01-01").symlink_to(victim)
    shutil.move(place / "files" / "day=2024-01-02", victim / "other")
    (place / "files" / "day=2024-01-02").symlink_to(victim / "other")
    before = contents(victim)
    report = done(bring_back(table))
    assert report.metrics["numRestoredFiles"] == 0
    assert report.metrics["numRefusedFiles"] == len(list(inside.iterdir())) > 0
    assert contents(victim) == before


def add_a_line(place: Path) -> None:
    line = json.dumps({"path": "../../victim", "size": 1, "reason": "orphan"})
    with (place / "files.jsonl").open("a") as file:
        file.write(line + "\n")


def rewrite_both(place: Path) -> None:
    add_a_line(place)
    manifest = json.loads((place / "manifest.json").read_bytes())
    manifest["filesDigest"] = hashlib.sha256((place / "files.jsonl").read_bytes()).hexdigest()
    (place / "manifest.json").write_text(json.dumps(manifest))


def as_before(place: Path) -> None:
    """As an earlier build made it."""
    manifest = json.loads((place / "manifest.json").read_bytes())
    del manifest["filesDigest"], manifest["name"]
    (place / "manifest.json").write_text(json.dumps(manifest))


def rename(place: Path) -> None:
    place.rename(place.with_name("another"))


def without_commits(place: Path) -> None:
    table = place.parent.parent
    DeltaTable(str(table)).create_checkpoint()
    for commit in (table / "_delta_log").glob("*.json"):
        if b"VACUUM" in commit.read_bytes():
            commit.unlink()


def manifest_of(data: bytes) -> Callable[[Path], None]:
    def write(place: Path) -> None:
        (place / "manifest.json").write_bytes(data)

    write.__name__ = f"manifest {data[:20]!r}"
    return write


BROKEN = [
    manifest_of(data)
    for data in (
        b"",
        b"{",
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"x":' * 100_000,
        b"[]",
        b"null",
        b'{"version": "1", "quarantinedMs": 1}',
        b'{"version": 1, "quarantinedMs": null}',
        b'{"version": 1, "quarantinedMs": 1e400}',
        b'{"version": 1, "quarantinedMs": %d}' % 10**40,
        b'{"version": %d, "quarantinedMs": 1}' % -1,
        b'{"version": 1, "quarantinedMs": 1, "filesDigest": 7}',
        b'{"version": NaN, "quarantinedMs": 1}',
        b" " * (1 << 20),
    )
]
UNTRUE: list[tuple[Callable[[Path], None], str]] = [
    (add_a_line, "files.jsonl is not what it was"),
    (rewrite_both, "has the digest of its manifest.json"),
    (rename, "has the digest of its manifest.json"),
    (without_commits, "has the digest of its manifest.json"),
    (as_before, "an earlier build made it"),
    (lambda place: (place / "files.jsonl").unlink(), "its files.jsonl is missing"),
    (lambda place: (place / "manifest.json").unlink(), "it has no manifest.json"),
    *((broken, "its manifest.json cannot be read") for broken in BROKEN),
]


@pytest.mark.parametrize(("spoil", "why"), UNTRUE)
def test_a_record_that_the_log_does_not_vouch_for_is_refused_by_name(
    table: Path, place: Path, spoil: Callable[[Path], None], why: str
) -> None:
    spoil(place)
    before, name = contents(table), next(place.parent.iterdir()).name
    for options in ({}, {"name": name}):
        for dry_run in (True, False):
            report = bring_back(table, dry_run=dry_run, **options)
            assert report.error is not None
            assert (report.error.type, report.error.kind) == ("QuarantineRefused", "refused")
            assert f"The quarantine {name} is not restored" in report.error.message
            assert why in report.error.message
            assert "copy by hand" in report.error.message
    assert contents(table) == before


@pytest.mark.parametrize("spoil", [BROKEN[1], lambda place: (place / "manifest.json").unlink(), as_before])
def test_a_broken_quarantine_does_not_block_the_others(
    table: Path, place: Path, spoil: Callable[[Path], None], capsys: pytest.CaptureFixture[str]
) -> None:
    orphan = table / "day=2024-01-02" / "orphan"
    orphan.write_bytes(b"another")
    os.utime(orphan, (0, 0))
    second = done(run_vacuum(table, **NO_CHECK, quarantine=True)).plan or {}
    spoil(place)
    waiting = contents(place)
    assert cli.main(["restore-quarantine", str(table)]) == 0
    assert f"{place.name} is left as it is" in capsys.readouterr().out
    assert orphan.read_bytes() == b"another"
    assert not (place.parent / second["quarantine"]).exists()
    assert contents(place) == waiting


def test_an_interrupted_vacuum_is_restored_by_what_its_start_says(table: Path, place: Path) -> None:
    end = max((table / "_delta_log").glob("*.json"))
    assert b"VACUUM END" in end.read_bytes()
    end.unlink()
    assert done(bring_back(table)).metrics["numRestoredFiles"] == 7


@pytest.mark.parametrize("spoil", [*BROKEN[:4], as_before])
def test_a_broken_quarantine_is_deleted_by_the_time_of_its_manifest_alone(
    table: Path, place: Path, spoil: Callable[[Path], None]
) -> None:
    spoil(place)
    if spoil is as_before:  # as old as it says
        manifest = json.loads((place / "manifest.json").read_bytes())
        (place / "manifest.json").write_text(json.dumps({**manifest, "quarantinedMs": 0}))
    assert done(purge_after_a_week(table)).metrics["numPurgedFiles"] == 0
    wait(table, 8)
    assert done(purge_after_a_week(table)).metrics["numPurgedFiles"] == 7
    assert files_below(table) == live(table)


def test_a_quarantine_without_a_manifest_is_named_and_left(table: Path, place: Path) -> None:
    (place / "manifest.json").unlink()
    waiting = contents(place)
    report = done(run_vacuum(table, purge_quarantine_hours=0))
    assert report.metrics["numBrokenQuarantines"] == 1
    assert report.plan is not None
    assert report.plan["brokenQuarantines"] == {place.name: "it has no manifest.json"}
    assert contents(place) == waiting


def test_a_clock_that_is_ahead_of_the_store_deletes_no_quarantine(table: Path, place: Path) -> None:
    before = contents(table)
    # A dry run writes nothing, so that it cannot know.
    planned = done(purge_after_a_week(table, runtime=later(40), dry_run=True))
    assert planned.plan is not None
    assert planned.plan["numQuarantinedFilesToDelete"] == 7
    report = purge_after_a_week(table, runtime=later(40))
    assert report.error is not None
    assert report.error.type == "ClockAhead"
    assert contents(table) == before


def test_a_record_that_was_tampered_with_is_refused_and_harmless() -> None:
    outcomes = mutated_quarantines.run(examples=400, seed=1)
    assert min(outcomes["refused"], outcomes["restored"]) > 50


# -- whatever fails, and wherever ----------------------------------------------------------------------------


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
            end_restoration(history, history.storage)
            assert data(history) == before
            assert not waiting(history)


@given(histories(max_steps=5))
@settings(max_examples=8)
def test_a_restoration_that_dies_anywhere_loses_nothing(history: History) -> None:
    before = data(history)
    execute(history.storage, retain_hours=0)

    for died in dying_everywhere(history, lambda storage: end_restoration(history, storage)):
        if died:
            assert {**waiting(history), **data(history)} == before
            end_restoration(history, history.storage)
            assert data(history) == before
            assert not waiting(history)


@given(histories(max_steps=5))
@settings(max_examples=8)
def test_a_deletion_of_a_quarantine_that_dies_anywhere_is_ended_by_the_next(history: History) -> None:
    execute(history.storage, retain_hours=0)
    left = data(history)
    history.storage._clock_ms = NOW_MS + DAY_MS

    def end(storage: Storage) -> None:
        purge(storage, 1, NOW_MS + DAY_MS, NOTHING, SilentProgress(), dry_run=False)

    for died in dying_everywhere(history, end):
        if died:
            assert data(history) == left
            end(history.storage)
            assert data(history) == left
            assert not [key for key in history.storage.objects if key.startswith(QUARANTINE_DIRECTORY)]
