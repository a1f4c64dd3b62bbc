"""The properties of a table (``metaData.configuration``) that we obey, parsed once, each with its default."""

from __future__ import annotations

import re
from collections.abc import Mapping

from delta_log.errors import CorruptLog


def flag(properties: Mapping[str, str | None], name: str, default: bool = False) -> bool:
    """A property that is ``true`` or ``false``."""
    value = properties.get(name)
    if value is None:
        return default
    if value.lower() not in ("true", "false"):
        raise CorruptLog("metaData.configuration", f"{name} is {value!r}, not true or false")
    return value.lower() == "true"


def size_bytes(properties: Mapping[str, str | None], name: str) -> int | None:
    """A size such as ``1073741824`` or ``128mb``, in bytes; ``None`` where it is not set."""
    value = properties.get(name)
    if value is None:
        return None
    match = re.fullmatch(r"\s*(\d+)\s*([kmgt]?)(i?b)?\s*", value.lower())
    if match is None or int(match[1]) == 0:
        raise CorruptLog("metaData.configuration", f"{name} is {value!r}, not a size such as '128mb'")
    return int(match[1]) << {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}[match[2]]


def positive_number(properties: Mapping[str, str | None], name: str, default: int) -> int:
    """A whole number above zero."""
    value = properties.get(name)
    if value is None:
        return default
    if not value.strip().isdecimal() or int(value) == 0:
        raise CorruptLog("metaData.configuration", f"{name} is {value!r}, not a number above zero")
    return int(value)


_INTERVAL_MICROSECONDS = {
    "week": 604_800_000_000,
    "day": 86_400_000_000,
    "hour": 3_600_000_000,
    "minute": 60_000_000,
    "second": 1_000_000,
    "millisecond": 1_000,
    "microsecond": 1,
}


def interval_ms(properties: Mapping[str, str | None], name: str) -> int | None:
    """A duration such as ``interval 7 days`` or ``1 week 12 hours``, in milliseconds; ``None`` where it is not set.

    Months are refused: they have no fixed length.
    """
    value = properties.get(name)
    if value is None:
        return None
    words = value.lower().split()
    if words[:1] == ["interval"]:
        words = words[1:]
    numbers, units = words[::2], [unit.removesuffix("s") for unit in words[1::2]]
    if (
        not words
        or len(numbers) != len(units)
        or not all(n.isdecimal() for n in numbers)
        or not all(u in _INTERVAL_MICROSECONDS for u in units)
    ):
        raise CorruptLog(
            "metaData.configuration", f"{name} is {value!r}, not a duration such as 'interval 7 days'"
        )
    return sum(int(n) * _INTERVAL_MICROSECONDS[u] for n, u in zip(numbers, units, strict=True)) // 1000
