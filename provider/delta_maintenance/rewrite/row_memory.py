"""The memory in which a process keeps decoded rows while layouts sort them. The bins that it rewrites at a time share it."""

from __future__ import annotations

import threading

#: What does not fit goes to a local disk.
ROW_BYTES = 256 << 20


class RowMemory:
    """Counts the bytes of rows that are kept in memory.

    :param limit_bytes: the most that is given out.
    """

    def __init__(self, limit_bytes: int = ROW_BYTES) -> None:
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
