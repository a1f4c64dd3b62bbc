"""Rewrites several small bins at once in one process.

With a local disk, one bin at a time keeps a processor busy. Over a network, a small bin mostly waits: for its sources, its new
file, its manifest. So a process rewrites a few small bins of a store at once. Large bins run alone, as on a disk.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from delta_log.printable import print_traceback
from delta_log.storage.opening import is_on_disk
from delta_log.storage.storage import Storage
from delta_maintenance.errors import error_report
from delta_maintenance.rewrite.bin import rewrite_bin
from delta_maintenance.rewrite.manifest_file import RunKey
from delta_maintenance.rewrite.task import RewriteTask

_SLOTS = 8
#: The most bytes of all sources of these bins together. Decoded, they take several times as much memory.
_SLOTS_BYTES = 32 << 20

#: Called by any thread with a bin's id and one of ``{"read": bytes}``, ``{"manifest": {…}}``, ``{"error": {…}}``.
Answer = Callable[[str, dict[str, Any]], None]


def is_small(task: RewriteTask) -> bool:
    """Tell whether a task may run beside others."""
    return task.bytes_in <= _SLOTS_BYTES and not is_on_disk(task.table_uri)


def has_capacity(running: Collection[RewriteTask], task: RewriteTask) -> bool:
    """Tell whether a process can begin a task beside those that it runs."""
    if not running:
        return True
    return (
        len(running) < _SLOTS
        and all(map(is_small, (task, *running)))
        and sum(other.bytes_in for other in running) + task.bytes_in <= _SLOTS_BYTES
    )


class Slots:
    """Threads of this process that rewrite bins. Leaving the context abandons unfinished bins.

    :param answer: called with the outcome of each bin.
    :param threads: how many segments of a bin that runs alone are encoded at once.
    """

    def __init__(self, storage: Storage, run_key: RunKey, answer: Answer, threads: int = 1) -> None:
        self._storage, self._run_key, self._answer, self._threads = storage, run_key, answer, threads
        self._pool = ThreadPoolExecutor(_SLOTS)
        self._given_up = threading.Event()

    def __enter__(self) -> Slots:
        return self

    def __exit__(self, *_: object) -> None:
        self._given_up.set()
        self._pool.shutdown(cancel_futures=True)

    def begin(self, task: RewriteTask) -> None:
        self._pool.submit(self.rewrite, task)

    def rewrite(self, task: RewriteTask) -> None:
        """Rewrite a bin in the caller's thread."""
        try:
            threads = 1 if is_small(task) else self._threads
            reading = partial(self._read, task.bin_id)
            manifest = rewrite_bin(task, self._storage, self._run_key, reading, threads)
        except _GivenUp:
            pass
        except Exception as error:  # noqa: BLE001 - the receiver decides
            print_traceback(error)
            self._answer(task.bin_id, {"error": error_report(error).to_dict()})
        else:
            self._answer(task.bin_id, {"manifest": manifest.to_dict()})

    def _read(self, bin_id: str, size_bytes: int) -> None:
        if self._given_up.is_set():
            raise _GivenUp
        self._answer(bin_id, {"read": size_bytes})


class _GivenUp(BaseException):
    """Unwinds an abandoned bin, which removes its unfinished file."""
