"""Deletes files that a run has written and that no try of it can commit any more.

Such files come from a bin that lost a conflict, and from a bin that an earlier try finished before its sources changed. No
version names them, and VACUUM would delete them a week later. They are deleted at once if three things are certain:

1. No later try learns of them: the bin's manifest is deleted before the table is looked at.
2. No try that knows them can commit them: a source of the bin has changed or is gone. Such a try rests on a version with
   the earlier source, and the conflict rules refuse a rewrite of a file that was removed meanwhile, even if a RESTORE
   brings the file back.
3. No try has committed them: neither a live file nor a tombstone names them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from delta_log.snapshot.snapshot import Snapshot
from delta_log.storage.storage import KeySpan, Storage
from delta_log.storage.store_clock import require_store_clock
from delta_maintenance.optimize.commit.resume import identity_of, live_files
from delta_maintenance.rewrite.task import MANIFEST_DIRECTORY, ROW_MAP_SUFFIX, BinManifest
from delta_maintenance.units import DAY_MS

if TYPE_CHECKING:
    from delta_log.table import Table


def remove_orphans(
    lost: Sequence[BinManifest], snapshot: Snapshot, storage: Storage, *, remap: bool = False
) -> list[str]:
    """Delete the orphans among the files of some bins; return their keys.

    :param lost: bins that the run has not committed. Their manifests are deleted already.
    :param snapshot: snapshot of the table, read after the manifests were deleted.
    :param remap: tries of this run may take over deletions, so a source with other deletions may still be committed.
    """
    if not lost:
        return []
    live = live_files(snapshot, lost)
    unlisted = [
        output.key
        for manifest in lost
        if any(
            source.key not in live or (not remap and identity_of(live[source.key]) != identity_of(source))
            for source in manifest.sources
        )
        for output in manifest.outputs
        if output.key not in live
    ]
    keys = pa.array(unlisted, pa.string())
    removed = snapshot.tombstones(("key",)).column("key")
    orphans: list[str] = keys.filter(pc.invert(pc.is_in(keys, value_set=removed))).to_pylist()
    storage.delete(orphans)
    return orphans


MANIFEST_DAYS = 30
#: A manifest or a row map, named by its bin, in the directory of its run. Other files, and deeper ones, are not ours.
_MANIFEST = re.compile(
    rf"{MANIFEST_DIRECTORY}/(?!\.)[^/\x00-\x1f\x7f]+/[0-9a-f]{{32}}(\.json|\.[0-9a-f]{{32}}{re.escape(ROW_MAP_SUFFIX)})"
)


def forget_old_manifests(table: Table, now_ms: int) -> int:
    """Delete manifests and row maps that are older than thirty days; return how many files there were.

    A run that fails for good leaves the files that its bins would have committed. VACUUM deletes those files once no manifest names
    them. The age of a manifest never decides whether it may be used; its content does.

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
