"""Units of time and size, and how people read them. Standard library only."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def format_time(time_ms: int, form: str) -> str:
    """Format a moment in UTC; years before 1 and after 9999, which `datetime` does not hold, are named as such."""
    try:
        return (_EPOCH + timedelta(milliseconds=time_ms)).strftime(form)
    except OverflowError:
        return "before year 1" if time_ms < 0 else "after year 9999"


def format_bytes(count: float) -> str:
    """``1536`` as ``1.5 KiB``."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(count) < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def format_hours(duration_ms: int) -> str:
    """``5400000`` as ``1.5 hours``."""
    return f"{duration_ms / HOUR_MS:g} hours"
