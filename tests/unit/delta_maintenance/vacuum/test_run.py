"""The VACUUM job: its options, its report, and the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.support.runs.vacuum_runs import (
    NO_RETENTION,
    done,
    files_below,
    live_files,
    refusal,
    run_vacuum,
)
from tests.support.tables.vacuumable_tables import make_removals_old, old_file, write_vacuumable

from delta_maintenance.cli import main as cli


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return write_vacuumable(tmp_path / "table")


def test_an_unknown_feature_is_refused_even_for_a_dry_run(table: Path) -> None:
    commit = table / "_delta_log" / f"{7:020d}.json"
    protocol = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["brandNew"]}
    commit.write_text(json.dumps({"protocol": protocol}) + "\n")
    before = files_below(table)
    for dry_run in (True, False):
        assert "brandNew" in refusal(run_vacuum(table, dry_run=dry_run, **NO_RETENTION))
    assert files_below(table) == before


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"retain_hours": -1}, "from 0"),
        ({"retain_hours": float("nan")}, "from 0"),
        ({"retain_hours": "week"}, "a number of hours"),
        ({"retain_hours": 1}, "shorter than the 168 hours"),
        ({"where": "nosuch = 1"}, "nosuch"),
        ({"where": "id = 1"}, "id"),
        ({"lite": True, "inventory": "/x"}, "one of the two"),
        ({"force": True}, "no option force"),
        ({"approved": {"cutoffMs": 1}}, "is not a plan"),
        ({"inventory": "/no/such/inventory.csv"}, "no inventory"),
    ],
)
def test_options_that_make_no_sense_are_refused(table: Path, options: dict[str, Any], why: str) -> None:
    before = files_below(table)
    assert why in refusal(run_vacuum(table, **options))
    assert files_below(table) == before


def inventory_of(table: Path) -> str:
    lines = [f"{path},{path.stat().st_size},false,1000" for path in table.rglob("*") if path.is_file()]
    target = table.with_suffix(".csv")
    target.write_text("path,length,isDir,modificationTime\n" + "\n".join(lines) + "\n")
    return str(target)


@pytest.mark.parametrize("way", ["full", "lite", "inventory", "quarantine", "where", "require_proof"])
def test_a_dry_run_refuses_as_the_run_does_where_live_files_are_missing(table: Path, way: str) -> None:
    make_removals_old(table)
    old_file(table / "day=2024-01-02" / "orphan")
    missing = next(key for key in live_files(table) if key.startswith("day=2024-01-02"))
    (table / missing).unlink()
    ways: dict[str, dict[str, Any]] = {
        "full": {},
        "lite": {"lite": True},
        "inventory": {"inventory": inventory_of(table)},
        "quarantine": {"quarantine": True},
        "where": {"where": "day = '2024-01-02'"},
        "require_proof": {"require_proof": True},
    }
    options = ways[way]
    before = files_below(table)
    promised = refusal(run_vacuum(table, dry_run=True, **options))
    assert "1 live files of version" in promised
    assert missing in promised
    assert refusal(run_vacuum(table, **options)) == promised
    assert files_below(table) == before


def test_a_dry_run_with_nothing_to_delete_says_so_though_live_files_are_missing(table: Path) -> None:
    """The run deletes nothing, so it looks for no files either. The table's health tells of them."""
    (table / min(live_files(table))).unlink()
    planned = done(run_vacuum(table, dry_run=True, where="day = '2024-01-02'"))
    assert planned.plan is not None
    assert planned.plan["numFilesToDelete"] == 0
    assert done(run_vacuum(table, where="day = '2024-01-02'")).status == "nothing_to_do"


def test_every_path_is_written_to_the_plan_file(table: Path, tmp_path: Path) -> None:
    old_file(table / "orphan")
    target = tmp_path / "lists" / "paths.json"
    planned = done(run_vacuum(table, dry_run=True, output=str(target)))
    assert planned.plan is not None
    (row,) = [json.loads(line) for line in target.read_text().splitlines()]
    assert (row["path"], row["reason"], row["size"]) == ("orphan", "orphan", 3)
    assert "is there already" in refusal(run_vacuum(table, output=str(target)))
    assert "orphan" in files_below(table)


def test_the_command_line_plans_and_deletes(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old_file(table / "orphan")
    assert cli.main(["vacuum", str(table), "--dry-run"]) == 0
    text = capsys.readouterr().out
    assert "Would delete 1 files, 3 B" in text
    assert "orphan: the newest version neither has them nor remembers their removal" in text
    assert cli.main(["vacuum", str(table), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["status"], report["metrics"]["numDeletedFiles"]) == ("committed", 1)
    assert cli.main(["vacuum", str(table)]) == 0
    assert "Nothing to delete" in capsys.readouterr().out
    old_file(table / "orphan")
    assert cli.main(["vacuum", str(table), "--no-retention-check", "--retain-hours", "0"]) == 0
    text = capsys.readouterr().out
    assert "Deleted 7 files" in text
    assert "what has to stay was proved by every commit of the log" in text
    assert "warning: without retention" in text
    assert cli.main(["vacuum", str(table), "--retain-hours", "minus one", "--json"]) == 2
    assert "not a number of hours" in json.loads(capsys.readouterr().out)["error"]["message"]


def test_the_same_transaction_is_done_once(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old_file(table / "orphan")
    arguments = ["vacuum", str(table), "--txn", "weekly:1", "--json"]
    assert cli.main(arguments) == 0
    version = json.loads(capsys.readouterr().out)["version"]
    old_file(table / "orphan")
    assert cli.main(arguments) == 0
    again = json.loads(capsys.readouterr().out)
    assert (again["status"], again["version"]) == ("already_done", version)
    assert "orphan" in files_below(table)
