"""Work on a stream in several threads, in the stream's order and in bounded memory.

Arrow, compression and checksums let go of Python's lock, so that decoding, converting and encoding overlap.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import pyarrow as pa

_In = TypeVar("_In")
_Out = TypeVar("_Out")


def ahead(items: Iterable[_In]) -> Generator[_In, None, None]:
    """The same; the next item is made while the caller works on one."""
    source = iter(items)
    end = object()
    with ThreadPoolExecutor(1) as thread:
        following = thread.submit(next, source, end)
        while (item := following.result()) is not end:
            following = thread.submit(next, source, end)
            yield item  # type: ignore[misc]


def mapped(
    function: Callable[[_In], _Out], items: Iterable[_In], threads: int | None = None
) -> Iterator[_Out]:
    """``function`` of each item, in their order.

    :param threads: so many at a time (by default two, or one for each processor), and one more that waits to be taken.
    """
    count = max(2, pa.cpu_count()) if threads is None else threads
    waiting: deque[Future[_Out]] = deque()
    with ThreadPoolExecutor(count) as pool:
        for item in items:
            waiting.append(pool.submit(function, item))
            del item  # or it would be held until the next one is there
            if len(waiting) > count:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
