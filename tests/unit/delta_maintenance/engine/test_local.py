"""Bins side by side: the same results as one after the other, and nothing left behind."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.support.runs.maintenance_runs import RUN_KEY
from tests.support.tables.small_tables import write_days

from delta_log import Table
from delta_log.errors import CorruptLog
from delta_log.storage.storage import Storage
from delta_log.testing import FaultyStorage
from delta_maintenance.engine.engine import BinResult
from delta_maintenance.engine.local import ConcurrentBins, LocalEngine, has_capacity
from delta_maintenance.errors import TaskFailed
from delta_maintenance.optimize.options import OptimizeOptions
from delta_maintenance.optimize.plan.planner import plan_optimize
from delta_maintenance.optimize.tasks import tasks_of
from delta_maintenance.progress import SilentProgress
from delta_maintenance.rewrite.bin import rewrite_bin
from delta_maintenance.rewrite.read.segment_pool import RowMemory
from delta_maintenance.rewrite.task import BinManifest, RewriteTask, SourceFile

_BINS = 8


def tasks(table: Path, run_id: str = "run", uri: str | None = None) -> list[RewriteTask]:
    opened = Table(str(table))
    snapshot = opened.snapshot()
    planned = tasks_of(plan_optimize(snapshot, OptimizeOptions(), 0), snapshot, run_id, opened.uri)
    return [replace(task, table_uri=uri or task.table_uri) for task in planned]


def behind_a_network(
    table: Path, storage: Storage | None = None, parallelism: int | None = None
) -> LocalEngine:
    """An engine for tasks of ``s3://bucket/table``, which is a table on this disk."""
    there = storage or Table(str(table)).storage
    return LocalEngine(opened=lambda uri, options: there, parallelism=parallelism, memory_limit_bytes=1 << 32)


FAR = "s3://bucket/table"


class Watching(SilentProgress):
    def __init__(self) -> None:
        self.read: dict[str, int] = {}
        self.done: dict[str, int] = {}

    def source_read(self, bin_id: str, size_bytes: int) -> None:
        self.read[bin_id] = self.read.get(bin_id, 0) + size_bytes

    def bin_done(self, bin_id: str, size_bytes: int) -> None:
        self.done[bin_id] = size_bytes


def facts(results: Iterable[BinResult]) -> list[tuple[Any, ...]]:
    manifests = [result for result in results if isinstance(result, BinManifest)]
    return sorted((m.bin_id, m.rows_out, m.rows_in, len(m.outputs)) for m in manifests)


@pytest.mark.parametrize(("limit_bytes", "threads"), [(1, 1), (1 << 29, 1), (1 << 30, 4), (1 << 31, 9)])
def test_the_memory_limit_bounds_the_threads(limit_bytes: int, threads: int) -> None:
    assert LocalEngine(parallelism=64, memory_limit_bytes=limit_bytes).num_threads == threads


def task(uri: str, size_bytes: int) -> RewriteTask:
    source = SourceFile("a", "a", size_bytes)
    return RewriteTask("b", uri, "r", "{}", (), "none", {}, (), {}, (source,), 1 << 30, "t")


def test_two_bins_of_any_size_go_side_by_side_and_more_small_ones_of_a_store() -> None:
    small, large = task("s3://b/t", 4 << 20), task("s3://b/t", 33 << 20)
    assert has_capacity([], large)
    assert has_capacity([small], large)
    assert has_capacity([large], large)
    assert not has_capacity([small, large], small)
    assert not has_capacity([small, small], large)
    assert has_capacity([small] * 7, small)
    assert not has_capacity([small] * 8, small)
    assert not has_capacity([small] * 6, task("s3://b/t", 9 << 20))
    for uri in ("/b/t", "file:///b/t"):
        assert has_capacity([task(uri, 1)], task(uri, 1))
        assert not has_capacity([task(uri, 1)] * 2, task(uri, 1))


