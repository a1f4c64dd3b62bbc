"""Listings by parts in a test: every part as another process would list it, or on a real Spark."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from delta_log.errors import DeltaLogError
from delta_log.runtime import Runtime
from delta_log.snapshot.snapshot import Snapshot
from delta_log.storage.opening import open_storage
from delta_log.storage.storage import Storage
from delta_maintenance.listing.distributed import DistributedListing
from delta_maintenance.listing.part import ListingPart, list_part
from delta_maintenance.listing.sorted_keys import SortedKeys
from delta_maintenance.progress import SilentProgress
from delta_maintenance.vacuum.candidates import PlannedVacuum, find_candidates
from delta_maintenance.vacuum.options import VacuumOptions


def listing_in_parts(storage: Storage, parallelism: int = 2, split_keys: int = 50_000) -> DistributedListing:
    """Parts go through their wire form, and each knows nothing of the others."""

    def run(parts: Sequence[ListingPart], keys: Path) -> Iterator[pa.RecordBatch]:
        for part in reversed(parts):
            yield from list_part(storage, ListingPart.from_json(part.to_json()), SortedKeys(keys))

    return DistributedListing(storage, run, parallelism, Runtime().new_id, split_keys)


def told(found: PlannedVacuum) -> Mapping[str, Any]:
    """Everything that a plan says, and what of its listing may matter to anybody."""
    listing = found.basis.listing
    return {
        **found.plan.to_dict(),
        "lines": b"".join(found.plan.lines()),
        "directories": (listing.directories, listing.counts, listing.untouched, listing.not_entered),
        "others": (listing.others, listing.other_tables),
    }


def plan_or_refusal(
    storage: Storage, snapshot: Snapshot, now_ms: int, lister: DistributedListing | None, **options: Any
) -> PlannedVacuum | str:
    """A plan, or why there is none."""
    wanted = VacuumOptions(retention_check=False, **options)
    try:
        return find_candidates(storage, open_storage, snapshot, wanted, now_ms, SilentProgress(), lister)
    except DeltaLogError as error:
        return str(error)
