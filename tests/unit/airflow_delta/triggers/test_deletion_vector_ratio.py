from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from tests.support.runs.triggerer import Triggerer, in_a_loop
from tests.support.tables.written_log import add, deletion_vector, write_log

from airflow_delta.testing import FakeAssetStateStore
from airflow_delta.triggers import DeltaDeletionVectorRatioTrigger
from delta_log.log.file_names import checksum_key, commit_key

STATS = {"stats": '{"numRecords":10}'}


class Table:
    """One file of ten rows in each of some partitions; no data file exists."""

    def __init__(self, path: Path, days: str = "abc") -> None:
        self.path = path
        self.version = 0
        write_log(path, [self.add(day) for day in days], partition_by={"day": "string"})

    def add(self, day: str, deleted: int = 0) -> dict[str, Any]:
        vector = {"deletionVector": deletion_vector(deleted, deleted)} if deleted else {}
        return add(f"{day}.parquet", 100, {"day": day}, **STATS, **vector)

    def delete(self, day: str, deleted: int, before: int = 0, **info: Any) -> None:
        """So many rows of a partition are hidden from now on; 0: none, after a purge."""
        old = self.add(day, before)
        remove = {name: old[name] for name in ("path", "partitionValues", "dataChange")}
        if before:
            remove["deletionVector"] = old["deletionVector"]
        self.version += 1
        actions = [{"commitInfo": info}, {"remove": remove}, {"add": self.add(day, deleted)}]
        (self.path / commit_key(self.version)).write_text("\n".join(map(json.dumps, actions)))


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return Table(tmp_path / "events")


def watcher(table: Table, **more: Any) -> DeltaDeletionVectorRatioTrigger:
    return DeltaDeletionVectorRatioTrigger(str(table.path), poll_interval=0.05, ratio=0.3, **more)


def days(event: dict[str, Any]) -> list[str]:
    return [one["partition"]["day"] for one in event["partitions"]]


async def looked_at(triggerer: Triggerer, table: Table) -> None:
    """The watcher has seen the newest version, and Airflow has stored what it made of it."""

    def is_kept() -> bool:
        known = (triggerer.trigger.recalled(str(table.path)) or {}).get("version", -1)
        return bool(known >= table.version)

    await triggerer.wait_for(is_kept)


@in_a_loop
async def test_a_partition_that_passes_the_limit_makes_one_event_and_none_again_until_it_was_purged(
    table: Table,
) -> None:
    async with Triggerer(watcher(table), FakeAssetStateStore()) as triggerer:
        table.delete("a", 3)
        await looked_at(triggerer, table)
        assert triggerer.events == []
        table.delete("b", 4)
        (event,) = await triggerer.until(1)
        assert (days(event), event["where"], event["version"]) == (["b"], "(`day` = 'b')", 2)
        table.delete("b", 5, before=4)
        await looked_at(triggerer, table)
        table.delete("a", 4, before=3)
        assert days((await triggerer.until(2))[-1]) == ["b", "a"]
        table.delete("b", 0, before=5)
        table.delete("a", 0, before=4)
        await looked_at(triggerer, table)
        assert len(triggerer.events) == 2
        table.delete("a", 9)
        assert days((await triggerer.until(3))[-1]) == ["a"]


@in_a_loop
async def test_a_restart_repeats_nothing_and_a_crash_loses_nothing(table: Table) -> None:
    store = FakeAssetStateStore()

    async with Triggerer(watcher(table), store) as triggerer:
        triggerer.persists = False
        table.delete("a", 5)
        await triggerer.until(1)
    async with Triggerer(watcher(table), store) as triggerer:
        assert days((await triggerer.until(1))[0]) == ["a"]
        await triggerer.wait_for(lambda: any('"over": ["' in text for text in store.values.values()))
    async with Triggerer(watcher(table), store) as triggerer:
        await looked_at(triggerer, table)
        await asyncio.sleep(0.2)
        assert triggerer.events == []


@in_a_loop
async def test_a_checksum_file_that_tells_of_no_deletions_spares_the_replay(table: Table) -> None:
    # The log would be refused, were it replayed.
    (table.path / commit_key(1)).write_text(
        '{"commitInfo":{}}\n{"protocol":{"minReaderVersion":99,"minWriterVersion":99}}'
    )
    checksum = {"tableSizeBytes": 300, "numFiles": 3, "numDeletionVectorsOpt": 0, "numDeletedRecordsOpt": 0}
    (table.path / checksum_key(1)).write_text(json.dumps(checksum))
    table.version = 1

    async with Triggerer(watcher(table), FakeAssetStateStore()) as triggerer:
        await looked_at(triggerer, table)
        assert triggerer.events == []


def test_a_trigger_is_what_it_is_made_of() -> None:
    trigger = DeltaDeletionVectorRatioTrigger(
        "s3://lake/a", "lake", ratio=None, files=3, size_bytes=7, per_partition=False
    )
    path, kwargs = trigger.serialize()
    assert path == "airflow_delta.triggers.deletion_vector_ratio.DeltaDeletionVectorRatioTrigger"
    assert DeltaDeletionVectorRatioTrigger(**json.loads(json.dumps(kwargs))).serialize() == (path, kwargs)
    with pytest.raises(ValueError, match="No limit"):
        DeltaDeletionVectorRatioTrigger("s3://lake/a", ratio=None)
