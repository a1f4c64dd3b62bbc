from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.support.tables.small_tables import write_parts

from delta_log.snapshot.commit_info import MAX_DEPTH, is_shallow
from delta_maintenance.cli.main import main


def _nested(depth: int) -> str:
    return "[" * depth + "]" * depth


@pytest.mark.parametrize("depth", [1, MAX_DEPTH, MAX_DEPTH + 1])
def test_nesting_is_measured(depth: int) -> None:
    assert is_shallow(json.loads(_nested(depth))) == (depth <= MAX_DEPTH)


@pytest.mark.parametrize("as_text", [False, True])
@pytest.mark.parametrize("form", [[], ["--json"]])
def test_history_shows_a_commit_with_deeply_nested_values(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], form: list[str], as_text: bool
) -> None:
    write_parts(tmp_path, "a")
    commit = tmp_path / "_delta_log" / f"{1:020d}.json"
    nested = json.dumps(_nested(900)) if as_text else _nested(900)
    actions = [line for line in commit.read_text().splitlines() if "commitInfo" not in line]
    info = (
        f'{{"commitInfo":{{"operation":"WRITE","odd":{nested},"operationMetrics":{{"numFiles":{nested}}}}}}}'
    )
    commit.write_text("\n".join([info, *actions]))

    assert main(["history", str(tmp_path), *form]) == 0
    assert "WRITE" in capsys.readouterr().out
