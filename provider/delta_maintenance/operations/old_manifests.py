"""Manifests of runs that nobody will go on with: they serve for thirty days, and then the next run on the table removes them.

A run that fails for good leaves what its bins would have committed; without the manifests VACUUM takes the files for what
they are, nobody's. It is a matter of tidiness: whether a manifest may still be used is decided by what it says, never by
its age.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from delta_log.object_tree import KeySpan
from delta_maintenance.rewrite.bin import MANIFEST_DIRECTORY

if TYPE_CHECKING:
    from delta_log.table import Table

MANIFEST_DAYS = 30
_DAY_MS = 24 * 60 * 60 * 1000
#: Of a run and a bin; other things lie in that directory, too.
_MANIFEST = re.compile(rf"{MANIFEST_DIRECTORY}/.+/[0-9a-f]{{32}}\.json")


def forget_old_manifests(table: Table, now_ms: int) -> int:
    """How many there were.

    :raises StorageError: the store failed.
    """
    storage = table.storage
    span = KeySpan(f"{MANIFEST_DIRECTORY}/", deep=True)
    names = [name for page in storage.list_part(span, lambda below: below) for name in page.names()]
    found = [name for name in names if _MANIFEST.fullmatch(name)]
    _, times_ms = storage.sizes_and_times(found)
    old = [
        name
        for name, time_ms in zip(found, times_ms, strict=True)
        if time_ms is not None and time_ms < now_ms - MANIFEST_DAYS * _DAY_MS
    ]
    storage.delete(old)
    for directory in {name.rpartition("/")[0] for name in old}:
        storage.remove_dir(directory)
    return len(old)
