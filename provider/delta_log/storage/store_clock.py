"""Compares this machine's clock with the store's before a file is deleted for its age.

The store says when a file was written, and this machine says what time it is. If this machine's clock is ahead, young files
look old. A file that the store writes now shows the difference. A clock that is behind makes a caller delete too little, which
does no harm.

On a disk of this machine both clocks are one, and the comparison finds nothing.
"""

from __future__ import annotations

from collections.abc import Callable

from delta_log.errors import ClockAhead, StorageError
from delta_log.runtime import Runtime
from delta_log.storage.storage import Storage

#: A difference between clocks up to this is ignored; retentions have the same margin.
CLOCK_MARGIN_MS = 5 * 60_000
_RUNTIME = Runtime()


def store_clock_ms(storage: Storage, directory: str, new_id: Callable[[], str] = _RUNTIME.new_id) -> int:
    """Return the time that the store gives to a small file written now; the file is deleted again.

    :param directory: directory of the file; empty for the root. Choose one whose cleanup removes the file if this process is
        killed: the log, or on a disk any directory that :meth:`Storage.remove_leftovers` is given.
    """
    # The name is of the pattern of temporary files on a disk (`delta_log.storage.local.leftovers`).
    key = f"{directory}/.clock.{new_id().replace('-', '')}.tmp".lstrip("/")
    storage.put(key, b"What time is it?")
    try:
        written = storage.head(key)
    finally:
        storage.delete([key])
    if written is None:
        raise StorageError(f"{key} was written a moment ago and is not there any more. Run again.", key)
    return written.modification_time_ms


def require_store_clock(
    storage: Storage, now_ms: int, directory: str, *, new_id: Callable[[], str] = _RUNTIME.new_id
) -> None:
    """Refuse where this machine's clock is ahead of the store's.

    :param now_ms: time by this machine's clock, before this call.
    :param directory: directory as for :func:`store_clock_ms`.
    :raises ClockAhead: see :func:`require_not_ahead`.
    """
    require_not_ahead(now_ms, store_clock_ms(storage, directory, new_id))


def require_not_ahead(now_ms: int, written_ms: int) -> None:
    """
    :param written_ms: time by the store's clock at which the store wrote something after ``now_ms``.
    :raises ClockAhead: this machine's clock is ahead.
    """
    if now_ms - written_ms > CLOCK_MARGIN_MS:
        raise ClockAhead(now_ms - written_ms)
