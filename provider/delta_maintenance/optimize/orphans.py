"""Files that a run has written and that nobody can commit any more.

A bin that lost its race leaves some, and so does one that an earlier try had finished for sources which have changed since.
No version names them, and VACUUM would find them a week later. They go at once where three things are certain:

1. Nobody learns of them any more: the bin's manifest is deleted before the table is looked at.
2. Whoever knows them cannot commit them: some source of the bin is not live as it was. A try that knows them rests on a
   version in which it was, and no rule of commits lets a rewrite remove what somebody has removed meanwhile; not even where
   a RESTORE brings it back. A try that begins later finds no manifest.
3. Nobody has committed them: neither a live file nor a tombstone names them.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from delta_log.snapshot.snapshot import Snapshot
from delta_log.storage.storage import Storage
from delta_maintenance.optimize.resume import identity_of, live_files
from delta_maintenance.rewrite.task import BinManifest


def remove_orphans(
    lost: Sequence[BinManifest], snapshot: Snapshot, storage: Storage, *, remap: bool = False
) -> list[str]:
    """Delete what is certainly nobody's; gives the keys.

    :param lost: bins that the run has not committed. Their manifests are gone.
    :param snapshot: of the table as it is now, read after that.
    :param remap: tries of this run may take over deletions, so that a source with other deletions is none that is gone.
    """
    if not lost:
        return []
    live = live_files(snapshot, lost)
    doomed = [
        output.key
        for manifest in lost
        if any(
            source.key not in live or (not remap and identity_of(live[source.key]) != identity_of(source))
            for source in manifest.sources
        )
        for output in manifest.outputs
        if output.key not in live
    ]
    keys = pa.array(doomed, pa.string())
    removed = snapshot.tombstones(("key",)).column("key")
    nobodys: list[str] = keys.filter(pc.invert(pc.is_in(keys, value_set=removed))).to_pylist()
    storage.delete(nobodys)
    return nobodys
