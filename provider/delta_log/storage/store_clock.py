"""Whether this machine's clock may be believed about the age of a file.

The store says when a file was written, and this machine says what time it is. Where this machine's clock is ahead, young
files look old. What the store writes now cannot be older than what this machine calls now, so one written object tells; it
is looked at before anything is deleted for its age. A clock that is behind deletes too little, which does no harm.

On a disk of this machine both clocks are one, so that nothing can be found out about it.
"""

from __future__ import annotations

from collections.abc import Callable

from delta_log.errors import ClockAhead, StorageError
from delta_log.runtime import Runtime
from delta_log.storage.storage import Storage

#: Differences between clocks that are taken for granted; retentions have the same margin.
CLOCK_MARGIN_MS = 5 * 60_000
_RUNTIME = Runtime()


def require_store_clock(
    storage: Storage,
    now_ms: int,
    directory: str,
    *,
    new_id: Callable[[], str] = _RUNTIME.new_id,
) -> None:
    """Write a small file, see when the store says that it was written, and delete it.

    :param now_ms: by this machine's clock, before this call.
    :param directory: where the file is written. In the log, a cleanup takes one that was left for what it is.
    :raises ClockAhead: see :func:`require_not_ahead`.
    """
    key = f"{directory}/.clock.{new_id()}.tmp".lstrip("/")
    storage.put(key, b"What time is it?")
    try:
        written = storage.head(key)
    finally:
        storage.delete([key])
    if written is None:
        raise StorageError(f"{key} was written a moment ago and is not there any more. Run again.", key)
    require_not_ahead(now_ms, written.modification_time_ms)


def require_not_ahead(now_ms: int, written_ms: int) -> None:
    """
    :param written_ms: when the store wrote something after ``now_ms``, by its own clock.
    :raises ClockAhead: this machine's clock is ahead.
    """
    if now_ms - written_ms > CLOCK_MARGIN_MS:
        raise ClockAhead(now_ms - written_ms)
