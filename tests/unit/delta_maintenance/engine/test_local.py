from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.support.runs.maintenance_runs import RUN_KEY
from tests.support.tables.small_tables import write_days

from delta_log import Table
from delta_log.errors import CorruptLog
from delta_maintenance.engine import local
from delta_maintenance.engine.engine import BinResult
from delta_maintenance.engine.local import PROCESS_BYTES, THREAD_BYTES, LocalEngine
from delta_maintenance.errors import TaskFailed, WorkerDied
from delta_maintenance.optimize.options import OptimizeOptions
from delta_maintenance.optimize.plan.planner import plan_optimize
from delta_maintenance.optimize.tasks import tasks_of
from delta_maintenance.progress import SilentProgress
from delta_maintenance.rewrite.task import BinManifest, RewriteTask


def tasks(table: Path, run_id: str = "run") -> Sequence[RewriteTask]:
    opened = Table(str(table))
    snapshot = opened.snapshot()
    return tasks_of(plan_optimize(snapshot, OptimizeOptions(), 0), snapshot, run_id, opened.uri)


@pytest.fixture
def always_processes(monkeypatch: pytest.MonkeyPatch) -> LocalEngine:
    """An engine that uses two workers for even the smallest work."""
    monkeypatch.setattr(local, "_NOT_WORTH_A_PROCESS", -1)
    return LocalEngine(parallelism=8, memory_limit_bytes=2 * PROCESS_BYTES + 8 * THREAD_BYTES)


class Watching(SilentProgress):
    def __init__(self) -> None:
        self.read: dict[str, int] = {}
        self.done: dict[str, int] = {}

    def source_read(self, bin_id: str, size_bytes: int) -> None:
        self.read[bin_id] = self.read.get(bin_id, 0) + size_bytes

    def bin_done(self, bin_id: str, size_bytes: int) -> None:
        self.done[bin_id] = size_bytes


def manifests(results: Iterable[BinResult]) -> list[BinManifest]:
    """The manifests in an engine's results, none of which may be a failure."""
    found = list(results)
    assert not [failure for failure in found if isinstance(failure, TaskFailed)]
    return [manifest for manifest in found if isinstance(manifest, BinManifest)]


def facts(manifests: Sequence[BinManifest]) -> list[tuple[str, int, int]]:
    return sorted((m.bin_id, m.rows_out, len(m.outputs)) for m in manifests)


def test_workers_and_this_process_give_the_same_manifests(
    tmp_path: Path, always_processes: LocalEngine
) -> None:
    write_days(tmp_path, files=6, rows=50, days=3)
    by_workers, here = Watching(), Watching()
    first = manifests(always_processes.run(tasks(tmp_path, "a"), by_workers, RUN_KEY))
    second = manifests(LocalEngine(parallelism=1).run(tasks(tmp_path, "b"), here, RUN_KEY))
    assert facts(first) == facts(second)
    assert [m.rows_out for m in first] == [100, 100, 100]
    assert by_workers.read == here.read == by_workers.done == here.done


def test_few_processors_little_work_and_a_single_bin_stay_in_this_process() -> None:
    engine = LocalEngine(parallelism=16, memory_limit_bytes=1 << 40)
    assert engine.num_workers(10, 1 << 20) == 0
    assert engine.num_workers(1, 1 << 40) == 0
    assert engine.num_workers(10, 1 << 40) == 4
    assert engine.num_workers(3, 1 << 40) == 3
    for parallelism, workers in ((1, 0), (4, 0), (7, 0), (8, 2), (11, 2), (12, 3)):
        engine = LocalEngine(parallelism=parallelism, memory_limit_bytes=1 << 40)
        assert (engine.num_threads, engine.num_workers(99, 1 << 40)) == (parallelism, workers)


