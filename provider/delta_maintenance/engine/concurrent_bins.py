"""Rewrites several bins at once in one process.

Two large bins share the threads that encode: one keeps them busy while the file of the other is sent or made durable. Over a
network, a small bin mostly waits: for its sources, its new file, its manifest. So a process rewrites more small bins of a store
at once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from delta_log.storage.opening import is_on_disk
from delta_log.storage.storage import Storage
from delta_maintenance.errors import error_report, log_failure
from delta_maintenance.rewrite.bin import rewrite_bin
from delta_maintenance.rewrite.manifest.manifest_file import RunKey
from delta_maintenance.rewrite.read.segment_pool import SegmentPool
from delta_maintenance.rewrite.row_memory import ROW_BYTES, RowMemory
from delta_maintenance.rewrite.task import MANIFEST_DIRECTORY, RewriteTask

_SLOTS = 8
#: Small bins of a store are those whose sources take no more bytes together. Decoded, they take several times as much memory.
_SLOTS_BYTES = 32 << 20
#: Bins of any size.
_LARGE_SLOTS = 2

#: Called by any thread with a bin's id and one of ``{"read": bytes}``, ``{"manifest": BinManifest}``, ``{"error": {…}}``.
Answer = Callable[[str, dict[str, Any]], None]


def has_capacity(running: Collection[RewriteTask], task: RewriteTask) -> bool:
    """Tell whether a process can begin a task beside those that it runs."""
    if len(running) < _LARGE_SLOTS:
        return True
    return (
        len(running) < _SLOTS
        and not any(is_on_disk(other.table_uri) for other in (task, *running))
        and sum(other.bytes_in for other in running) + task.bytes_in <= _SLOTS_BYTES
    )


class ConcurrentBins:
    """Threads of this process that rewrite bins. Leaving the context abandons unfinished bins.

    :param answer: called with the outcome of each bin.
    :param threads: how many segments are encoded at once.
    :param row_bytes: of decoded rows that layouts keep in memory.
    """

    def __init__(
        self, storage: Storage, run_key: RunKey, answer: Answer, threads: int, row_bytes: int = ROW_BYTES
    ) -> None:
        self._storage, self._run_key, self._answer = storage, run_key, answer
        self._segments = SegmentPool(threads, RowMemory(row_bytes))
        self._pool = ThreadPoolExecutor(_SLOTS)
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
        except BaseException as error:  # noqa: BLE001 - the receiver decides, and waits for an answer
            log_failure(error)
            self._answer(task.bin_id, {"error": error_report(error).to_dict()})
        else:
            self._answer(task.bin_id, {"manifest": manifest})

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
        self._answer(bin_id, {"read": size_bytes})


class _GivenUp(BaseException):
    """Unwinds an abandoned bin, which removes its unfinished file."""
