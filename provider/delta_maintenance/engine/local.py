"""The local engine: threads of this process, and further processes where the machine has many processors.

1. Threads encode segments of the bins (:mod:`delta_maintenance.rewrite.read.segment_pool`). They decode and encode outside of Python's
   lock, so a few of them keep as many processors busy. With more, they would wait for that lock: then worker processes share
   the bins, each with as many threads.
2. Workers are processes with their own entry point (:mod:`delta_maintenance.engine.local_worker`), never forks.
3. The number of threads is limited by processors and memory: each is estimated to need :data:`THREAD_BYTES`.
4. A plan puts the biggest bins first, so a free process takes the biggest bin that is left. A process works on a few bins at once
   (:mod:`delta_maintenance.engine.concurrent_bins`).
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import sys
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path
from typing import Any

from delta_log.errors import DeltaLogError
from delta_log.storage.opening import open_storage
from delta_log.storage.storage import Storage
from delta_maintenance.contract import RUN_KEY_VARIABLE, STORAGE_OPTIONS_VARIABLE, ErrorReport
from delta_maintenance.engine.concurrent_bins import ConcurrentBins, has_capacity
from delta_maintenance.engine.engine import BinResult, is_too_late
from delta_maintenance.errors import TaskFailed, WorkerDied, error_report
from delta_maintenance.progress import ProgressReporter
from delta_maintenance.rewrite.bin import rewrite_bin
from delta_maintenance.rewrite.manifest.manifest_file import RunKey, parsed
from delta_maintenance.rewrite.read.segment_pool import SegmentPool
from delta_maintenance.rewrite.row_memory import ROW_BYTES, RowMemory
from delta_maintenance.rewrite.task import BinManifest, RewriteTask

#: The memory of a process for its libraries and for encoded parts that wait; and that of a thread: a decoded row group, the encoded
#: one, and what Arrow keeps.
PROCESS_BYTES, THREAD_BYTES = 256 << 20, 192 << 20
#: The threads of a process. More of them would wait for Python's lock, and each process costs a processor half a second.
_THREADS_OF_A_PROCESS = 4
#: Work that this process does in the half second that a worker needs to start. Each bin adds a fixed cost.
_NOT_WORTH_A_PROCESS = 64 << 20
_BIN_BYTES = 256 << 10
_SECONDS_TO_END = 5

#: Answers of all workers, in the order of arrival; ``None`` is the last one of a worker.
_Answers = queue.SimpleQueue[tuple["_Tasks", dict[str, Any] | None]]


class LocalEngine:
    """An :class:`~delta_maintenance.engine.engine.Engine` on this machine.

    :param memory_limit_bytes: the limit for all processes together; one thread works whatever the limit is.
    :param parallelism: the most segments that are rewritten at once; ``None``: one for each processor.
    """

    name = "local"

    def __init__(
        self,
        storage_options: Mapping[str, Any] | None = None,
        *,
        memory_limit_bytes: int = 1 << 30,
        parallelism: int | None = None,
    ) -> None:
        self._storage_options = dict(storage_options or {})
        self._memory_limit_bytes = memory_limit_bytes
        self._parallelism = parallelism

    @property
    def num_threads(self) -> int:
        """The number of segments that are encoded at once, in all processes together."""
        wanted = self._parallelism if self._parallelism is not None else available_cpus()
        # The part of a process that each thread has.
        thread_bytes = THREAD_BYTES + PROCESS_BYTES // min(wanted, _THREADS_OF_A_PROCESS)
        return max(1, min(wanted, self._memory_limit_bytes // thread_bytes))

    def _row_bytes(self, processes: int = 1) -> int:
        """The memory for rows that layouts sort, of each process."""
        return min(ROW_BYTES, self._memory_limit_bytes // 4) // processes

    def num_workers(self, num_tasks: int, total_bytes: int) -> int:
        """Return the number of processes to start; 0: this process does the work."""
        if num_tasks == 0 or total_bytes + num_tasks * _BIN_BYTES <= _NOT_WORTH_A_PROCESS:
            return 0
        wanted = min(num_tasks, self.num_threads // _THREADS_OF_A_PROCESS)
        return wanted if wanted > 1 else 0

    def run(
        self, tasks: Sequence[RewriteTask], progress: ProgressReporter, run_key: RunKey
    ) -> Generator[BinResult, None, None]:
        tasks = list(tasks)  # each look at a task of a plan makes it anew
        workers = self.num_workers(len(tasks), sum(task.bytes_in for task in tasks))
        if workers:
            return self._run_with(workers, tasks, progress, run_key)
        if len(tasks) > 1:
            return self._run_side_by_side(tasks, progress, run_key)
        return self._run_here(tasks, progress, run_key)

    def _run_here(
        self, tasks: Sequence[RewriteTask], progress: ProgressReporter, run_key: RunKey
    ) -> Generator[BinResult, None, None]:
        """Rewrite in the caller's thread, one bin after the other."""
        with SegmentPool(self.num_threads, RowMemory(self._row_bytes())) as pool:
            for task in tasks:
                if is_too_late(task):
                    return
                storage = open_storage(task.table_uri, self._storage_options)
                result: BinResult
                try:
                    result = rewrite_bin(task, storage, run_key, _reading(progress, task.bin_id), pool)
                except DeltaLogError as error:
                    if error.retryable:
                        raise
                    result = TaskFailed(task.bin_id, error_report(error))
                progress.bin_done(task.bin_id, task.bytes_in)
                yield result

    def _run_side_by_side(
        self, tasks: Sequence[RewriteTask], progress: ProgressReporter, run_key: RunKey
    ) -> Generator[BinResult, None, None]:
        answers: _Answers = queue.SimpleQueue()
        storage = open_storage(tasks[0].table_uri, self._storage_options)
        with _Here(storage, run_key, self.num_threads, self._row_bytes(), answers) as here:
            yield from _results([here], tasks, answers, progress)

    def _run_with(
        self, num_workers: int, tasks: Sequence[RewriteTask], progress: ProgressReporter, run_key: RunKey
    ) -> Generator[BinResult, None, None]:
        threads = max(1, self.num_threads // num_workers)
        answers: _Answers = queue.SimpleQueue()
        with contextlib.ExitStack() as workers:
            started = [
                workers.enter_context(
                    _Worker(self._storage_options, run_key, threads, self._row_bytes(num_workers), answers)
                )
                for _ in range(num_workers)
            ]
            # All workers are told to end before this process waits for the first.
            workers.callback(_end_all, started)
            yield from _results(started, tasks, answers, progress)


def _results(
    workers: Sequence[_Tasks], tasks: Sequence[RewriteTask], answers: _Answers, progress: ProgressReporter
) -> Generator[BinResult, None, None]:
    """Give tasks to workers with capacity, and yield the results."""
    waiting = deque(tasks)

    def gave_one(worker: _Tasks) -> bool:
        if not waiting or not has_capacity(worker.tasks.values(), waiting[0]):
            return False
        if is_too_late(waiting[0]):
            waiting.clear()
            return False
        task = waiting.popleft()
        worker.tasks[task.bin_id] = task
        worker.give(task)
        return True

    # One task to each worker in turn, so that no worker idles while another has several.
    while sum(gave_one(worker) for worker in workers):
        pass
    while any(worker.tasks for worker in workers):
        worker, task, result = _next_result(answers, progress)
        del worker.tasks[task.bin_id]
        while gave_one(worker):
            pass
        if not worker.tasks:
            worker.end()
        progress.bin_done(task.bin_id, task.bytes_in)
        yield result


def _end_all(workers: Sequence[_Worker]) -> None:
    for worker in workers:
        worker.end()


def _next_result(answers: _Answers, progress: ProgressReporter) -> tuple[_Tasks, RewriteTask, BinResult]:
    while True:
        worker, answer = answers.get()
        if answer is None:
            if worker.tasks:
                raise worker.died()
            continue  # it was told to end, and did
        task = worker.tasks.get(answer["bin"])
        if task is None:
            continue
        if "read" in answer:
            progress.source_read(task.bin_id, answer["read"])
        elif "error" in answer:
            failure = TaskFailed(task.bin_id, ErrorReport.from_dict(answer["error"]))
            if failure.retryable:
                raise failure
            return worker, task, failure
        else:
            manifest = answer["manifest"]
            return worker, task, manifest if isinstance(manifest, BinManifest) else parsed(manifest)


class _Tasks(ABC):
    """Works on tasks; ``tasks`` holds the unfinished ones by bin."""

    def __init__(self) -> None:
        self.tasks: dict[str, RewriteTask] = {}

    @abstractmethod
    def give(self, task: RewriteTask) -> None: ...

    @abstractmethod
    def end(self) -> None:
        """Abandon unfinished tasks and end."""

    @abstractmethod
    def died(self) -> WorkerDied:
        """Return the error for a worker that ended by itself."""


class _Here(_Tasks):
    """Threads of this process."""

    def __init__(
        self, storage: Storage, run_key: RunKey, threads: int, row_bytes: int, answers: _Answers
    ) -> None:
        super().__init__()
        self._slots = ConcurrentBins(
            storage,
            run_key,
            lambda bin_id, facts: answers.put((self, {"bin": bin_id, **facts})),
            threads,
            row_bytes,
        )

    def __enter__(self) -> _Here:
        return self

    def __exit__(self, *exception: object) -> None:
        self._slots.__exit__(*exception)

    def give(self, task: RewriteTask) -> None:
        self._slots.begin(task)

    def end(self) -> None:
        self.tasks.clear()

    def died(self) -> WorkerDied:
        raise AssertionError("threads do not die by themselves")


class _Worker(_Tasks):
    """One process."""

    def __init__(
        self,
        storage_options: Mapping[str, Any],
        run_key: RunKey,
        threads: int,
        row_bytes: int,
        answers: _Answers,
    ) -> None:
        super().__init__()
        # Imported here: most jobs need no further process.
        import subprocess

        self._process = subprocess.Popen(
            [sys.executable, "-m", "delta_maintenance.engine.local_worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=_environment(),
        )
        setup = {"storage_options": storage_options, "run_key": run_key.text}
        self._send({**setup, "threads": threads, "row_bytes": row_bytes})
        threading.Thread(target=self._listen, args=(answers,), daemon=True).start()

    def __enter__(self) -> _Worker:
        return self

    def __exit__(self, *_: object) -> None:
        from subprocess import TimeoutExpired

        self.end()
        try:
            self._process.wait(_SECONDS_TO_END)
        except TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def give(self, task: RewriteTask) -> None:
        self._send(task.to_json())

    def end(self) -> None:
        self.tasks.clear()
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()

    def died(self) -> WorkerDied:
        task = max(self.tasks.values(), key=lambda task: task.bytes_in)
        return WorkerDied(task.bin_id, self._process.wait(), task.bytes_in, len(task.sources))

    def _send(self, message: Any) -> None:
        text = message if isinstance(message, str) else json.dumps(message)
        assert self._process.stdin is not None
        # The end of its answers tells that a worker is gone.
        with contextlib.suppress(OSError):
            self._process.stdin.write(text.encode() + b"\n")
            self._process.stdin.flush()

    def _listen(self, answers: _Answers) -> None:
        assert self._process.stdout is not None
        with self._process.stdout:
            for line in self._process.stdout:
                if line.endswith(b"\n"):
                    answers.put((self, json.loads(line)))
        answers.put((self, None))


def _reading(progress: ProgressReporter, bin_id: str) -> Any:
    return lambda size_bytes: progress.source_read(bin_id, size_bytes)


def _environment() -> dict[str, str]:
    """Return the environment of a worker, with this process's module path, which may hold a bundle or a script's directory."""
    path = [str(Path(entry).resolve()) for entry in sys.path]
    own = {"PYTHONPATH": os.pathsep.join(dict.fromkeys(path)), "PYTHONSAFEPATH": "1"}
    # A worker gets these in its first line.
    told = (STORAGE_OPTIONS_VARIABLE, RUN_KEY_VARIABLE)
    inherited = {name: value for name, value in os.environ.items() if name not in told}
    return {**inherited, **own}


def available_cpus() -> int:
    """Return the number of processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
