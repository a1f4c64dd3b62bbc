"""When a checkpoint is due, and what the command does about it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest

from delta_log import Table
from delta_maintenance import cli
from delta_maintenance.plan.checkpoint import MAX_TAIL_BYTES, LogTail, plan_checkpoint


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
    plan = plan_checkpoint(LogTail(20, 20 - commits, commits, size_bytes), interval=10)
    assert plan.due is due
    assert plan.reasons
    assert json.loads(json.dumps(plan.to_dict()))["tail"]["commits"] == commits


def test_both_reasons_are_told() -> None:
    plan = plan_checkpoint(LogTail(20, None, 21, MAX_TAIL_BYTES), interval=10)
    assert len(plan.reasons) == 2
    assert all("there is none" in reason for reason in plan.reasons)


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
