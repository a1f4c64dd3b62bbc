"""The log is read early, before the listing ends. That reading may fail, or a newer commit may replace it."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import deltalake
import pyarrow as pa
from tests.support.runs.distributed_listings import described, plan_or_refusal
from tests.support.tables.small_tables import write_days

from delta_log import Table
from delta_log.storage.local.local_storage import LocalStorage
from delta_log.storage.storage import EnterDirectories, TreePage
from delta_maintenance.vacuum.candidates import PlannedVacuum


class Watched(LocalStorage):
    """Counts the commits that are read, and calls a function before the tree is listed."""

    def __init__(self, path: str, fails: bool = False, meanwhile: Callable[[], None] | None = None) -> None:
        super().__init__(path)
        self.fails, self.meanwhile = fails, meanwhile
        self.reads: Counter[str] = Counter()

    def read_many(self, keys: list[str]) -> Iterator[bytes]:
        self.reads.update(keys)
        if self.fails:
            self.fails = False
            raise FileNotFoundError(keys[0])
        return super().read_many(keys)

    def list_tree(self, enter: EnterDirectories) -> Iterator[TreePage]:
        if self.meanwhile is not None:
            self.meanwhile()
        return super().list_tree(enter)


def plan(table: Path, storage: Watched) -> PlannedVacuum:
    snapshot = Table(str(table)).snapshot()
    found = plan_or_refusal(storage, snapshot, int(time.time() * 1000), None)
    assert isinstance(found, PlannedVacuum), found
    return found


def test_the_log_is_read_again_if_the_early_reading_failed(tmp_path: Path) -> None:
    write_days(tmp_path)
    storage = Watched(str(tmp_path), fails=True)
    found = plan(tmp_path, storage)
    assert not storage.fails
    assert set(storage.reads.values()) == {2}
    expected = described(plan(tmp_path, Watched(str(tmp_path))))
    assert described(found)["digest"] == expected["digest"]


def test_only_the_commit_made_during_the_listing_is_read_after_it(tmp_path: Path) -> None:
    write_days(tmp_path)
    before = Table(str(tmp_path)).snapshot().version
    rows = pa.Table.from_batches(deltalake.DeltaTable(str(tmp_path)).to_pyarrow_table().to_batches())
    storage = Watched(
        str(tmp_path), meanwhile=lambda: deltalake.write_deltalake(str(tmp_path), rows, mode="append")
    )
    found = plan(tmp_path, storage)
    assert found.basis.snapshot.version == before + 1
    assert len(storage.reads) == before + 2
    assert set(storage.reads.values()) == {1}
