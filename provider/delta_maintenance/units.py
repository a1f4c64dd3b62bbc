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


def format_duration(seconds: float) -> str:
    """``38.14`` as ``38.1 s``, ``200`` as ``3 min 20 s``, ``7500`` as ``2 h 5 min``."""
    if seconds < 100:
        return f"{seconds:.0f} s" if seconds >= 10 or seconds == int(seconds) else f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60:,} h {minutes % 60} min"


def counted(count: int, noun: str) -> str:
    """``1 file``, ``5,000 files``."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
