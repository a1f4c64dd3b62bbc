"""The threads of one process that encode segments. The bins that the process rewrites at a time share them.

Arrow's decoder and encoder release Python's lock, so the threads run side by side. A bin alone keeps all of them busy until its
last segments; while its file is made durable, the segments of the next bin use them.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import closing
from typing import TypeVar

from delta_maintenance.rewrite.limits import SORTED_ROWS_BYTES


class RowMemory:
    """Counts the bytes of rows that are kept in memory.

    :param limit_bytes: the most that is given out.
    """

    def __init__(self, limit_bytes: int = SORTED_ROWS_BYTES) -> None:
        self._free_bytes = limit_bytes
        self._lock = threading.Lock()

    def take(self, size_bytes: int) -> bool:
        """Take some bytes, if so many are left."""
        with self._lock:
            if size_bytes > self._free_bytes:
                return False
            self._free_bytes -= size_bytes
            return True

    def give_back(self, size_bytes: int) -> None:
        with self._lock:
            self._free_bytes += size_bytes


_In = TypeVar("_In")
_Out = TypeVar("_Out")


class SegmentPool:
    """A number of threads, which end with the context.

    :param row_memory: memory for decoded rows that a layout sorts.
    """

    def __init__(self, threads: int = 1, row_memory: RowMemory | None = None) -> None:
        self.threads = threads
        self.row_memory = row_memory or RowMemory()
        self._executor = ThreadPoolExecutor(threads)

    def __enter__(self) -> SegmentPool:
        return self

    def __exit__(self, *_: object) -> None:
        self._executor.shutdown(cancel_futures=True)

    def in_order(
        self, function: Callable[[_In], _Out], items: Iterable[_In], ahead: int
    ) -> Generator[tuple[_In, _Out], None, None]:
        """Yield the items, each with its result, in their order. The caller's thread takes the items.

        When the caller stops early, work that has not begun is dropped, and work that has begun is waited for.

        :param ahead: how many items are begun before the first result is asked for.
        """
        with closing(self.begun_in_order(function, items, ahead)) as begun:
            for item, result in begun:
                yield item, result.result()

    def begun_in_order(
        self,
        function: Callable[[_In], _Out],
        items: Iterable[_In],
        ahead: int,
        is_little: Callable[[_In], bool] = lambda _: False,
    ) -> Generator[tuple[_In, Future[_Out]], None, None]:
        """Yield the same as :meth:`in_order`, but do not wait for a result: the caller may have other work until it needs it.

        :param is_little: function that tells which items are less work than handing them to another thread. The caller's thread
            does them.
        """
        begun: deque[tuple[_In, Future[_Out]]] = deque()
        try:
            for item in items:
                while len(begun) >= ahead:
                    yield begun[0]
                    begun.popleft()
                if is_little(item):
                    begun.append((item, _done(function(item))))
                else:
                    begun.append((item, self._executor.submit(function, item)))
            while begun:
                yield begun[0]
                begun.popleft()
        finally:
            for _, unwanted in begun:
                unwanted.cancel()
            wait([unwanted for _, unwanted in begun])


def _done(result: _Out) -> Future[_Out]:
    future = Future[_Out]()
    future.set_result(result)
    return future
