"""Interval types of ANSI SQL: their spellings in a schema, and their texts in ``partitionValues``.

Protocol RFC "Interval Types" (delta-io/delta#7077), which no table feature gates. There are two types, each with narrowed spellings:

==========================  ===============  ==================================================================
type                        values in files  spellings
==========================  ===============  ==================================================================
``interval year to month``  int32, months    ``interval year``, ``interval month``
``interval day to second``  int64,           ``interval`` with ``day``, ``hour``, ``minute`` or ``second``, or a
                            microseconds     range of these from the longer to the shorter
==========================  ===============  ==================================================================

Files hold the plain integers, without a logical type. There are no bounds, and a predicate skips nothing by such a column. Spellings in
another case, or of two families, are no types.
"""

from __future__ import annotations

import re
from decimal import Decimal, InvalidOperation
from typing import NamedTuple

_MONTHS = {"year": 12, "month": 1}
_MICROSECONDS = {"day": 86_400_000_000, "hour": 3_600_000_000, "minute": 60_000_000, "second": 1_000_000}
_LITERAL = re.compile(
    r"INTERVAL\s+(?P<outer>[+-]?)\s*'(?P<sign>[+-]?)(?P<numbers>[0-9.:\- ]{1,60})'\s+"
    r"(?P<first>[A-Z]+)(?:\s+TO\s+(?P<last>[A-Z]+))?",
    re.IGNORECASE,
)


class IntervalType(NamedTuple):
    """One of the two types.

    :param bits: width of the integers in files.
    :param units: what the fields count in the unit of the files, from the longest.
    """

    bits: int
    units: dict[str, int]


YEAR_MONTH, DAY_TIME = IntervalType(32, _MONTHS), IntervalType(64, _MICROSECONDS)


def interval_type(spelling: str) -> IntervalType | None:
    """Return the type that a spelling names; ``None``: it names no interval."""
    match = re.fullmatch(r"interval ([a-z]+)(?: to ([a-z]+))?", spelling)
    for kind in (YEAR_MONTH, DAY_TIME):
        if match and _fields(kind, match[1], match[2]):
            return kind
    return None


def parse_interval(text: str, kind: IntervalType) -> int:
    """Return the months or microseconds of a literal such as ``INTERVAL '1-6' YEAR TO MONTH``.

    :raises ValueError: the text is no literal of that type.
    """
    match = _LITERAL.fullmatch(text)
    fields = match and _fields(kind, match["first"].lower(), match["last"] and match["last"].lower())
    if not (match and fields):
        raise ValueError("it is not a literal like INTERVAL '1-6' YEAR TO MONTH")
    numbers = re.split(r"[ :-]", match["numbers"])
    if len(numbers) != len(fields):
        raise ValueError(f"it has {len(numbers)} numbers for {len(fields)} fields")
    try:
        value = sum(
            Decimal(number) * kind.units[field] for number, field in zip(numbers, fields, strict=True)
        )
    except InvalidOperation:
        raise ValueError("its fields are not numbers") from None
    if value != int(value):
        raise ValueError("it is finer than the unit of its type")
    signed = int(value) * (-1 if (match["outer"] == "-") != (match["sign"] == "-") else 1)
    if not -(1 << kind.bits - 1) <= signed < 1 << kind.bits - 1:
        raise ValueError(f"it does not fit into {kind.bits} bits")
    return signed


def interval_literal(value: int, kind: IntervalType) -> str:
    """Return the text of a value in the canonical form; :func:`parse_interval` reads it."""
    sign, size = "-" if value < 0 else "", abs(value)
    if kind is YEAR_MONTH:
        return f"INTERVAL '{sign}{size // 12}-{size % 12}' YEAR TO MONTH"
    seconds, fraction = divmod(size, 1_000_000)
    clock = f"{seconds // 3600 % 24:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{fraction:06}"
    return f"INTERVAL '{sign}{seconds // 86_400} {clock}' DAY TO SECOND"


def _fields(kind: IntervalType, first: str, last: str | None) -> list[str]:
    """Return the fields from the first to the last; empty: the type has no such range."""
    names = list(kind.units)
    if first not in names or (last is not None and last not in names[names.index(first) + 1 :]):
        return []
    return names[names.index(first) : names.index(last or first) + 1]
