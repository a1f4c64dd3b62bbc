"""Work on a stream in several threads, in the stream's order and in bounded memory.

Arrow, compression and checksums let go of Python's lock, so that decoding, converting and encoding overlap.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import TypeVar

import pyarrow as pa

_In = TypeVar("_In")
_Out = TypeVar("_Out")


def ahead(items: Iterable[_In], depth: int = 1) -> Generator[_In, None, None]:
    """The same; up to ``depth`` items more are made, one after the other, while the caller works on one."""
    source = iter(items)
    end = object()
    with ThreadPoolExecutor(1) as thread:
        following = deque(thread.submit(next, source, end) for _ in range(depth))
        while (item := following.popleft().result()) is not end:
            following.append(thread.submit(next, source, end))
            yield item  # type: ignore[misc]


def mapped(
    function: Callable[[_In], _Out], items: Iterable[_In], threads: int | None = None
) -> Iterator[_Out]:
    """``function`` of each item, in their order; items are taken in a thread of its own.

    :param threads: so many at a time (by default two, or one for each processor), and one that the caller works on.
    """
    count = max(2, pa.cpu_count()) if threads is None else threads
    with (
        ThreadPoolExecutor(count) as pool,
        closing(ahead((pool.submit(function, item) for item in items), count)) as begun,
    ):
        for future in begun:
            yield future.result()
