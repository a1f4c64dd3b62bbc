from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.support.runs.maintenance_runs import drop_column, enable_deletion_vectors, keys, mark_deleted
from tests.support.tables.small_tables import write_days

from delta_maintenance.cli import main as cli


@pytest.fixture
def table(tmp_path: Path) -> Path:
    write_days(tmp_path / "t", files=6, rows=10, days=3)
    return tmp_path / "t"


def as_json(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, Any]]:
    code = cli.main([*arguments, "--json"])
    return code, json.loads(capsys.readouterr().out)


def test_purge_takes_out_what_is_deleted_and_then_has_nothing_to_do(
    table: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    enable_deletion_vectors(table)
    mark_deleted(table, {keys(table)[0]: [0, 1]})
    drop_column(table, "text")
    code, report = as_json(capsys, "purge", str(table), "--where", "day = '2024-01-01'", "--verify", "full")
    assert (code, report["operation"], report["status"]) == (0, "purge", "committed")
    assert report["metrics"]["numRemovedFiles"] == 2
    code, again = as_json(capsys, "purge", str(table), "--where", "day = '2024-01-01'")
    assert (code, again["status"]) == (0, "nothing_to_do")


def test_a_purge_says_what_it_did_to_people_too(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    enable_deletion_vectors(table)
    mark_deleted(table, {key: [0] for key in keys(table)})
    assert cli.main(["purge", str(table), "--max-files", "2", "--batch-size", "1kB"]) == 0
    out = capsys.readouterr().out
    assert "2 deletion vectors purged" in out
    assert "left for another run: 4 files" in out


def test_only_the_plan_that_was_approved_is_carried_out(
    table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan_file = tmp_path / "plan.jsonl"
    _, dry = as_json(capsys, "optimize", str(table), "--dry-run", "--output", str(plan_file))
    assert plan_file.read_text().count("\n") == 1 + dry["plan"]["numBins"]
    code, refused = as_json(capsys, "optimize", str(table), "--approved", "0" * 32)
    assert (code, refused["error"]["type"], refused["error"]["digest"]) == (
        2,
        "PlanChanged",
        dry["plan"]["digest"],
    )
    code, report = as_json(capsys, "optimize", str(table), "--approved", dry["plan"]["digest"])
    assert (code, report["status"]) == (0, "committed")


@pytest.mark.parametrize(
    "arguments",
    [
        ["--full"],
        ["--min-file-size", "1MB"],
        ["--max-file-size", "1MB"],
        ["--max-files", "0"],
        ["--max-duration", "soon"],
        ["--verify", "no"],
        ["--hot-partitions", "first"],
    ],
)
def test_what_a_purge_does_not_take_is_refused(
    table: Path, arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    code, result = as_json(capsys, "purge", str(table), *arguments)
    assert (code, result["error"]["kind"]) == (2, "refused")


def test_a_target_of_nothing_is_refused(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, result = as_json(capsys, "optimize", str(table), "--target-size", "0")
    assert (code, result["error"]["type"]) == (2, "InvalidRequest")
