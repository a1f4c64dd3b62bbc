"""VACUUM on real directories: what goes, what stays, and what makes it refuse."""

from __future__ import annotations

import json
import os
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable, write_deltalake
from tests.support.runs.vacuum_runs import age, done, files_below, run_vacuum
from tests.support.tables.small_tables import write_days

from delta_log import Table
from delta_maintenance.cli import main as cli
from delta_maintenance.contract import JobReport

NO_CHECK: dict[str, Any] = {"retain_hours": 0, "retention_check": False}


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Two partitions; of its six files four were removed by a compaction. All of it is a month old."""
    path = tmp_path / "table"
    write_days(path)
    DeltaTable(str(path)).optimize.compact()
    age(path)
    return path


def live(table: Path) -> set[str]:
    return set(Table(str(table)).snapshot().files(["key"]).column("key").to_pylist())


def old_file(path: Path, content: bytes = b"old") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    month_ago = time.time() - 30 * 86_400
    for made in (path, *path.parents[:2]):
        os.utime(made, (month_ago, month_ago))


def refusal(report: JobReport) -> str:
    assert report.error is not None
    assert report.error.kind == "refused"
    return str(report.error.message)


def removed_long_ago(table: Path) -> None:
    """Make the removals of every commit a month old, as their files are."""
    for commit in (table / "_delta_log").glob("*.json"):
        month_ago = int((time.time() - 30 * 86_400) * 1000)
        actions = [json.loads(line) for line in commit.read_text().splitlines()]
        for action in actions:
            if "remove" in action:
                action["remove"]["deletionTimestamp"] = month_ago
        times = (commit.stat().st_mtime,) * 2
        commit.write_text("".join(json.dumps(action) + "\n" for action in actions))
        os.utime(commit, times)


def test_removed_files_stay_for_the_retention_and_go_after_it(table: Path) -> None:
    # Removed a moment ago, by the timestamps in the log.
    assert done(run_vacuum(table)).status == "nothing_to_do"
    removed_long_ago(table)
    before = files_below(table)
    report = done(run_vacuum(table))
    assert files_below(table) == live(table)
    assert report.plan is not None
    assert report.plan["reasons"].keys() == {"expired_tombstone"}
    assert report.metrics["numDeletedFiles"] == len(before) - len(live(table)) == 6
    assert DeltaTable(str(table)).to_pyarrow_table().num_rows == 600


def test_the_log_says_what_was_done(table: Path) -> None:
    report = done(run_vacuum(table, **NO_CHECK))
    end, start = Table(str(table)).history(2)
    assert (start["operation"], end["operation"]) == ("VACUUM START", "VACUUM END")
    assert start["operationParameters"] == {
        "retentionCheckEnabled": False,
        "defaultRetentionMillis": 604_800_000,
        "specifiedRetentionMillis": 0,
    }
    assert start["operationMetrics"]["numFilesToDelete"] == 6
    assert end["operationParameters"] == {"status": "COMPLETED"}
    assert end["operationMetrics"]["numDeletedFiles"] == 6
    assert end["operationMetrics"]["numVacuumedDirectories"] == 3
    assert report.version == end["version"]
    assert DeltaTable(str(table)).version() == end["version"]


def test_hidden_names_and_links_are_never_touched(table: Path, tmp_path: Path) -> None:
    kept = ["_private/x", ".cache/x", "day=2024-01-01/_temporary/x", "day=2024-01-01/.x.crc", "_SUCCESS"]
    for name in kept:
        old_file(table / name)
    old_file(tmp_path / "outside" / "file")
    (table / "link").symlink_to(tmp_path / "outside")
    (table / "link.parquet").symlink_to(tmp_path / "outside" / "file")
    done(run_vacuum(table, **NO_CHECK))
    assert files_below(table) == live(table) | set(kept) | {"link", "link.parquet"}
    assert (tmp_path / "outside" / "file").exists()


def test_a_removed_file_behind_a_link_is_left_alone(table: Path, tmp_path: Path) -> None:
    shutil.move(table / "day=2024-01-01", tmp_path / "elsewhere")
    (table / "day=2024-01-01").symlink_to(tmp_path / "elsewhere")
    before = {path.name for path in (tmp_path / "elsewhere").iterdir()}
    modes: tuple[dict[str, Any], ...] = ({"lite": True}, {})
    for options in modes:
        run_vacuum(table, **NO_CHECK, **options)
        assert {path.name for path in (tmp_path / "elsewhere").iterdir()} == before


def test_young_files_stay(table: Path) -> None:
    (table / "day=2024-01-01" / "in-flight.parquet").write_bytes(b"young")
    old_file(table / "orphan.parquet")
    done(run_vacuum(table))
    assert "day=2024-01-01/in-flight.parquet" in files_below(table)
    assert "orphan.parquet" not in files_below(table)


def test_change_data_goes_by_age_alone(table: Path) -> None:
    old_file(table / "_change_data" / "day=2024-01-01" / "cdc-1.parquet")
    (table / "_change_data" / "cdc-2.parquet").write_bytes(b"young")
    report = done(run_vacuum(table))
    assert report.plan is not None
    assert report.plan["reasons"] == {"old_change_data": {"numFiles": 1, "numBytes": 3}}
    assert "_change_data/cdc-2.parquet" in files_below(table)
    assert not (table / "_change_data" / "day=2024-01-01").exists()


def test_directories_that_are_left_empty_go_and_young_ones_stay(table: Path) -> None:
    old_file(table / "a" / "b" / "orphan")
    old_file(table / "full" / ".hidden")
    (table / "young").mkdir()
    (table / "old" / "er").mkdir(parents=True)
    for path in (table / "old" / "er", table / "old", table / "a"):
        os.utime(path, (1, 1))
    planned = run_vacuum(table, dry_run=True)
    report = done(run_vacuum(table))
    assert planned.plan is not None
    assert planned.plan["numDirectoriesToDelete"] == report.metrics["numDeletedDirectories"] == 4
    left = {path.name for path in table.iterdir() if path.is_dir()}
    assert left == {"_delta_log", "day=2024-01-01", "day=2024-01-02", "full", "young"}


def test_another_table_below_is_refused(table: Path) -> None:
    old_file(table / "inner" / "_delta_log" / f"{0:020d}.json")
    old_file(table / "inner" / "data.parquet")
    before = files_below(table)
    assert "Another Delta table lies below this one: inner" in refusal(run_vacuum(table, **NO_CHECK))
    assert files_below(table) == before


def test_an_unknown_feature_is_refused_even_for_a_dry_run(table: Path) -> None:
    commit = table / "_delta_log" / f"{7:020d}.json"
    protocol = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["brandNew"]}
    commit.write_text(json.dumps({"protocol": protocol}) + "\n")
    before = files_below(table)
    for dry_run in (True, False):
        assert "brandNew" in refusal(run_vacuum(table, dry_run=dry_run, **NO_CHECK))
    assert files_below(table) == before


def test_a_gap_in_the_log_is_refused(table: Path) -> None:
    (table / "_delta_log" / f"{3:020d}.json").unlink()
    before = files_below(table)
    assert "missing" in refusal(run_vacuum(table, **NO_CHECK))
    assert files_below(table) == before


def test_a_table_whose_live_files_are_not_there_is_refused(table: Path) -> None:
    lost = min(live(table))
    (table / lost).unlink()
    before = files_below(table)
    assert f"1 live files of version 6 are not in the store, for example {lost!r}" in refusal(
        run_vacuum(table, **NO_CHECK)
    )
    assert files_below(table) == before


def test_a_copy_whose_log_names_the_old_place_is_refused(table: Path, tmp_path: Path) -> None:
    for commit in (table / "_delta_log").glob("*.json"):
        commit.write_text(commit.read_text().replace('"path":"day', f'"path":"file://{table}/day'))
    copy = Path(shutil.copytree(table, tmp_path / "copy"))
    age(copy)
    before = files_below(copy)
    assert "Nothing was deleted" in refusal(run_vacuum(copy, **NO_CHECK))
    assert files_below(copy) == before
    # In its own place absolute paths are as good as any.
    done(run_vacuum(table, **NO_CHECK))
    assert files_below(table) == live(table)


def test_a_path_without_meaning_is_refused(table: Path) -> None:
    commit = table / "_delta_log" / f"{7:020d}.json"
    remove = {"path": "day=1/bro%ken", "dataChange": True, "deletionTimestamp": 1}
    commit.write_text(json.dumps({"remove": remove}) + "\n")
    before = files_below(table)
    assert "bro%ken" in refusal(run_vacuum(table, **NO_CHECK))
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
def test_what_makes_no_sense_is_refused(table: Path, options: dict[str, Any], why: str) -> None:
    before = files_below(table)
    assert why in refusal(run_vacuum(table, **options))
    assert files_below(table) == before


def test_a_predicate_narrows_what_is_deleted(table: Path) -> None:
    removed_long_ago(table)
    for name in ("orphan", "day=2024-01-01/orphan", "day=2024-01-02/orphan", "day=garbage/orphan"):
        old_file(table / name)
    before = files_below(table)
    done(run_vacuum(table, where="day = '2024-01-02'"))
    gone = before - files_below(table)
    assert len(gone) == 4
    assert all(key.startswith("day=2024-01-02/") for key in gone)
    assert not (table / "_delta_log" / "_last_vacuum_info").exists()


def test_a_lite_vacuum_goes_on_where_the_last_one_stopped(table: Path) -> None:
    removed_long_ago(table)
    old_file(table / "orphan")
    before = files_below(table)
    report = done(run_vacuum(table, lite=True))
    assert report.metrics["numDeletedFiles"] == 6
    assert files_below(table) == live(table) | {"orphan"}
    assert before - files_below(table) == before - live(table) - {"orphan"}
    note = json.loads((table / "_delta_log" / "_last_vacuum_info").read_text())
    assert note == {"latestCommitVersionOutsideOfRetentionWindow": 6}
    assert done(run_vacuum(table, lite=True)).status == "nothing_to_do"
    write_deltalake(str(table), DeltaTable(str(table)).to_pyarrow_table(), mode="overwrite")
    age(table)
    removed_long_ago(table)
    assert done(run_vacuum(table, lite=True)).metrics["numDeletedFiles"] == 2


def test_a_lite_vacuum_needs_all_commits_since_the_last_one(table: Path) -> None:
    DeltaTable(str(table)).create_checkpoint()
    (table / "_delta_log" / f"{0:020d}.json").unlink()
    assert "Run a full vacuum once" in refusal(run_vacuum(table, lite=True))
    done(run_vacuum(table))
    assert done(run_vacuum(table, lite=True)).status == "nothing_to_do"


def test_every_path_can_be_had_in_a_file(table: Path, tmp_path: Path) -> None:
    old_file(table / "orphan")
    target = tmp_path / "lists" / "paths.json"
    planned = done(run_vacuum(table, dry_run=True, output=str(target)))
    assert planned.plan is not None
    (row,) = [json.loads(line) for line in target.read_text().splitlines()]
    assert (row["path"], row["reason"], row["size"]) == ("orphan", "orphan", 3)
    assert "is there already" in refusal(run_vacuum(table, output=str(target)))
    assert "orphan" in files_below(table)


def test_a_plan_that_was_approved_may_not_grow(table: Path) -> None:
    old_file(table / "orphan")
    approved = done(run_vacuum(table, dry_run=True)).plan
    old_file(table / "another")
    assert "grown beyond what was approved" in refusal(run_vacuum(table, approved=approved))
    (table / "another").unlink()
    removed_long_ago(table)  # what expires later does not count: the cutoff is that of the plan
    assert done(run_vacuum(table, approved=done(run_vacuum(table, dry_run=True)).plan)).status == "committed"


def test_a_checkpoint_that_lost_files_is_found_out_by_the_commits(table: Path) -> None:
    import pyarrow.parquet as pq

    DeltaTable(str(table)).create_checkpoint()
    (checkpoint,) = (table / "_delta_log").glob("*.checkpoint.parquet")
    rows = pq.read_table(checkpoint)
    adds = [number for number, add in enumerate(rows.column("add").to_pylist()) if add is not None]
    pq.write_table(rows.take([n for n in range(rows.num_rows) if n != adds[0]]), checkpoint)
    before = files_below(table)
    assert "disagree about the live files of version 6" in refusal(run_vacuum(table, **NO_CHECK))
    assert files_below(table) == before


def test_the_strength_of_the_proof_is_told_and_can_be_demanded(table: Path) -> None:
    old_file(table / "orphan")
    DeltaTable(str(table)).create_checkpoint()
    for version in range(3):
        (table / "_delta_log" / f"{version:020d}.json").unlink()
    for checksum in (table / "_delta_log").glob("*.crc"):
        checksum.unlink()
    assert "cannot be proved" in refusal(run_vacuum(table, require_proof=True))
    report = done(run_vacuum(table))
    assert report.plan is not None
    assert report.plan["proof"] == "checkpoint"
    old_file(table / "orphan")
    report = done(run_vacuum(table, require_proof=True))
    assert report.plan is not None
    assert report.plan["proof"] == "checkpoint_and_checksum"
    newest = max((table / "_delta_log").glob("*.crc"))
    newest.write_text(newest.read_text().replace('"numFiles":2', '"numFiles":3'))
    old_file(table / "orphan")
    assert "says 3 files" in refusal(run_vacuum(table))
    assert "orphan" in files_below(table)


def test_commits_prove_best(table: Path) -> None:
    report = done(run_vacuum(table, require_proof=True, **NO_CHECK))
    assert report.plan is not None
    assert (report.plan["proof"], report.plan["confirmedBy"]) == ("commits", "listing")
    assert report.plan["liveFilesConfirmed"] == 2


def test_without_a_right_to_delete_it_says_how_far_it_came(table: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may delete everything")
    directory = table / "day=2024-01-02"
    directory.chmod(0o555)
    try:
        report = run_vacuum(table, **NO_CHECK)
    finally:
        directory.chmod(0o755)
    assert report.error is not None
    assert (report.error.facts["deleted_files"], report.error.facts["remaining_files"]) == (3, 3)


def test_the_command_line_plans_and_deletes(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old_file(table / "orphan")
    assert cli.main(["vacuum", str(table), "--dry-run"]) == 0
    text = capsys.readouterr().out
    assert "Would delete 1 files, 3 B" in text
    assert "orphan: no version that can be read names them" in text
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