def test_side_by_side_gives_what_one_after_the_other_does(tmp_path: Path) -> None:
    write_days(tmp_path, files=4 * _BINS, rows=20, days=2 * _BINS)
    storage = Table(str(tmp_path)).storage
    one_by_one = [rewrite_bin(task, storage, RUN_KEY) for task in tasks(tmp_path, "a")]
    here, far = Watching(), Watching()
    near = list(LocalEngine(parallelism=1).run(tasks(tmp_path, "b"), here, RUN_KEY))
    engine = behind_a_network(tmp_path, parallelism=8)
    other = list(engine.run(tasks(tmp_path, "c", FAR), far, RUN_KEY))
    assert facts(one_by_one) == facts(near) == facts(other)
    assert here.read == here.done == far.read == far.done
    assert len(other) == 2 * _BINS


def test_eight_bins_are_begun_before_one_is_finished(tmp_path: Path) -> None:
    write_days(tmp_path, files=2 * _BINS, rows=20, days=_BINS)
    together = threading.Barrier(_BINS)

    def wait(name: str, key: str) -> None:
        if name == "open_write":
            together.wait(60)

    engine = behind_a_network(tmp_path, FaultyStorage(Table(str(tmp_path)).storage, wait))
    results = list(engine.run(tasks(tmp_path, "a", FAR), SilentProgress(), RUN_KEY))
    assert len(facts(results)) == _BINS


def test_a_bin_that_has_a_manifest_is_not_rewritten(tmp_path: Path) -> None:
    write_days(tmp_path, files=4, rows=20, days=2)
    planned = tasks(tmp_path)
    storage = Table(str(tmp_path)).storage
    done = rewrite_bin(planned[0], storage, RUN_KEY)
    read: list[str] = []
    watched: Storage = FaultyStorage(storage, lambda name, key: read.append(key) if "json" in key else None)
    results = list(LocalEngine(opened=lambda uri, options: watched).run(planned, SilentProgress(), RUN_KEY))
    assert done in results
    # The other one's manifest was not looked for, but written.
    assert sum(planned[1].bin_id in key for key in read) == 1


@pytest.mark.parametrize("uri", [None, FAR])
def test_a_broken_source_keeps_the_name_and_facts_of_its_error_and_the_other_bins_are_done(
    tmp_path: Path, uri: str | None
) -> None:
    write_days(tmp_path, files=2 * _BINS, rows=20, days=_BINS)
    next(tmp_path.glob("day=2024-01-01/*.parquet")).write_bytes(b"no parquet")
    results = list(behind_a_network(tmp_path).run(tasks(tmp_path, "a", uri), SilentProgress(), RUN_KEY))
    (failure,) = (result for result in results if isinstance(result, TaskFailed))
    assert (failure.report.type, failure.report.kind) == (CorruptLog.__name__, "refused")
    assert failure.report.facts["path"].startswith("day=2024-01-01/")
    assert len(results) == _BINS


def files_below(directory: Path) -> set[Path]:
    return {path for path in directory.rglob("*") if path.is_file()}


def test_who_leaves_gives_up_what_goes_on_and_no_unfinished_file_stays(tmp_path: Path) -> None:
    write_days(tmp_path, files=6, rows=20, days=2)
    before = files_below(tmp_path)
    first, second = tasks(tmp_path)
    begun = threading.Event()

    def wait(name: str, key: str) -> None:
        if name == "open_write":
            begun.set()
            assert bins._given_up.wait(60)

    storage: Storage = FaultyStorage(Table(str(tmp_path)).storage, wait)
    bins = ConcurrentBins(storage, RUN_KEY, 1, RowMemory(1 << 20))
    bins.begin(first)
    assert begun.wait(60)
    bins.begin(second)
    bins.__exit__()
    assert bins.outcomes.empty()
    assert files_below(tmp_path) == before


def test_nothing_goes_on_when_the_iterator_is_closed(tmp_path: Path) -> None:
    write_days(tmp_path, files=6, rows=20, days=3)
    running = LocalEngine().run(tasks(tmp_path), SilentProgress(), RUN_KEY)
    next(running)
    running.close()
    assert not [thread for thread in threading.enumerate() if "ThreadPoolExecutor" in thread.name]
