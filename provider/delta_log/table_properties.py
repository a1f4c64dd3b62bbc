"""The properties of a table (``metaData.configuration``) that we obey, parsed once, each with its default."""

from __future__ import annotations

import re
from collections.abc import Mapping

from delta_log.errors import CorruptLog

_UNIT_MS = {
    "microsecond": 0.001,
    "millisecond": 1,
    "second": 1000,
    "minute": 60_000,
    "hour": 3_600_000,
    "day": 86_400_000,
    "week": 604_800_000,
}


def flag(properties: Mapping[str, str | None], name: str, default: bool = False) -> bool:
    """A property that is ``true`` or ``false``."""
    value = properties.get(name)
    if value is None:
        return default
    if value.lower() not in ("true", "false"):
        raise CorruptLog("metaData.configuration", f"{name} is {value!r}, not true or false")
    return value.lower() == "true"


def interval_ms(properties: Mapping[str, str | None], name: str, default_ms: int) -> int:
    """A duration such as ``interval 7 days``, in milliseconds."""
    value = properties.get(name)
    if value is None:
        return default_ms
    text = re.sub(r"^\s*interval\s+", "", value.strip().lower())
    parts = re.findall(r"(-?\d+)\s+([a-z]+?)s?(?=\s|$)", text)
    if not parts or any(unit not in _UNIT_MS for _, unit in parts):
        raise CorruptLog(
            "metaData.configuration", f"{name} is {value!r}, not a duration such as 'interval 7 days'"
        )
    return int(sum(int(amount) * _UNIT_MS[unit] for amount, unit in parts))


def size_bytes(properties: Mapping[str, str | None], name: str) -> int | None:
    """A size such as ``1073741824`` or ``128mb``, in bytes; ``None`` where it is not set."""
    value = properties.get(name)
    if value is None:
        return None
    match = re.fullmatch(r"\s*(\d+)\s*([kmgt]?)(i?b)?\s*", value.lower())
    if match is None or int(match[1]) == 0:
        raise CorruptLog("metaData.configuration", f"{name} is {value!r}, not a size such as '128mb'")
    return int(match[1]) << {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}[match[2]]
