"""What a table holds is shown as it would be quoted: nothing of it reaches a terminal as an order or as a line of its own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.support.tables.hostile_text import CONTROLS, FORGED_LINE, VALUES, is_harmless, write_hostile_table

from delta_log import Table
from delta_maintenance.cli.main import main

HOSTILE = CONTROLS + FORGED_LINE


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """A table of a writer who puts such text wherever the protocol lets a writer put text."""
    table = write_hostile_table(tmp_path / "events", ("good", *VALUES))
    first = table / "_delta_log" / f"{0:020}.json"
    actions = [json.loads(line) for line in first.read_text().splitlines()]
    for action in actions:
        if "metaData" in action:
            schema = json.loads(action["metaData"]["schemaString"])
            schema["fields"].append({"name": HOSTILE, "type": "long", "nullable": True, "metadata": {}})
            action["metaData"] |= {
                "name": HOSTILE,
                "description": HOSTILE,
                "schemaString": json.dumps(schema),
                "configuration": {f"x.{HOSTILE}": HOSTILE},
            }
    info = {
        "timestamp": 1_700_000_000_000,
        "operation": HOSTILE,
        "operationParameters": {HOSTILE: HOSTILE},
        "operationMetrics": {"numAddedFiles": HOSTILE},
        "engineInfo": HOSTILE,
        "userName": HOSTILE,
        "tags": {HOSTILE: HOSTILE},
    }
    domain = {"domain": HOSTILE, "configuration": HOSTILE, "removed": False}
    actions += [
        {"commitInfo": info},
        {"txn": {"appId": HOSTILE, "version": 1}},
        {"domainMetadata": domain},
    ]
    for action in actions:
        if "protocol" in action:
            action["protocol"]["writerFeatures"].append("domainMetadata")
    first.write_text("".join(json.dumps(action) + "\n" for action in actions))
    orphan = table / f"orphan {VALUES[3]}{VALUES[4]}.parquet"
    orphan.write_bytes(b"old")
    return table


def shown_by(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    main(arguments)
    captured = capsys.readouterr()
    text = str(captured.out + captured.err)
    assert is_harmless(text), text
    return text


@pytest.mark.parametrize(
    "command",
    [
        ["inspect"],
        ["history"],
        ["optimize", "--dry-run"],
        ["vacuum", "--dry-run", "--retain-hours", "0", "--no-retention-check"],
        ["checkpoint", "--dry-run"],
        ["cleanup-log", "--dry-run"],
        ["compact-log", "--dry-run"],
    ],
    ids=lambda command: command[0],
)
def test_no_command_shows_what_a_terminal_would_obey(
    capsys: pytest.CaptureFixture[str], table: Path, command: list[str]
) -> None:
    told = shown_by(capsys, command[0], str(table), *command[1:])
    if command[0] in ("inspect", "history", "optimize", "vacuum"):
        assert r"\x1b]0;title\x07\x1b[2J\x9b31m\u202egnp.exe" in told
        assert r"eu\n2026-01-01 00:00:00 INFO forged line" in told, "and nothing of it is left out"
        assert len(told.splitlines()) > 1, "and lines of ours stay lines"


@pytest.mark.parametrize("command", ["inspect", "history", "optimize", "vacuum"])
def test_json_has_the_text_as_it_is_and_is_printable(
    capsys: pytest.CaptureFixture[str], table: Path, command: str
) -> None:
    main([command, str(table), "--json", *([] if command in ("inspect", "history") else ["--dry-run"])])
    out = capsys.readouterr().out.rstrip("\n")
    assert out.isascii()
    assert out.isprintable()
    if command == "history":
        assert json.loads(out)["history"][0]["userName"] == HOSTILE


def test_errors_and_progress_name_hostile_paths_in_one_line_each(
    capsys: pytest.CaptureFixture[str], table: Path
) -> None:
    for value in VALUES[3:]:
        (table / f"part={value}" / "1.parquet").unlink()
    error = shown_by(capsys, "optimize", str(table))
    assert error.splitlines()[-1].startswith("delta-maintenance: ")
    progress = shown_by(capsys, "optimize", str(table), "--on-broken-source", "skip")
    assert r"]0;title\x07" in progress
    assert r"eu\n2026-01-01" in progress


@pytest.mark.parametrize("text", [CONTROLS, FORGED_LINE, "\udcff"], ids=["controls", "lines", "surrogate"])
def test_arguments_are_shown_back_without_controls(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, text: str
) -> None:
    told = shown_by(capsys, "inspect", str(tmp_path / text))
    assert "is not a Delta table" in told
    shown_by(capsys, text, str(tmp_path))
    shown_by(capsys, "inspect", str(tmp_path), text)


def test_the_traceback_of_an_unforeseen_error_has_no_line_of_the_tables(
    capsys: pytest.CaptureFixture[str], table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> None:
        raise ZeroDivisionError(HOSTILE)

    monkeypatch.setattr(Table, "snapshot", broken)
    told = shown_by(capsys, "inspect", str(table))
    assert "Traceback" in told
    assert "in broken" in told
