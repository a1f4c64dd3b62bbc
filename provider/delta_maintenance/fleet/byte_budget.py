"""Bounds the memory of several threads by the bytes that each says it needs."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class ByteBudget:
    """A number of bytes that threads may hold at once.

    :param limit_bytes: a thread that needs more than this waits until no other holds any.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._held_bytes = 0
        self._changed = threading.Condition()

    @contextmanager
    def held(self, size_bytes: int) -> Iterator[None]:
        """Hold bytes for the time of the block; wait before it while they are not free."""
        wanted = min(size_bytes, self._limit_bytes)
        with self._changed:
            self._changed.wait_for(lambda: self._held_bytes + wanted <= self._limit_bytes)
            self._held_bytes += wanted
        try:
            yield
        finally:
            with self._changed:
                self._held_bytes -= wanted
                self._changed.notify_all()
