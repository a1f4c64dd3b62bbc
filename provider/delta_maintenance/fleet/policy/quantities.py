"""The quantities of a policy: numbers that are written with a unit.

Each is a number of its canonical unit, so that it counts as it is. ``of`` reads what a policy may write and is strict: another unit is a
:class:`ValueError` that says what is expected.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any, ClassVar

from delta_maintenance.options import Size

_MS = {"m": 60_000, "h": 3_600_000, "d": 86_400_000}
_NUMBER = r"(\d+(?:\.\d+)?)"


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


class Share(float):
    """A part of a whole: ``10%``, or a number from 0 to 1."""

    schema: ClassVar[dict[str, Any]] = {
        "anyOf": [
            {"type": "number", "minimum": 0, "maximum": 1},
            {"type": "string", "pattern": r"^\d+(\.\d+)?%$"},
        ]
    }

    @classmethod
    def of(cls, value: Any) -> Share:
        match = re.fullmatch(rf"{_NUMBER}\s*%", value.strip()) if isinstance(value, str) else None
        found = float(Decimal(match[1]) / 100) if match else value
        if not _is_number(found) or (match is None and not 0 <= found <= 1):
            raise ValueError(f"{value!r} is not a share such as 10%, or a number from 0 to 1")
        return cls(found)


class ByteSize(int):
    """Bytes: ``512MiB``, ``5TiB``, or a whole number."""

    schema: ClassVar[dict[str, Any]] = {
        "anyOf": [
            {"type": "integer", "minimum": 1},
            {"type": "string", "pattern": r"^\d+(\.\d+)?\s*([KMGT](i?B)?|B)$"},
        ]
    }

    @classmethod
    def of(cls, value: Any) -> ByteSize:
        try:
            return cls(Size().checked("size", Size().read(value)))
        except ValueError:
            raise ValueError(f"{value!r} is not a size such as 512MiB, 5TiB or 1048576") from None


class Period(int):
    """A length of time in milliseconds: ``15m``, ``24h``, ``30d``. A number without a unit is refused."""

    schema: ClassVar[dict[str, Any]] = {"type": "string", "pattern": r"^\d+(\.\d+)?\s*[mhd]$"}

    @classmethod
    def of(cls, value: Any) -> Period:
        match = re.fullmatch(rf"{_NUMBER}\s*([mhd])", value.strip()) if isinstance(value, str) else None
        if match is None:
            raise ValueError(f"{value!r} is not a time such as 15m, 24h or 30d; the unit is needed")
        return cls(Decimal(match[1]) * _MS[match[2]])

    def __str__(self) -> str:
        unit = next(unit for unit in ("d", "h", "m") if unit == "m" or (self and self % _MS[unit] == 0))
        return f"{int(self) / _MS[unit]:g}{unit}"


class Number(int):
    """A count: ``2M``, ``50k``, or a whole number."""

    schema: ClassVar[dict[str, Any]] = {
        "anyOf": [
            {"type": "integer", "minimum": 0},
            {"type": "string", "pattern": r"^\d+(\.\d+)?\s*[kM]?$"},
        ]
    }

    @classmethod
    def of(cls, value: Any) -> Number:
        match = re.fullmatch(rf"{_NUMBER}\s*([kM]?)", str(value).strip()) if _is_count(value) else None
        number = Decimal(match[1]) * {"": 1, "k": 1_000, "M": 1_000_000}[match[2]] if match else None
        if number is None or number != int(number):
            raise ValueError(f"{value!r} is not a number such as 100, 50k or 2M")
        return cls(number)


def _is_count(value: Any) -> bool:
    return isinstance(value, (int, str)) and not isinstance(value, bool)


class Reports(int):
    """A number of reports: ``3 reports``, or a whole number."""

    schema: ClassVar[dict[str, Any]] = {
        "anyOf": [
            {"type": "integer", "minimum": 1},
            {"type": "string", "pattern": r"^[1-9]\d* reports?$"},
        ]
    }

    @classmethod
    def of(cls, value: Any) -> Reports:
        match = re.fullmatch(r"(\d+)(?:\s+reports?)?", str(value).strip()) if _is_count(value) else None
        if match is None or not 1 <= int(match[1]) <= 1_000:
            raise ValueError(f"{value!r} is not a number of reports such as 3 reports, at least 1")
        return cls(match[1])


class TableLimit:
    """The most tables at once: a share of all tables such as ``10%``, or a number.

    :ivar share: the part; ``None``: a number was given.
    """

    schema: ClassVar[dict[str, Any]] = {
        "anyOf": [{"type": "integer", "minimum": 1}, {"type": "string", "pattern": r"^\d+(\.\d+)?%$"}]
    }

    def __init__(self, share: float | None, number: int) -> None:
        self.share, self.number = share, number

    @classmethod
    def of(cls, value: Any) -> TableLimit:
        if isinstance(value, int) and not isinstance(value, bool) and value >= 1:
            return cls(None, value)
        if isinstance(value, str) and value.strip().endswith("%"):
            return cls(Share.of(value), 0)
        raise ValueError(f"{value!r} is neither a share such as 10% nor a number of tables from 1 on")

    def among(self, num_tables: int) -> int:
        """The number of tables for a fleet of `num_tables`; at least one."""
        return self.number if self.share is None else max(1, int(self.share * num_tables))
