"""Manifests of runs that nobody will go on with: they serve for thirty days, and then the next run on the table removes them.

A run that fails for good leaves what its bins would have committed; without the manifests VACUUM takes the files for what
they are, nobody's. It is a matter of tidiness: whether a manifest may still be used is decided by what it says, never by
its age.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from delta_log.storage.storage import KeySpan
from delta_log.storage.store_clock import require_store_clock
from delta_maintenance.rewrite.bin import MANIFEST_DIRECTORY
from delta_maintenance.units import DAY_MS

if TYPE_CHECKING:
    from delta_log.table import Table

MANIFEST_DAYS = 30
#: A run's directory, and its manifests by their bins. Other things lie in the directory, too, and deeper ones are none of ours.
_MANIFEST = re.compile(rf"{MANIFEST_DIRECTORY}/(?!\.)[^/\x00-\x1f\x7f]+/[0-9a-f]{{32}}\.json")


def forget_old_manifests(table: Table, now_ms: int) -> int:
    """How many there were.

    :raises StorageError: the store failed.
    :raises ClockAhead: by the store's clock they may be younger; nothing was deleted.
    """
    storage = table.storage
    span = KeySpan(f"{MANIFEST_DIRECTORY}/", deep=True)
    names = [name for page in storage.list_part(span, lambda below: below) for name in page.names()]
    found = [name for name in names if _MANIFEST.fullmatch(name)]
    _, times_ms = storage.sizes_and_times(found)
    old = [
        name
        for name, time_ms in zip(found, times_ms, strict=True)
        if time_ms is not None and time_ms < now_ms - MANIFEST_DAYS * DAY_MS
    ]
    if old:
        require_store_clock(storage, now_ms, MANIFEST_DIRECTORY)
    storage.delete(old)
    for directory in {name.rpartition("/")[0] for name in old}:
        storage.remove_dir(directory)
    return len(old)
