"""Bins side by side in one process, as behind a network: the same results as one after the other, and nothing left behind."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from tests.support.runs.maintenance_runs import RUN_KEY
from tests.support.tables.small_tables import write_days

from delta_log import Table
from delta_log.storage.storage import Storage
from delta_log.testing import FaultyStorage
from delta_maintenance.engine import concurrent_bins, local
from delta_maintenance.engine.concurrent_bins import ConcurrentBins, has_capacity
from delta_maintenance.engine.engine import BinResult
from delta_maintenance.engine.local import LocalEngine
from delta_maintenance.errors import TaskFailed
from delta_maintenance.optimize.options import OptimizeOptions
from delta_maintenance.optimize.plan.planner import plan_optimize
from delta_maintenance.optimize.tasks import tasks_of
from delta_maintenance.progress import SilentProgress
from delta_maintenance.rewrite.bin import rewrite_bin
from delta_maintenance.rewrite.task import BinManifest, RewriteTask, SourceFile

_BINS = 8


@pytest.fixture
def behind_a_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables on this disk pass for being on a store."""
    monkeypatch.setattr(concurrent_bins, "is_on_disk", lambda uri: False)


def tasks(table: Path, run_id: str) -> list[RewriteTask]:
    opened = Table(str(table))
    snapshot = opened.snapshot()
    return list(tasks_of(plan_optimize(snapshot, OptimizeOptions(), 0), snapshot, run_id, opened.uri))


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


@pytest.mark.usefixtures("behind_a_network")
@pytest.mark.parametrize("processes", [False, True])
def test_side_by_side_gives_what_one_after_the_other_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, processes: bool
) -> None:
    write_days(tmp_path, files=4 * _BINS, rows=20, days=2 * _BINS)
    here = list(LocalEngine()._run_here(tasks(tmp_path, "a"), SilentProgress(), RUN_KEY))
    monkeypatch.setattr(local, "_NOT_WORTH_A_PROCESS", -1 if processes else 1 << 40)
    other = list(
        LocalEngine(parallelism=8, memory_limit_bytes=1 << 32).run(
            tasks(tmp_path, "b"), SilentProgress(), RUN_KEY
        )
    )
    assert facts(here) == facts(other)
    assert len(here) == 2 * _BINS


@pytest.mark.usefixtures("behind_a_network")
def test_eight_bins_are_begun_before_one_is_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_days(tmp_path, files=2 * _BINS, rows=20, days=_BINS)
    together = threading.Barrier(_BINS)

    def wait(name: str, key: str) -> None:
        if name == "open_write":
            together.wait(60)

    opened = FaultyStorage(Table(str(tmp_path)).storage, wait)
    monkeypatch.setattr(local, "open_storage", lambda *_: opened)
    results = list(LocalEngine().run(tasks(tmp_path, "a"), SilentProgress(), RUN_KEY))
    assert len(facts(results)) == _BINS


def test_a_bin_that_has_a_manifest_is_not_rewritten(tmp_path: Path) -> None:
    write_days(tmp_path, files=4, rows=20, days=2)
    planned = tasks(tmp_path, "a")
    storage = Table(str(tmp_path)).storage
    done = rewrite_bin(planned[0], storage, RUN_KEY)
    told, read, both = list[Any](), list[str](), threading.Event()

    def answer(*facts: Any) -> None:
        told.append(facts)
        if len([found for _, found in told if "manifest" in found]) == 2:
            both.set()

    watched: Storage = FaultyStorage(storage, lambda name, key: read.append(key) if "json" in key else None)
    with ConcurrentBins(watched, RUN_KEY, answer, 1) as open_slots:
        for one in planned:
            open_slots.begin(one)
        assert both.wait(60)
    found = {bin_id: facts["manifest"] for bin_id, facts in told if "manifest" in facts}
    assert found[planned[0].bin_id] == done
    # The other one's manifest was not looked for, but written.
    assert sum(planned[1].bin_id in key for key in read) == 1


@pytest.mark.usefixtures("behind_a_network")
def test_a_broken_source_is_told_and_the_other_bins_are_done(tmp_path: Path) -> None:
    write_days(tmp_path, files=2 * _BINS, rows=20, days=_BINS)
    next(tmp_path.glob("day=2024-01-01/*.parquet")).write_bytes(b"no parquet")
    results = list(LocalEngine().run(tasks(tmp_path, "a"), SilentProgress(), RUN_KEY))
    (failure,) = (result for result in results if isinstance(result, TaskFailed))
    assert failure.report.facts["path"].startswith("day=2024-01-01/")
    assert len(results) == _BINS


def test_who_leaves_gives_up_what_goes_on_and_no_unfinished_file_stays(tmp_path: Path) -> None:
    write_days(tmp_path, files=6, rows=20, days=2)
    before = set(tmp_path.rglob("*"))
    first, second = tasks(tmp_path, "a")
    begun, told = threading.Event(), list[Any]()

    def wait(name: str, key: str) -> None:
        if name == "open_write":
            begun.set()
            assert open_slots._given_up.wait(60)

    storage: Storage = FaultyStorage(Table(str(tmp_path)).storage, wait)
    with ConcurrentBins(storage, RUN_KEY, lambda *answer: told.append(answer), 1) as open_slots:
        open_slots.begin(first)
        assert begun.wait(60)
        open_slots.begin(second)
    assert not [facts for _, facts in told if "manifest" in facts or "error" in facts]
    assert {path for path in tmp_path.rglob("*") if path.is_file()} == {
        path for path in before if path.is_file()
    }


def facts(results: Iterable[BinResult]) -> list[tuple[Any, ...]]:
    manifests = [result for result in results if isinstance(result, BinManifest)]
    return sorted((m.bin_id, m.rows_out, m.rows_in, len(m.outputs)) for m in manifests)
