"""Files of bins that were not committed: removed where no run can commit them any more, and kept where one might."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import deltalake
import pyarrow as pa
import pytest
from tests.support.runs.maintenance_runs import (
    WatchedEngine,
    enable_deletion_vectors,
    keys,
    manifests,
    mark_deleted,
    run,
)
from tests.support.tables.small_tables import write_parts

from delta_log import Table
from delta_log.errors import ConcurrentDelete, StorageError
from delta_log.runtime import Runtime
from delta_log.testing import FaultyStorage
from delta_maintenance.optimize.commit.orphans import remove_orphans
from delta_maintenance.rewrite.bin import forget
from delta_maintenance.rewrite.task import BinManifest

PARTS = "abc"


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Two small files in each of three partitions: three bins."""
    return write_parts(tmp_path, PARTS)


def delete(table: Path, predicate: str) -> None:
    deltalake.DeltaTable(str(table)).delete(predicate)


def after_all(number_of_bins: int, statement: Callable[[], object]) -> WatchedEngine:
    def after(number: int) -> None:
        if number == number_of_bins:
            statement()

    return WatchedEngine(after)


def orphans_of(table: Path) -> list[str]:
    """Data files that no live file and no tombstone names."""
    snapshot = Table(str(table)).snapshot()
    known = {*keys(table), *snapshot.tombstones(("key",)).column("key").to_pylist()}
    return [
        key for path in table.rglob("*.parquet") if (key := path.relative_to(table).as_posix()) not in known
    ]


def failed_run(table: Path) -> list[BinManifest]:
    """A run all of whose bins are lost; gives the manifests that it has left."""
    with pytest.raises(ConcurrentDelete):
        run(table, engine=after_all(len(PARTS), lambda: delete(table, "id < 10")))
    return manifests(table)


def test_what_a_lost_bin_has_written_is_removed_at_the_end_of_the_run(table: Path) -> None:
    report = run(table, engine=after_all(len(PARTS), lambda: delete(table, "id = 0")))
    assert (report.status, report.dropped_bins) == ("committed", 1)
    assert not orphans_of(table)
    assert not (table / "_maintenance").exists()


def test_what_a_failed_run_has_written_is_removed_by_the_next_try(table: Path) -> None:
    failed_run(table)
    assert len(orphans_of(table)) == len(PARTS)
    again = run(table, where="part = 'a'")
    assert again.status == "nothing_to_do"
    assert len(orphans_of(table)) == len(PARTS), "what failed may be tried again"
    rows = pa.table({"id": [30], "part": ["a"]})
    deltalake.write_deltalake(str(table), rows, mode="append")
    assert run(table).status == "committed"
    assert not orphans_of(table)


def test_a_failure_to_remove_does_not_make_a_run_fail_that_is_done(
    table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(name: str, key: str) -> None:
        if name == "delete" and key.endswith(".parquet"):
            raise StorageError("the store is on strike", key)

    opened = Table(str(table))
    opened.storage = FaultyStorage(opened.storage, refuse)
    report = run(opened, engine=after_all(len(PARTS), lambda: delete(table, "id = 0")))
    assert (report.status, report.dropped_bins) == ("committed", 1)
    assert len(orphans_of(table)) == 1


@pytest.mark.parametrize("remap", [False, True])
def test_a_source_with_other_deletions_is_gone_only_where_no_run_takes_them_over(
    table: Path, remap: bool
) -> None:
    enable_deletion_vectors(table)
    doubled = {key: [0] for key in keys(table) if key.startswith("part=a")}
    with pytest.raises(ConcurrentDelete):
        run(
            table,
            where="part = 'a'",
            engine=after_all(1, lambda: mark_deleted(table, doubled)),
        )
    storage = Table(str(table)).storage
    lost = manifests(table)
    forget(lost, storage)
    removed = remove_orphans(lost, Table(str(table)).snapshot(), storage, remap=remap)
    assert removed == ([] if remap else [output.key for manifest in lost for output in manifest.outputs])


def test_files_of_a_bin_whose_sources_are_there_are_left_alone(table: Path) -> None:
    before = deltalake.DeltaTable(str(table)).version()
    lost = failed_run(table)
    deltalake.DeltaTable(str(table)).restore(before)
    opened = Table(str(table))
    assert not remove_orphans(lost, opened.snapshot(), opened.storage)
    assert len(orphans_of(table)) == len(PARTS)


def test_files_that_were_committed_are_left_alone_even_where_they_were_removed_since(table: Path) -> None:
    left: list[BinManifest] = []
    opened = Table(str(table))
    run(table, engine=after_all(len(PARTS), lambda: left.extend(manifests(table))))
    assert len(left) == len(PARTS)
    assert not remove_orphans(left, opened.snapshot(), opened.storage)
    delete(table, "part = 'a'")
    assert not remove_orphans(left, opened.snapshot(), opened.storage)
    outputs = [output.key for manifest in left for output in manifest.outputs]
    assert all((table / key).exists() for key in outputs)


def test_manifests_of_an_abandoned_run_are_deleted_after_thirty_days(table: Path) -> None:
    failed_run(table)
    directory = table / "_maintenance" / "run"
    others = [table / "_maintenance" / "probe-1", directory / "notes.json"]
    for other in others:
        other.write_text("another writer's")
    manifests = [path for path in directory.iterdir() if path not in others]
    assert len(manifests) == len(PARTS)
    made_ms = min(path.stat().st_mtime_ns for path in manifests) // 1_000_000
    # The second clock is ahead of the store's.
    for number, (days, ahead_days) in enumerate(((29, 0), (31, 31), (31, 0))):
        rows = pa.table({"id": [30 + number, 40 + number], "part": ["a", "a"]})
        deltalake.write_deltalake(str(table), rows, mode="append")
        for path in manifests:
            made_s = made_ms / 1000 - (days - ahead_days) * 86_400
            os.utime(path, (made_s, made_s))
        clock = Runtime(now_ms=lambda ahead=ahead_days: made_ms + ahead * 86_400_000)  # type: ignore[misc]
        assert run(table, run_id=f"run-{number}", runtime=clock).status == "committed"
        assert [path.exists() for path in manifests] == [number < 2] * len(PARTS)
    assert all(other.exists() for other in others)
