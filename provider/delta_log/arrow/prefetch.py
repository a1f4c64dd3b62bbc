"""Work on many items in several threads, with results in the order of the items and bounded memory.

Choose by where the time goes:

* :func:`read_ahead`: making the items takes time (reading, decoding). One thread makes the next ones while the caller works.
* :func:`map_ordered`: the items are there (keys, files), and a function of each takes time (a request to a store).
* :func:`map_stream`: both. One thread makes the items, several others work on them.

Arrow, compression, checksums and network calls release Python's lock, so these threads run side by side. An exception reaches
the caller at its item's place in the order. When the caller stops early, work that has not begun is dropped, and work that has
begun is waited for.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from typing import TypeVar

import pyarrow as pa

_In = TypeVar("_In")
_Out = TypeVar("_Out")


def read_ahead(items: Iterable[_In], depth: int = 1) -> Generator[_In, None, None]:
    """Yield the items; one thread makes up to ``depth`` further ones while the caller works on one."""
    source = iter(items)
    end = object()
    with ThreadPoolExecutor(1) as thread:
        following = deque(thread.submit(next, source, end) for _ in range(depth))
        while (item := following.popleft().result()) is not end:
            following.append(thread.submit(next, source, end))
            yield item  # type: ignore[misc]


def map_ordered(
    function: Callable[[_In], _Out], items: Iterable[_In], threads: int
) -> Generator[_Out, None, None]:
    """Yield ``function(item)`` for each item, in the order of the items, which are taken in the caller's thread.

    At most twice as many results as threads wait for the caller.

    :param threads: number of calls that run at once, for example ``storage.concurrency``. With fewer than two, each call
        runs in the caller's thread when its result is asked for.
    """
    if threads < 2:
        yield from map(function, items)
        return
    begun: deque[Future[_Out]] = deque()
    with ThreadPoolExecutor(threads) as pool:
        try:
            for item in items:
                begun.append(pool.submit(function, item))
                if len(begun) > 2 * threads:
                    yield begun.popleft().result()
            while begun:
                yield begun.popleft().result()
        finally:
            for unwanted in begun:
                unwanted.cancel()


def map_stream(
    function: Callable[[_In], _Out], items: Iterable[_In], threads: int | None = None
) -> Generator[_Out, None, None]:
    """Yield ``function(item)`` for each item, in the order of the items, which one thread of its own makes.

    :param threads: number of calls that run at once; by default one for each processor, and at least two. As many results wait
        for the caller.
    """
    count = max(2, pa.cpu_count()) if threads is None else threads
    with (
        ThreadPoolExecutor(count) as pool,
        closing(read_ahead((pool.submit(function, item) for item in items), count)) as begun,
    ):
        for future in begun:
            yield future.result()
