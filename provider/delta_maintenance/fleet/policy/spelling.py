"""Writes values of a policy as a policy would."""

from __future__ import annotations

from typing import Any

from delta_maintenance.fleet.policy.calendar import FreezeDay, Window
from delta_maintenance.fleet.policy.quantities import ByteSize, Share
from delta_maintenance.units import format_bytes


def spelled(value: Any) -> str | None:
    """The text of a value; ``None`` for none."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Share):
        return f"{value * 100:g}%"
    if isinstance(value, ByteSize):
        return format_bytes(value).replace(" ", "").replace(".0", "")
    return value.text if isinstance(value, (FreezeDay, Window)) else str(value)
