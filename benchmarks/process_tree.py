"""What a program and all processes below it cost: processor seconds and memory, looked at many times a second."""

from __future__ import annotations

import os
import threading
from pathlib import Path

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_SECONDS = 0.05


class ProcessTree:
    """Watches this process and its descendants while the block lasts.

    :ivar cpu_seconds: processor time of all processes, up to the last look at each.
    :ivar peak_mb: the greatest sum of resident memory, above what this process had before; pages that processes share
        are counted for each.
    """

    def __enter__(self) -> ProcessTree:
        self.cpu_seconds = self.peak_mb = 0.0
        self._ticks: dict[int, int] = {}
        self._stop = threading.Event()
        self._pid = os.getpid()
        self._first_ticks, self._first_bytes = _usage(self._pid) or (0, 0)
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self.cpu_seconds = (sum(self._ticks.values()) - self._first_ticks) / _TICKS_PER_SECOND

    def _watch(self) -> None:
        while True:
            ended = self._stop.wait(_SECONDS)
            total = 0
            for pid in _tree(self._pid):
                usage = _usage(pid)
                if usage is not None:
                    self._ticks[pid] = max(self._ticks.get(pid, 0), usage[0])
                    total += usage[1]
            self.peak_mb = max(self.peak_mb, (total - self._first_bytes) / (1 << 20))
            if ended:
                return

    def measured(self) -> dict[str, float]:
        """For :mod:`side_by_side`."""
        return {"cpu": self.cpu_seconds, "peak_mb": self.peak_mb}


def _tree(pid: int) -> list[int]:
    found = [pid]
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            for child in Path(f"/proc/{pid}/task/{thread}/children").read_text().split():
                found += _tree(int(child))
    except OSError:  # it has ended
        pass
    return found


def _usage(pid: int) -> tuple[int, int] | None:
    """Ticks of the processor, and resident bytes."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return int(fields[11]) + int(fields[12]), int(fields[21]) * _PAGE_BYTES
