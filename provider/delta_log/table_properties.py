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
