"""Restoring files from quarantine."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from deltalake import DeltaTable
from hypothesis import given
from tests.support.repetition import examples
from tests.support.runs.mutated_quarantines import restore_all, vacuum_into_quarantine
from tests.support.runs.quarantine_runs import (
    BROKEN_MANIFESTS,
    as_an_earlier_build_wrote_it,
    restore_quarantine,
    table_files,
    waiting_files,
)
from tests.support.runs.vacuum_runs import (
    NO_RETENTION,
    contents,
    done,
    live_files,
    run_vacuum,
)
from tests.support.tables.vacuum_histories import (
    History,
    dying_everywhere,
    histories,
)

from delta_log import Table
from delta_maintenance.cli import main as cli


def test_another_file_at_the_same_key_is_left_alone(table: Path) -> None:
    done(run_vacuum(table, **NO_RETENTION, quarantine=True))
    orphan = table / "day=2024-01-01" / "orphan"
    for content in (b"new", b"of another size"):
        orphan.write_bytes(content)
        report = done(restore_quarantine(table))
        assert report.metrics["numConflictingFiles"] == 1
        assert report.plan is not None
        assert report.plan["conflicts"] == ["day=2024-01-01/orphan"]
        assert orphan.read_bytes() == content
    orphan.unlink()
    done(restore_quarantine(table))
    assert orphan.read_bytes() == b"old"


def test_an_unknown_quarantine_is_refused_and_the_others_are_named(table: Path) -> None:
    name = (done(run_vacuum(table, **NO_RETENTION, quarantine=True)).plan or {})["quarantine"]
    report = restore_quarantine(table, name="nothing")
    assert report.error is not None
    assert report.error.kind == "refused"
    assert f"no quarantine nothing. Its quarantines: {name}" in report.error.message


def test_planted_files_are_never_restored(table: Path, place: Path) -> None:
    log, rows = contents(table / "_delta_log"), DeltaTable(str(table)).to_pyarrow_table().num_rows
    version = Table(str(table)).snapshot().version
    removes = [
        json.dumps({"remove": {"path": key, "deletionTimestamp": 1, "dataChange": True}})
        for key in live_files(table)
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
        report = done(restore_quarantine(table, dry_run=dry_run))
        assert (report.metrics["numRestoredFiles"], report.metrics["numUnnamedFiles"]) == (7, 4)
        assert report.plan is not None
        assert sorted(report.plan["leftFiles"]) == sorted(planted)
    assert contents(table / "_delta_log") == log
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
    # Replace one directory that the restoration writes to, and one that it reads from.
    shutil.move(table / "day=2024-01-01", tmp_path / "kept")
    (table / "day=2024-01-01").symlink_to(victim)
    shutil.move(place / "files" / "day=2024-01-02", victim / "other")
    (place / "files" / "day=2024-01-02").symlink_to(victim / "other")
    before = contents(victim)
    report = done(restore_quarantine(table))
    assert report.metrics["numRestoredFiles"] == 0
    assert report.metrics["numRefusedFiles"] == len(list(inside.iterdir())) > 0
    assert contents(victim) == before


def test_an_interrupted_vacuum_can_be_restored_by_its_start(table: Path, place: Path) -> None:
    end = max((table / "_delta_log").glob("*.json"))
    assert b"VACUUM END" in end.read_bytes()
    end.unlink()
    assert done(restore_quarantine(table)).metrics["numRestoredFiles"] == 7


@pytest.mark.parametrize(
    "spoil",
    [BROKEN_MANIFESTS[1], lambda place: (place / "manifest.json").unlink(), as_an_earlier_build_wrote_it],
)
def test_a_broken_quarantine_does_not_block_the_others(
    table: Path, place: Path, spoil: Callable[[Path], None], capsys: pytest.CaptureFixture[str]
) -> None:
    orphan = table / "day=2024-01-02" / "orphan"
    orphan.write_bytes(b"another")
    os.utime(orphan, (0, 0))
    second = done(run_vacuum(table, **NO_RETENTION, quarantine=True)).plan or {}
    spoil(place)
    waiting = contents(place)
    assert cli.main(["restore-quarantine", str(table)]) == 0
    assert f"{place.name} is left as it is" in capsys.readouterr().out
    assert orphan.read_bytes() == b"another"
    assert not (place.parent / second["quarantine"]).exists()
    assert contents(place) == waiting


@given(histories(max_steps=5))
@examples(8)
def test_a_restoration_that_dies_anywhere_loses_nothing(history: History) -> None:
    before = table_files(history)
    vacuum_into_quarantine(history.storage, retain_hours=0)

    for died in dying_everywhere(history, lambda storage: restore_all(history, storage)):
        if died:
            assert {**waiting_files(history), **table_files(history)} == before
            restore_all(history, history.storage)
            assert table_files(history) == before
            assert not waiting_files(history)
