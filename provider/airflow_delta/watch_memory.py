"""What a watcher remembers of its tables in the state store of its asset: the keys, and as much of the values as others may read.

The watchers are in :mod:`airflow_delta.triggers`; the page *Delta tables* shows which tables they know. Standard library only.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import Any

#: Entries of the state store among which an asset's tables are divided. Never change it: places would be lost.
SHARDS = 64
#: What the keys of each kind of watcher begin with. Never change one: places would be lost.
VERSIONS, HEALTH, DELETED_ROWS = "delta_versions", "delta_health", "delta_deleted_rows"
#: By the name of a watcher's class, the prefix of its keys.
PREFIXES = {
    "DeltaTableVersionTrigger": VERSIONS,
    "DeltaTableHealthTrigger": HEALTH,
    "DeltaDeletionVectorRatioTrigger": DELETED_ROWS,
}


def shard_of(table: str) -> int:
    return zlib.crc32(table.encode()) % SHARDS


def shard_key(prefix: str, shard: int) -> str:
    """The key of an entry, which holds what is remembered of each table of a shard."""
    return f"{prefix}.{shard:02d}"


def version_of(remembered: Any) -> int | None:
    """The version that a watcher keeps as its place in the log of a table; ``None``: it has no place yet.

    Events that Airflow has not confirmed lie after it.

    :param remembered: value that the watcher keeps for one table. A watcher for versions keeps a list with the last version that it
        told and the last that it saw; the others keep the version with what passed its limit.
    """
    version = None
    if isinstance(remembered, list) and len(remembered) > 1:
        version = remembered[1]
    elif isinstance(remembered, Mapping):
        version = remembered.get("version")
    return version if type(version) is int and version >= 0 else None
