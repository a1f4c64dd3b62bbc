"""Parsers for the kinds of table properties (``metaData.configuration``): flags, sizes, numbers and durations.

A property that is not set gives the default. A property with another kind of value raises
:class:`~delta_log.errors.InvalidProperty`, which says how to set it right.

Three properties say how long a table keeps removed files, commits and transactions. Durations are in milliseconds.
:func:`readable` is for a caller that can do without one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TypeVar

from delta_log.errors import InvalidProperty

#: Larger numbers would not fit into 64 bits, or results of arithmetic with them would not.
_MAX_DIGITS = 18
_MAX_SIZE_BYTES = 1 << 50
_MAX_INTERVAL_MICROSECONDS = (1 << 63) - 1


def whole_number(text: str) -> int | None:
    """The number that a text of decimal digits stands for; ``None``: the text is no number, or has too many digits."""
    digits = text.strip()
    if not digits.isdecimal() or len(digits.lstrip("0")) > _MAX_DIGITS:
        return None
    return int(digits.lstrip("0") or "0")


def flag(properties: Mapping[str, str | None], name: str, default: bool = False) -> bool:
    """A property that is ``true`` or ``false``."""
    value = properties.get(name)
    if value is None:
        return default
    if value.lower() not in ("true", "false"):
        raise InvalidProperty(name, value, "true or false", "true" if default else "false")
    return value.lower() == "true"


def size_bytes(properties: Mapping[str, str | None], name: str) -> int | None:
    """A size such as ``1073741824`` or ``128mb``, in bytes; ``None`` where it is not set."""
    value = properties.get(name)
    if value is None:
        return None
    match = re.fullmatch(r"\s*(\d+)\s*([kmgt]?)(i?b)?\s*", value.lower())
    number = whole_number(match[1]) if match is not None else None
    size = number << {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}[match[2]] if match and number else 0
    if not 0 < size <= _MAX_SIZE_BYTES:
        raise InvalidProperty(name, value, "a size such as '128mb', of at most 1 PiB", "128mb")
    return size


def positive_number(properties: Mapping[str, str | None], name: str, default: int) -> int:
    """A whole number above zero."""
    value = properties.get(name)
    if value is None:
        return default
    number = whole_number(value)
    if not number:
        raise InvalidProperty(name, value, "a number above zero", str(default))
    return number


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
    numbers = [whole_number(word) for word in words[::2]]
    units = [_INTERVAL_MICROSECONDS.get(unit.removesuffix("s")) for unit in words[1::2]]
    total: int | None = None
    if words and len(numbers) == len(units) and None not in numbers and None not in units:
        total = sum((n or 0) * (u or 0) for n, u in zip(numbers, units, strict=True))
    # As in Spark, the duration in microseconds has to fit into 64 bits.
    if total is None or total > _MAX_INTERVAL_MICROSECONDS:
        raise InvalidProperty(
            name,
            value,
            "a duration in weeks, days, hours or less, of at most 292,000 years",
            "interval 30 days",
        )
    return total // 1000


DELETED_FILE_RETENTION = "delta.deletedFileRetentionDuration"
LOG_RETENTION = "delta.logRetentionDuration"
TRANSACTION_RETENTION = "delta.setTransactionRetentionDuration"

_Result = TypeVar("_Result")
_DAY_MS = 86_400_000
_DEFAULT_DELETED_FILE_RETENTION_MS = 7 * _DAY_MS
_DEFAULT_LOG_RETENTION_MS = 30 * _DAY_MS


def deleted_file_retention_ms(properties: Mapping[str, str]) -> int:
    """How long tombstones, and the files that they name, are kept."""
    configured = interval_ms(properties, DELETED_FILE_RETENTION)
    return _DEFAULT_DELETED_FILE_RETENTION_MS if configured is None else configured


def log_retention_ms(properties: Mapping[str, str]) -> int:
    """How long commits and checkpoints are kept."""
    configured = interval_ms(properties, LOG_RETENTION)
    return _DEFAULT_LOG_RETENTION_MS if configured is None else configured


def transaction_retention_ms(properties: Mapping[str, str]) -> int | None:
    """How long ``txn`` actions are kept; ``None``: for ever, which is the default."""
    return interval_ms(properties, TRANSACTION_RETENTION)


def readable(read: Callable[[Mapping[str, str]], _Result], properties: Mapping[str, str]) -> _Result | None:
    """Return what one of the functions above returns; ``None``: the property is of another kind."""
    try:
        return read(properties)
    except InvalidProperty:
        return None
