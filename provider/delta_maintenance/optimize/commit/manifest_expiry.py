"""Deletes manifests of abandoned runs: a manifest older than thirty days is deleted by the next run on the table, and so is a row map.

A run that fails for good leaves the files that its bins would have committed. VACUUM deletes those files once no manifest
names them. The age of a manifest never decides whether it may be used; its content does.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from delta_log.storage.storage import KeySpan
from delta_log.storage.store_clock import require_store_clock
from delta_maintenance.rewrite.task import MANIFEST_DIRECTORY, ROW_MAP_SUFFIX
from delta_maintenance.units import DAY_MS

if TYPE_CHECKING:
    from delta_log.table import Table

MANIFEST_DAYS = 30
#: A manifest or a row map, named by its bin, in the directory of its run. Other files, and deeper ones, are not ours.
_MANIFEST = re.compile(
    rf"{MANIFEST_DIRECTORY}/(?!\.)[^/\x00-\x1f\x7f]+/[0-9a-f]{{32}}(\.json|\.[0-9a-f]{{32}}{re.escape(ROW_MAP_SUFFIX)})"
)


def forget_old_manifests(table: Table, now_ms: int) -> int:
    """Delete old manifests and row maps; return how many files there were.

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
