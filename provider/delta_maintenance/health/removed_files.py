"""Estimates what VACUUM would delete, from the log and a few looks at the store. The table's directory is not listed.

A tombstone outlives its file: a VACUUM deletes the file, and the log names it until a later checkpoint. Every VACUUM deletes
what was removed before its cutoff, so the oldest removed files are gone and the newest are there. A binary search by the
time of removal finds the place in between, with as many looks as the number of files has bits.

Files that the log never named, or does not name any more, are not found: only a VACUUM lists the directory.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from delta_log.errors import AccessDenied
from delta_log.log.data_path import are_external
from delta_log.snapshot.snapshot import Snapshot
from delta_log.storage.storage import Storage
from delta_maintenance.health.facts import FileTotal, RemovedFiles
from delta_maintenance.listing.hidden_names import HiddenNames
from delta_maintenance.vacuum.plan.protected_files import MENTION_SCHEMA, NO_KEYS, protected_files


def removed_files(
    storage: Storage, snapshot: Snapshot, cutoff_ms: int, of_kept_versions: pa.ChunkedArray = NO_KEYS
) -> RemovedFiles:
    """Find out what was removed, and how much of it VACUUM would delete at this moment.

    :param cutoff_ms: cutoff of such a VACUUM.
    :param of_kept_versions: files of the versions that it keeps besides, each key once.
    :raises CorruptLog: the log states an impossible path.
    """
    tombstones = snapshot.tombstones(["key", "size"])
    if not tombstones.num_rows:
        return RemovedFiles(FileTotal(), FileTotal(), FileTotal(), 0, cutoff_ms)
    no_mentions = MENTION_SCHEMA.empty_table()
    protected = protected_files(snapshot, no_mentions, cutoff_ms, storage.uri, of_kept_versions)
    expired = protected.expired.filter(pc.invert(pc.is_in(protected.expired.column("key"), protected.keys)))
    expired = _deletable(expired, snapshot)
    held = protected.removed.filter(pc.invert(pc.is_in(protected.removed, protected.live)))
    sizes = tombstones.group_by("key").aggregate([("size", "max")])
    boundary, looks = _boundary(storage, expired.column("key").to_pylist(), cutoff_ms)
    return RemovedFiles(
        FileTotal(tombstones.num_rows, _total(tombstones.column("size"))),
        _total_of(expired.column("key").slice(0, boundary), sizes),
        _total_of(held, sizes),
        looks,
        cutoff_ms,
    )


def _deletable(expired: pa.Table, snapshot: Snapshot) -> pa.Table:
    """The removed files that VACUUM may delete at all, the newest removal first.

    A removal without a time is left out: only the time of its commit tells whether it has expired.
    """
    expired = expired.filter(pc.greater(expired.column("time_ms"), 0))
    expired = expired.filter(pc.invert(are_external(expired.column("key"))))
    hidden = HiddenNames.of(snapshot)
    masks = [hidden.mask(chunk) for chunk in expired.column("key").chunks]
    expired = expired.filter(pc.invert(pa.chunked_array(masks, pa.bool_())))
    return expired.sort_by([("time_ms", "descending"), ("key", "ascending")])


def _boundary(storage: Storage, keys: list[str], cutoff_ms: int) -> tuple[int, int | None]:
    """How many of the first files are there, and how many looks that took; no number of looks where they are denied."""
    looks = 0

    def is_there(key: str) -> bool:
        nonlocal looks
        looks += 1
        _, (time_ms,) = storage.sizes_and_times([key])
        return time_ms is not None and time_ms < cutoff_ms

    low, high = 0, len(keys)
    try:
        # The newest removal decides alone whether there is anything to delete.
        if not keys or not is_there(keys[0]):
            return 0, looks
        low = 1
        while low < high:
            middle = (low + high) // 2
            low, high = (middle + 1, high) if is_there(keys[middle]) else (low, middle)
    except AccessDenied:
        return len(keys), None
    return low, looks


def _total_of(keys: pa.ChunkedArray, sizes: pa.Table) -> FileTotal:
    rows = pc.index_in(keys, value_set=sizes.column("key"))
    return FileTotal(len(keys), _total(sizes.column("size_max").take(rows.drop_null())))


def _total(sizes: pa.ChunkedArray) -> int:
    """The sum of some sizes, of which a log may state any."""
    known = sizes.drop_null().to_numpy()
    return int(np.sum(known, dtype=object)) if len(known) and known.max() > 1 << 40 else int(known.sum())
