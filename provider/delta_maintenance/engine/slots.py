"""Bins that one process works on side by side.

A disk keeps a processor busy with one bin at a time. Behind a network a small bin is mostly waiting: for its sources, its new
file, its manifest, one answer after the other. There a few small ones go side by side, and large ones alone, as on a disk.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from delta_log.printable import print_traceback
from delta_log.storage.opening import is_on_disk
from delta_log.storage.storage import Storage
from delta_maintenance.errors import error_report
from delta_maintenance.rewrite.bin import rewrite_bin
from delta_maintenance.rewrite.manifest_file import RunKey
from delta_maintenance.rewrite.task import RewriteTask

_SLOTS = 8
#: Of all sources together; what they hold decoded is several times as much.
_SLOTS_BYTES = 32 << 20

#: Told the bin's id, and one of: ``{"read": bytes}``, ``{"manifest": {…}}``, ``{"error": {…}}``. Any thread may do so.
Answer = Callable[[str, dict[str, Any]], None]


def is_small(task: RewriteTask) -> bool:
    """Is it one of those that go side by side?"""
    return task.bytes_in <= _SLOTS_BYTES and not is_on_disk(task.table_uri)


def has_capacity(running: Collection[RewriteTask], task: RewriteTask) -> bool:
    """Can a process begin a task beside those that it is at?"""
    if not running:
        return True
    return (
        len(running) < _SLOTS
        and all(map(is_small, (task, *running)))
        and sum(other.bytes_in for other in running) + task.bytes_in <= _SLOTS_BYTES
    )


class Slots:
    """Threads of this process; who leaves the context gives up what they are at.

    :param answer: told what becomes of each bin.
    """

    def __init__(self, storage: Storage, run_key: RunKey, answer: Answer) -> None:
        self._storage, self._run_key, self._answer = storage, run_key, answer
        self._pool = ThreadPoolExecutor(_SLOTS)
        self._given_up = threading.Event()

    def __enter__(self) -> Slots:  # noqa: PYI034 - Self is of Python 3.11
        return self

    def __exit__(self, *_: object) -> None:
        self._given_up.set()
        self._pool.shutdown(cancel_futures=True)

    def begin(self, task: RewriteTask) -> None:
        self._pool.submit(self.rewrite, task)

    def rewrite(self, task: RewriteTask) -> None:
        """In this very thread."""
        try:
            manifest = rewrite_bin(
                task, self._storage, self._run_key, lambda size: self._read(task.bin_id, size)
            )
        except _GivenUp:
            pass
        except Exception as error:  # noqa: BLE001 - who is told decides
            print_traceback(error)
            self._answer(task.bin_id, {"error": error_report(error).to_dict()})
        else:
            self._answer(task.bin_id, {"manifest": manifest.to_dict()})

    def _read(self, bin_id: str, size_bytes: int) -> None:
        if self._given_up.is_set():
            raise _GivenUp
        self._answer(bin_id, {"read": size_bytes})


class _GivenUp(BaseException):
    """Unwinds a bin that nobody wants any more, which removes its unfinished file."""
