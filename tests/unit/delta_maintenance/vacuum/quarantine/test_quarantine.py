"""Files in quarantine are out of the table, and no order of failures loses them."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
from deltalake import DeltaTable
from hypothesis import given
from hypothesis import strategies as st
from tests.support.repetition import examples
from tests.support.runs.mutated_quarantines import restore_all, vacuum_into_quarantine
from tests.support.runs.quarantine_runs import (
    data_contents,
    restore_quarantine,
    table_files,
    waiting_files,
)
from tests.support.runs.vacuum_runs import (
    NO_RETENTION,
    done,
    files_below,
    live_files,
    run_vacuum,
)
from tests.support.tables.vacuum_histories import (
    History,
    dying_everywhere,
    histories,
)

from delta_log import Table
from delta_log.errors import DeltaLogError
from delta_maintenance.cli import main as cli
from delta_maintenance.vacuum.quarantine.quarantine import QUARANTINE_DIRECTORY


def test_removed_files_wait_under_a_hidden_name_and_can_be_restored(table: Path) -> None:
    before = data_contents(table)
    planned = done(run_vacuum(table, **NO_RETENTION, quarantine=True, dry_run=True))
    assert data_contents(table) == before
    report = done(run_vacuum(table, **NO_RETENTION, quarantine=True))
    assert planned.plan is not None
    assert report.plan is not None
    assert report.plan["digest"] == planned.plan["digest"]
    place = f"{QUARANTINE_DIRECTORY}/{report.plan['quarantine']}/files/"
    waiting = {name.removeprefix(place) for name in files_below(table) if name.startswith(place)}
    assert waiting == before.keys() - live_files(table)
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
    # No vacuum looks into the quarantine, neither ours nor that of delta-rs.
    assert done(run_vacuum(table, **NO_RETENTION)).status == "nothing_to_do"
    theirs = DeltaTable(str(table)).vacuum(0, dry_run=True, enforce_retention_duration=False, full=True)
    assert not [path for path in theirs if QUARANTINE_DIRECTORY in path]
    assert DeltaTable(str(table)).to_pyarrow_table().num_rows == 600
    assert done(restore_quarantine(table, dry_run=True)).metrics["numRestoredFiles"] == 7
    restored = done(restore_quarantine(table))
    assert (restored.status, restored.metrics["numRestoredFiles"]) == ("restored", 7)
    assert data_contents(table) == before
    assert not (table / QUARANTINE_DIRECTORY).exists()
    assert done(restore_quarantine(table)).status == "nothing_to_do"


def test_a_lite_vacuum_can_use_a_quarantine(table: Path) -> None:
    before = data_contents(table)
    report = done(run_vacuum(table, **NO_RETENTION, lite=True, quarantine=True))
    assert report.metrics["numDeletedFiles"] == 6
    assert done(restore_quarantine(table)).metrics["numRestoredFiles"] == 6
    assert data_contents(table) == before


def test_an_older_version_can_be_read_after_a_restoration(table: Path) -> None:
    done(run_vacuum(table, **NO_RETENTION, quarantine=True))
    with pytest.raises(DeltaLogError):
        Table(str(table)).snapshot(version=1).to_arrow()
    done(restore_quarantine(table))
    assert Table(str(table)).snapshot(version=1).to_arrow().num_rows > 0


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


@given(histories(max_steps=5), st.sampled_from([0.0, 24.0]))
@examples(5)
def test_a_vacuum_that_dies_anywhere_loses_nothing(history: History, hours: float) -> None:
    before, start = table_files(history), dict(history.storage.objects)
    vacuum_into_quarantine(history.storage, retain_hours=hours)
    expected = table_files(history)
    assert waiting_files(history) == {key: before[key] for key in before.keys() - expected.keys()}
    history.storage.objects = start

    for died in dying_everywhere(
        history, lambda storage: vacuum_into_quarantine(storage, retain_hours=hours)
    ):
        if died:
            assert {**waiting_files(history), **table_files(history)} == before
            vacuum_into_quarantine(history.storage, retain_hours=hours)
            assert table_files(history) == expected
            restore_all(history, history.storage)
            assert table_files(history) == before
            assert not waiting_files(history)
