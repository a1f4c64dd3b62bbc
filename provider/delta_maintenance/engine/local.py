"""The local engine: threads of this process.

1. Threads encode segments of the bins (:mod:`delta_maintenance.rewrite.read.segment_pool`). Arrow decodes and encodes outside of
   Python's lock, so a few threads keep as many processors busy. Their number is limited by processors and memory: each is
   estimated to need :data:`THREAD_BYTES`.
2. A few bins are rewritten at once. Two large bins share the threads that encode: one keeps them busy while the file of the other
   is sent or made durable. Over a network, a small bin mostly waits: for its sources, its new file, its manifest. So more small
   bins of a store are rewritten at once.
3. A plan puts the biggest bins first.
"""

from __future__ import annotations

import os
import queue
import threading
from collections import deque
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from delta_log.storage.opening import is_on_disk, open_storage
from delta_log.storage.storage import Storage
from delta_maintenance.engine.engine import BinResult, is_too_late
from delta_maintenance.errors import TaskFailed, error_report, log_failure
from delta_maintenance.progress import ProgressReporter
from delta_maintenance.rewrite.bin import rewrite_bin
from delta_maintenance.rewrite.limits import SORTED_ROWS_BYTES
from delta_maintenance.rewrite.manifest.manifest_file import RunKey
from delta_maintenance.rewrite.read.segment_pool import RowMemory, SegmentPool
from delta_maintenance.rewrite.task import MANIFEST_DIRECTORY, RewriteTask

#: The memory of the process for its libraries and for encoded parts that wait; and the memory of a thread: a decoded row group, the
#: encoded one, and what Arrow keeps.
PROCESS_BYTES, THREAD_BYTES = 256 << 20, 192 << 20
#: The most small bins of a store at once, and the most bytes of their sources together. Decoded, they take several times as much memory.
_MAX_SMALL_BINS, _SMALL_BINS_BYTES = 8, 32 << 20
#: The most bins of any size at once.
_MAX_BINS = 2

#: The number of bytes that were read of a source, or how its bin ended.
_Outcome = int | BinResult


class LocalEngine:
    """An :class:`~delta_maintenance.engine.engine.Engine` on this machine.

    :param memory_limit_bytes: the limit for all threads together; one thread works whatever the limit is.
    :param parallelism: the most segments that are rewritten at once; ``None``: one for each processor.
    :param opened: function that opens the table's storage.
    """

    name = "local"

    def __init__(
        self,
        storage_options: Mapping[str, Any] | None = None,
        *,
        memory_limit_bytes: int = 1 << 30,
        parallelism: int | None = None,
        opened: Callable[[str, Mapping[str, Any]], Storage] = open_storage,
    ) -> None:
        self._storage_options = dict(storage_options or {})
        self._memory_limit_bytes = memory_limit_bytes
        self._parallelism = parallelism
        self._opened = opened

    @property
    def num_threads(self) -> int:
        """The number of segments that are encoded at once."""
        wanted = self._parallelism if self._parallelism is not None else available_cpus()
        return max(1, min(wanted, (self._memory_limit_bytes - PROCESS_BYTES) // THREAD_BYTES))

    def run(
        self, tasks: Sequence[RewriteTask], progress: ProgressReporter, run_key: RunKey
    ) -> Generator[BinResult, None, None]:
        waiting = deque(tasks)
        if not waiting:
            return
        storage = self._opened(waiting[0].table_uri, self._storage_options)
        # Rows that layouts sort.
        row_memory = RowMemory(min(SORTED_ROWS_BYTES, self._memory_limit_bytes // 4))
        running: dict[str, RewriteTask] = {}
        with ConcurrentBins(storage, run_key, self.num_threads, row_memory) as bins:
            while waiting or running:
                while waiting and has_capacity(running.values(), waiting[0]):
                    if is_too_late(waiting[0]):
                        waiting.clear()
                        break
                    task = waiting.popleft()
                    running[task.bin_id] = task
                    bins.begin(task)
                if not running:
                    return
                bin_id, outcome = bins.outcomes.get()
                if isinstance(outcome, int):
                    progress.source_read(bin_id, outcome)
                    continue
                if isinstance(outcome, TaskFailed) and outcome.retryable:
                    raise outcome
                progress.bin_done(bin_id, running.pop(bin_id).bytes_in)
                yield outcome


def has_capacity(running: Collection[RewriteTask], task: RewriteTask) -> bool:
    """Tell whether a task can begin beside those that run."""
    if len(running) < _MAX_BINS:
        return True
    return (
        len(running) < _MAX_SMALL_BINS
        and not any(is_on_disk(other.table_uri) for other in (task, *running))
        and sum(other.bytes_in for other in running) + task.bytes_in <= _SMALL_BINS_BYTES
    )


class ConcurrentBins:
    """Threads that rewrite bins. Leaving the context abandons unfinished bins.

    :param threads: how many segments are encoded at once.
    :param row_memory: memory for decoded rows that layouts sort.
    :ivar outcomes: queue that the threads fill: a bin's id with the bytes that were read of a source, or with the bin's result.
    """

    def __init__(self, storage: Storage, run_key: RunKey, threads: int, row_memory: RowMemory) -> None:
        self.outcomes: queue.SimpleQueue[tuple[str, _Outcome]] = queue.SimpleQueue()
        self._storage, self._run_key = storage, run_key
        self._segments = SegmentPool(threads, row_memory)
        self._pool = ThreadPoolExecutor(_MAX_SMALL_BINS)
        self._given_up = threading.Event()
        self._finished: dict[str, frozenset[str]] = {}
        self._listing = threading.Lock()

    def __enter__(self) -> ConcurrentBins:
        return self

    def __exit__(self, *_: object) -> None:
        self._given_up.set()
        self._pool.shutdown(cancel_futures=True)
        self._segments.__exit__()

    def begin(self, task: RewriteTask) -> None:
        self._pool.submit(self._rewrite, task)

    def _rewrite(self, task: RewriteTask) -> None:
        try:
            reading = partial(self._read, task.bin_id)
            is_new = f"{task.bin_id}.json" not in self._finished_of(task.run_id)
            if self._given_up.is_set():
                raise _GivenUp
            manifest = rewrite_bin(task, self._storage, self._run_key, reading, self._segments, is_new=is_new)
        except _GivenUp:
            pass
        except BaseException as error:  # noqa: BLE001 - the receiver decides, and waits for an outcome
            log_failure(error)
            self.outcomes.put((task.bin_id, TaskFailed(task.bin_id, error_report(error))))
        else:
            self.outcomes.put((task.bin_id, manifest))

    def _finished_of(self, run_id: str) -> frozenset[str]:
        """Return the names of the manifests that the run had when this process began its first bin."""
        with self._listing:
            if run_id not in self._finished:
                listed = self._storage.list_from(f"{MANIFEST_DIRECTORY}/{run_id}")
                self._finished[run_id] = frozenset(info.name for info in listed)
            return self._finished[run_id]

    def _read(self, bin_id: str, size_bytes: int) -> None:
        if self._given_up.is_set():
            raise _GivenUp
        self.outcomes.put((bin_id, size_bytes))


class _GivenUp(BaseException):
    """Unwinds an abandoned bin, which removes its unfinished file."""


def available_cpus() -> int:
    """Return the number of processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
