"""Column mapping: whether data files name their columns differently from the schema, and by what.

Protocol section "Column Mapping". The property ``delta.columnMapping.mode`` counts only where the protocol supports the
feature; annotations that a schema may carry without it mean nothing (see :func:`delta_log.table_config.schema.parse_schema`).
"""

from __future__ import annotations

from collections.abc import Mapping

from delta_log.errors import InvalidProperty
from delta_log.log.actions import Protocol
from delta_log.table_config.features import supports

MODE = "delta.columnMapping.mode"
MODES = ("none", "name", "id")


def mapping_mode(properties: Mapping[str, str | None], protocol: Protocol) -> str:
    """The mode: ``none``, ``name`` or ``id``."""
    if not supports(protocol, "columnMapping"):
        return "none"
    mode = (properties.get(MODE) or "none").lower()
    if mode not in MODES:
        raise InvalidProperty(MODE, mode, f"one of {', '.join(MODES)}", "name")
    return mode