@pytest.mark.parametrize(("limit_bytes", "threads"), [(1, 1), (1 << 29, 2), (1 << 30, 4), (1 << 31, 8)])
def test_the_memory_limit_bounds_the_threads(limit_bytes: int, threads: int) -> None:
    assert LocalEngine(parallelism=64, memory_limit_bytes=limit_bytes).num_threads == threads


def test_the_error_of_a_worker_keeps_its_name_and_its_facts(
    tmp_path: Path, always_processes: LocalEngine
) -> None:
    write_days(tmp_path)
    next(tmp_path.glob("day=2024-01-01/*.parquet")).write_bytes(b"no parquet")
    for engine in (always_processes, LocalEngine(parallelism=1)):
        results = list(engine.run(tasks(tmp_path, f"run-{id(engine)}"), SilentProgress(), RUN_KEY))
        (failure,) = (result for result in results if isinstance(result, TaskFailed))
        error = failure.report
        assert (error.type, error.kind) == (CorruptLog.__name__, "refused")
        assert error.facts["path"].startswith("day=2024-01-01/")
        assert len(results) == 2, "the other bin is done"


def children() -> list[int]:
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            # The name in parentheses may hold anything; behind it come the state and the parent.
            if int(status.read_text().rpartition(")")[2].split()[1]) == os.getpid():
                found.append(int(status.parent.name))
    return found


def test_a_killed_worker_is_told_by_its_bin(
    tmp_path: Path, always_processes: LocalEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_days(tmp_path)
    given = tasks(tmp_path)
    give = local._Worker.give

    def give_and_kill(worker: local._Worker, task: RewriteTask) -> None:
        worker._process.send_signal(signal.SIGKILL)
        give(worker, task)

    monkeypatch.setattr(local._Worker, "give", give_and_kill)
    with pytest.raises(WorkerDied) as caught:
        list(always_processes.run(given, SilentProgress(), RUN_KEY))
    assert caught.value.exit_code == -signal.SIGKILL
    assert caught.value.bin_id in {task.bin_id for task in given}


def test_workers_end_when_the_iterator_is_closed(tmp_path: Path, always_processes: LocalEngine) -> None:
    write_days(tmp_path)
    running = always_processes.run(tasks(tmp_path), SilentProgress(), RUN_KEY)
    before = set(children())
    next(running)
    started = set(children()) - before
    running.close()
    assert started
    assert not started & set(children())


_ORPHAN = """
import sys, os, time
from delta_maintenance.engine.local import _Worker
from delta_maintenance.rewrite.manifest.manifest_file import RunKey
import queue
workers = [_Worker({}, RunKey("0" * 64), 1, 0, queue.SimpleQueue()) for _ in range(2)]
print(*[w._process.pid for w in workers], flush=True)
time.sleep(60)
"""


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_workers_do_not_outlive_a_killed_parent() -> None:
    parent = subprocess.Popen([sys.executable, "-c", _ORPHAN], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    with parent.stdout:
        workers = [int(pid) for pid in parent.stdout.readline().split()]
    assert len(workers) == 2
    parent.kill()
    parent.wait()
    patience = time.monotonic() + 30
    while any(map(is_running, workers)) and time.monotonic() < patience:
        time.sleep(0.05)
    assert not any(map(is_running, workers))


def test_no_other_process_sees_storage_options_or_the_runs_key(
    tmp_path: Path, always_processes: LocalEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_days(tmp_path)
    seen: list[str] = []
    start: Any = subprocess.Popen.__init__

    def noting(process: subprocess.Popen[bytes], *args: object, **kwargs: object) -> None:
        seen.extend((str(args), str(kwargs)))
        start(process, *args, **kwargs)

    monkeypatch.setattr(subprocess.Popen, "__init__", noting)
    always_processes._storage_options = {"key": "hunter2"}
    assert len(list(always_processes.run(tasks(tmp_path), SilentProgress(), RUN_KEY))) == 2
    assert seen
    assert not any(secret in text for text in seen for secret in ("hunter2", RUN_KEY.text))
