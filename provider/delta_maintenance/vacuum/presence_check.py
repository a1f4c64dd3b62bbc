"""Checks that the store has all live files of a version."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from delta_log.snapshot.snapshot import Snapshot
from delta_log.storage.storage import Storage
from delta_maintenance.errors import LiveFilesMissing
from delta_maintenance.listing.distributed import DistributedListing
from delta_maintenance.listing.hidden_names import HiddenNames
from delta_maintenance.listing.listing import Listing, list_files, not_listed
from delta_maintenance.partitions.partition_scope import PartitionScope
from delta_maintenance.progress import ProgressReporter
from delta_maintenance.vacuum.plan.plan import VacuumPlan
from delta_maintenance.vacuum.plan.protected_files import vector_keys

#: Live files that are looked at where there is no listing.
_SAMPLE_FILES = 64


def live_keys(snapshot: Snapshot, table_uri: str) -> pa.ChunkedArray:
    """Keys of the live files below the root, and of their deletion vectors."""
    files = snapshot.files(["key", "deletion_vector"])
    vectors = vector_keys(files.column("deletion_vector"), table_uri)
    keys = pa.chunked_array([*files.column("key").chunks, *vectors.chunks], pa.string())
    return keys.filter(pc.invert(pc.or_(pc.starts_with(keys, "/"), pc.match_substring(keys, "://"))))


def sample(keys: pa.ChunkedArray) -> list[str]:
    """Select at most :data:`_SAMPLE_FILES` keys, evenly spread."""
    if not len(keys):
        return []
    step = -(-len(keys) // _SAMPLE_FILES)
    found: list[str] = keys.take(pa.array(range(0, len(keys), step), pa.int64())).to_pylist()
    return found


def missing_live_files(
    storage: Storage, snapshot: Snapshot, listing: Listing, hidden: HiddenNames
) -> list[str]:
    """Find live files below the root that are absent. Files that the listing does not show are looked up one by one."""
    live = live_keys(snapshot, storage.uri)
    unlisted = not_listed(live, listing).to_pylist()
    checked = [key for key in unlisted if not _was_left_out(key, listing, hidden)]
    return [key for key, info in zip(checked, storage.head_many(checked), strict=True) if info is None]


def _was_left_out(key: str, listing: Listing, hidden: HiddenNames) -> bool:
    """Whether a listing left a file out on purpose, since it is hidden or in a directory that was not entered."""
    if hidden.hides(key):
        return True
    directory = key.rpartition("/")[0]
    while directory:
        if directory in listing.not_entered:
            return True
        directory = directory.rpartition("/")[0]
    return False


def confirm_live_files(
    storage: Storage,
    snapshot: Snapshot,
    plan: VacuumPlan,
    progress: ProgressReporter,
    hidden: HiddenNames,
    distributed: DistributedListing | None = None,
) -> dict[str, Any]:
    """Check after a vacuum that no live file is gone.

    A full vacuum lists the same partitions once more. The other modes exist to avoid listings: they compare the plan with
    the log, and look at a sample of the live files.

    :param snapshot: snapshot of the latest version.
    :return: facts for the report.
    :raises LiveFilesMissing: a live file is absent.
    """
    live = live_keys(snapshot, storage.uri)
    if plan.mode == "full":
        progress.message("looking whether every live file is there")
        scope = PartitionScope.of(snapshot, plan.where) if plan.where is not None else None
        if distributed is None:
            listing = list_files(storage, hidden, scope, progress)
        else:
            listing = distributed.list_files(hidden, scope, live, progress, wants_files=False)
        missing = missing_live_files(storage, snapshot, listing, hidden)
    else:
        keys = plan.candidates.column("key")
        looked_up = keys.filter(pc.is_in(keys, value_set=live)).to_pylist() + sample(live)
        infos = storage.head_many(looked_up)
        missing = [key for key, info in zip(looked_up, infos, strict=True) if info is None]
    if missing:
        raise LiveFilesMissing(snapshot.version, missing)
    return {"liveFilesConfirmed": len(live), "confirmedBy": "listing" if plan.mode == "full" else "log"}
