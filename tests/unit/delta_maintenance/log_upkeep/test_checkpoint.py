"""When a checkpoint is due, and what the command does about it."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest

from delta_log import Table
from delta_maintenance.cli import main as cli
from delta_maintenance.log_upkeep.plan.checkpoint import MAX_TAIL_BYTES, ReplayCost, plan_checkpoint
from delta_maintenance.log_upkeep.plan.log_compaction import LogPiece, plan_log_compaction


@pytest.mark.parametrize(
    ("commits", "size_bytes", "due"),
    [
        (0, 0, False),
        (9, 1_000, False),
        (10, 1_000, True),
        (1, MAX_TAIL_BYTES, True),
        (1, MAX_TAIL_BYTES - 1, False),
    ],
)
def test_commits_and_their_weight_make_one_due(commits: int, size_bytes: int, due: bool) -> None:
    plan = plan_checkpoint(ReplayCost(20, 20 - commits, commits, size_bytes, 1 << 30), interval=10)
    assert plan.due is due
    assert plan.reasons
    assert json.loads(json.dumps(plan.to_dict()))["tail"]["commits"] == commits


def test_both_reasons_are_told() -> None:
    plan = plan_checkpoint(ReplayCost(20, None, 21, MAX_TAIL_BYTES), interval=10)
    assert len(plan.reasons) == 2
    assert all("no checkpoint yet" in reason for reason in plan.reasons)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    for number in range(4):
        deltalake.write_deltalake(str(tmp_path), pa.table({"id": [number]}), mode="append")
    return tmp_path


def checkpoint(capsys: pytest.CaptureFixture[str], table: Path, *options: str) -> dict[str, Any]:
    code = cli.main(["checkpoint", str(table), "--json", *options])
    result: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert code == (0 if "error" not in result else 2)
    return result


def test_the_command_writes_one_that_other_readers_use(
    table: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert checkpoint(capsys, table, "--dry-run")["plan"]["due"] is False
    assert checkpoint(capsys, table, "--if-due")["status"] == "nothing_to_do"
    assert not list(table.glob("_delta_log/*checkpoint*"))
    report = checkpoint(capsys, table)
    assert (report["status"], report["version"], report["metrics"]["numOfAddFiles"]) == ("written", 3, 4)
    for version in range(3):
        (table / "_delta_log" / f"{version:020d}.json").unlink()
    assert sorted(deltalake.DeltaTable(str(table)).to_pyarrow_table()["id"].to_pylist()) == [0, 1, 2, 3]
    assert Table(str(table)).snapshot().checkpoint_version == 3
    assert checkpoint(capsys, table)["status"] == "nothing_to_do"


def test_people_get_a_sentence(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = []
    for options in (["--dry-run"], ["--if-due"], [], []):
        assert cli.main(["checkpoint", str(table), *options]) == 0
        said.append(capsys.readouterr().out)
    assert "not due: 4 of 10 commits" in said[0]
    assert "No checkpoint written: 4 of 10" in said[1]
    assert "Wrote a checkpoint of version 3" in said[2]
    assert "version 3 has one already" in said[3]


def test_what_cannot_be_is_refused_and_nothing_written(
    table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert checkpoint(capsys, table, "--policy", "v2")["error"]["kind"] == "refused"
    assert checkpoint(capsys, table, "--policy", "v3")["error"]["type"] == "UsageError"
    gap = Path(shutil.copytree(table, tmp_path / "gap"))
    (gap / "_delta_log" / f"{1:020d}.json").unlink()
    assert "missing" in checkpoint(capsys, gap)["error"]["message"]
    assert not list(table.rglob("*checkpoint*"))


def test_a_v2_checkpoint_names_again_what_did_not_change_unless_told_otherwise(
    table: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = table / "_delta_log"
    features: dict[str, Any] = {"minReaderVersion": 3, "minWriterVersion": 7}
    features |= {name: ["v2Checkpoint"] for name in ("readerFeatures", "writerFeatures")}
    (log / f"{4:020d}.json").write_text(json.dumps({"protocol": features}) + "\n")
    first = checkpoint(capsys, table, "--policy", "v2", "--top-format", "parquet")
    assert first["metrics"]["numReusedSidecars"] == 0
    assert [file.suffix for file in log.glob("*checkpoint.*-*")] == [".parquet"]
    (log / f"{5:020d}.json").write_text(json.dumps({"txn": {"appId": "a", "version": 1}}) + "\n")
    assert cli.main(["checkpoint", str(table), "--policy", "v2"]) == 0
    assert "1 of them did not change" in capsys.readouterr().out
    (log / f"{6:020d}.json").write_text(json.dumps({"txn": {"appId": "a", "version": 2}}) + "\n")
    assert checkpoint(capsys, table, "--policy", "v2", "--full")["metrics"]["numReusedSidecars"] == 0
    assert checkpoint(capsys, table, "--top-format", "avro")["error"]["type"] == "UsageError"
    assert Table(str(table)).snapshot().num_files == 4


# -- what comes with it ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("size_bytes", "checkpoint_bytes", "due"),
    [(20 << 20, 1 << 20, True), (20 << 20, 1 << 30, False), (1 << 20, 1 << 20, False)],
)
def test_commits_that_cost_a_reader_more_than_the_checkpoint_make_one_due(
    size_bytes: int, checkpoint_bytes: int, due: bool
) -> None:
    plan = plan_checkpoint(ReplayCost(20, 18, 2, size_bytes, checkpoint_bytes), interval=10)
    assert plan.due is due
    assert plan.to_dict()["readerCost"]["tailMs"] > 0
    if due:
        assert "cost a reader about" in plan.reasons[0]


def pieces(*sizes: int) -> list[LogPiece]:
    return [LogPiece(number, number, size) for number, size in enumerate(sizes, 5)]


@pytest.mark.parametrize(
    ("tail", "versions", "worth_it"),
    [
        (pieces(), None, False),
        (pieces(10), None, False),
        (pieces(10, 10), (5, 6), False),
        (pieces(10, 10, 10, 10), (5, 8), True),
        # What is larger than all that came after it stays as it is.
        (pieces(1000, 10, 10, 10, 10), (6, 9), True),
        (pieces(1000, 10), (5, 6), False),
        ([LogPiece(0, 9, 40), *(LogPiece(n, n, 10) for n in range(10, 14))], (0, 13), True),
        ([LogPiece(0, 9, 41), *(LogPiece(n, n, 10) for n in range(10, 14))], (10, 13), True),
    ],
)
def test_a_compaction_takes_older_pieces_while_they_are_no_larger_than_the_newer_ones(
    tail: list[LogPiece], versions: tuple[int, int] | None, worth_it: bool
) -> None:
    plan = plan_log_compaction(tail)
    assert (plan.start, plan.end) == (versions or (None, None))
    assert plan.worth_it is worth_it
    assert plan.reason


def test_where_no_checkpoint_is_due_the_commits_are_put_into_one_file(
    table: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    planned = checkpoint(capsys, table, "--dry-run")["plan"]["logCompaction"]
    assert (planned["start"], planned["end"], planned["worth_it"]) == (0, 3, True)
    report = checkpoint(capsys, table, "--if-due", "--compact-log")
    assert (report["status"], report["metrics"]["numCompactedCommits"]) == ("written", 4)
    assert (table / "_delta_log" / f"{0:020d}.{3:020d}.compacted.json").exists()
    assert checkpoint(capsys, table, "--if-due", "--compact-log")["status"] == "nothing_to_do"
    assert Table(str(table)).snapshot().num_files == 4


def test_a_compaction_on_request(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["compact-log", str(table), "--dry-run"]) == 0
    assert "make one file of 4" in capsys.readouterr().out
    assert not list(table.glob("_delta_log/*compacted*"))
    assert cli.main(["compact-log", str(table)]) == 0
    assert "Put 4 commits into one file" in capsys.readouterr().out
    assert cli.main(["compact-log", str(table), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["status"] == "nothing_to_do"


def test_a_checksum_that_is_missing_is_written_and_one_that_is_wrong_replaced(
    table: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = table / "_delta_log" / f"{3:020d}.crc"
    told = checkpoint(capsys, table, "--repair-checksum", "--if-due", "--dry-run")["plan"]["checksum"]
    assert (told["state"], told["provedBy"]) == ("missing", "commits")
    assert not path.exists()
    report = checkpoint(capsys, table, "--repair-checksum", "--if-due")
    assert (report["status"], report["plan"]["checksum"]["repaired"]) == ("written", True)
    right = path.read_bytes()
    assert json.loads(right)["numFiles"] == 4
    path.write_text('{"tableSizeBytes":1,"numFiles":5,"numMetadata":1,"numProtocol":1}')
    assert "another numFiles" in checkpoint(capsys, table)["error"]["message"]
    assert not list(table.glob("_delta_log/*checkpoint*"))
    report = checkpoint(capsys, table, "--repair-checksum")
    assert "numFiles" in report["plan"]["checksum"]["disagreements"]
    assert report["plan"]["checkpointWritten"]
    assert path.read_bytes() == right


def test_the_log_is_cleaned_after_the_checkpoint_and_on_request(
    table: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    deltalake.DeltaTable(str(table)).alter.set_table_properties(
        {"delta.logRetentionDuration": "interval 1 days"}
    )
    checkpoint(capsys, table)
    aged(table)
    # By hand, since other writers clean up when they commit.
    (table / "_delta_log" / f"{5:020d}.json").write_text('{"commitInfo":{}}\n')
    plan = checkpoint(capsys, table, "--cleanup-log", "--dry-run")["plan"]["logCleanup"]
    assert (plan["anchorVersion"], plan["numFilesToDelete"]) == (4, 4)
    assert cli.main(["cleanup-log", str(table), "--dry-run"]) == 0
    said = capsys.readouterr().out
    assert "Would delete 4 files of the log" in said
    assert "every version from 4 on can be read" in said
    report = checkpoint(capsys, table, "--if-due", "--cleanup-log")
    assert (report["status"], report["metrics"]["numDeletedFiles"]) == ("cleaned", 4)
    assert report["plan"]["logCleanup"]["readableVersions"] == [4, 5]
    assert cli.main(["cleanup-log", str(table)]) == 0
    assert "Nothing of the log to delete" in capsys.readouterr().out
    assert sorted(deltalake.DeltaTable(str(table)).to_pyarrow_table()["id"].to_pylist()) == [0, 1, 2, 3]


def aged(table: Path) -> None:
    for path in (table / "_delta_log").iterdir():
        os.utime(path, (path.stat().st_mtime - 5 * 86_400,) * 2)


@pytest.mark.parametrize(
    "options", [["--cleanup-log"], ["--repair-checksum"], ["--compact-log", "--if-due"], []]
)
@pytest.mark.parametrize("fault", ["feature", "gap", "staged", "checksum"])
def test_what_is_refused_is_refused_before_the_first_write(
    table: Path, capsys: pytest.CaptureFixture[str], fault: str, options: list[str]
) -> None:
    log = table / "_delta_log"
    if fault == "gap":
        (log / f"{1:020d}.json").unlink()
    elif fault == "checksum":
        (log / f"{3:020d}.crc").write_text(
            '{"tableSizeBytes":1,"numFiles":3,"numMetadata":1,"numProtocol":1}'
        )
    else:
        name = "brandNew" if fault == "feature" else "catalogManaged"
        both = {"readerFeatures": [name]} if fault == "staged" else {}
        protocol = {
            "minReaderVersion": 3 if both else 1,
            "minWriterVersion": 7,
            "writerFeatures": [name],
            **both,
        }
        (log / f"{4:020d}.json").write_text(json.dumps({"protocol": protocol}) + "\n")
        if fault == "staged":  # a version that a catalog may know, and the log does not show yet
            (log / "_staged_commits").mkdir()
            (log / "_staged_commits" / f"{5:020d}.abc.json").write_text('{"commitInfo":{}}\n')
    before = {path: path.read_bytes() for path in table.rglob("*") if path.is_file()}
    report = checkpoint(capsys, table, *options)
    after = {path: path.read_bytes() for path in table.rglob("*") if path.is_file()}
    if fault == "checksum" and ("--repair-checksum" in options or "--if-due" in options):
        assert "error" not in report
        return
    named = {"gap": "missing", "feature": "brandNew", "staged": "catalogManaged", "checksum": "numFiles"}
    assert named[fault] in report["error"]["message"]
    assert report["error"]["kind"] == "refused"
    assert after == before
