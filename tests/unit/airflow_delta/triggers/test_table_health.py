from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.support.runs.triggerer import Triggerer, in_a_loop
from tests.support.tables.written_log import add, write_log

from airflow_delta.testing import FakeAssetStateStore
from airflow_delta.triggers import DeltaTableHealthTrigger
from delta_log.log.file_names import commit_key


class Table:
    """Small files in one partition, and no data file exists."""

    def __init__(self, path: Path) -> None:
        self.path, self.version = path, 0
        write_log(path, [add("0", 100)])

    def commit(self, *actions: dict[str, Any]) -> None:
        self.version += 1
        text = "".join(json.dumps(action) + "\n" for action in ({"commitInfo": {}}, *actions))
        (self.path / commit_key(self.version)).write_text(text)

    def append(self) -> None:
        self.commit({"add": add(f"part-{self.version}", 100)})

    def compact(self, size: int) -> None:
        """Put all files but the first into one."""
        removed = [{"path": f"part-{number}", "dataChange": False} for number in range(self.version)]
        self.commit(*({"remove": one} for one in removed), {"add": add("large", size)})


def watcher(table: Table, **limits: Any) -> DeltaTableHealthTrigger:
    return DeltaTableHealthTrigger(str(table.path), poll_interval=0.05, **limits)


async def looked_at(triggerer: Triggerer, table: Table) -> None:
    """The watcher has seen the newest version, and Airflow has stored what it made of it."""

    def is_kept() -> bool:
        known = (triggerer.trigger.recalled(str(table.path)) or {}).get("version", -1)
        return bool(known >= table.version)

    await triggerer.wait_for(is_kept)


@in_a_loop
async def test_a_limit_that_is_passed_makes_one_event_and_none_again_until_it_was_not_passed(
    tmp_path: Path,
) -> None:
    table = Table(tmp_path / "t")
    async with Triggerer(watcher(table, small_files=2), FakeAssetStateStore()) as triggerer:
        table.append()
        await looked_at(triggerer, table)
        assert triggerer.events == []
        table.append()
        (event,) = await triggerer.until(1)
        assert (event["table"], event["version"]) == (str(table.path), 2)
        assert (event["passed"], event["numSmallFiles"]) == (["numSmallFiles"], 3)
        table.append()
        await looked_at(triggerer, table)
        assert len(triggerer.events) == 1
        table.compact(size=1 << 30)
        await looked_at(triggerer, table)
        for _ in range(2):
            table.append()
            await looked_at(triggerer, table)
        assert (await triggerer.until(2))[-1]["numSmallFiles"] == 3


@in_a_loop
async def test_a_further_limit_makes_a_further_event_and_a_restart_repeats_nothing(tmp_path: Path) -> None:
    table, store = Table(tmp_path / "t"), FakeAssetStateStore()
    limits = {"small_files": 1, "commits_since_checkpoint": 3}
    async with Triggerer(watcher(table, **limits), store) as triggerer:
        table.append()
        assert (await triggerer.until(1))[0]["passed"] == ["numSmallFiles"]
        await looked_at(triggerer, table)
    async with Triggerer(watcher(table, **limits), store) as triggerer:
        table.append()
        await looked_at(triggerer, table)
        assert triggerer.events == []
        table.append()
        (event,) = await triggerer.until(1)
        assert event["passed"] == ["numCommitsSinceCheckpoint", "numSmallFiles"]


def test_a_trigger_is_what_it_is_made_of() -> None:
    trigger = DeltaTableHealthTrigger("s3://lake/a", "lake", small_files=3, tombstones=7)
    path, kwargs = trigger.serialize()
    assert path == "airflow_delta.triggers.table_health.DeltaTableHealthTrigger"
    assert DeltaTableHealthTrigger(**json.loads(json.dumps(kwargs))).serialize() == (path, kwargs)
    with pytest.raises(ValueError, match="No limit"):
        DeltaTableHealthTrigger("s3://lake/a")
