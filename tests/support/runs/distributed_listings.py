"""Distributed listings in a test: this process lists the parts, as other processes would."""

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
    """Make a distributed listing whose parts pass through their JSON form, in reverse order."""

    def run(parts: Sequence[ListingPart], keys: Path) -> Iterator[pa.RecordBatch]:
        for part in reversed(parts):
            yield from list_part(storage, ListingPart.from_json(part.to_json()), SortedKeys(keys))

    return DistributedListing(storage, run, parallelism, Runtime().new_id, split_keys)


def described(planned: PlannedVacuum) -> Mapping[str, Any]:
    """Describe a plan and its listing in full, to compare two of them."""
    listing = planned.basis.listing
    return {
        **planned.plan.to_dict(),
        "lines": b"".join(planned.plan.lines()),
        "directories": (listing.directories, listing.counts, listing.untouched, listing.not_entered),
        "others": (listing.others, dict(listing.neighbours)),
    }


def plan_or_refusal(
    storage: Storage, snapshot: Snapshot, now_ms: int, distributed: DistributedListing | None, **options: Any
) -> PlannedVacuum | str:
    """Plan a vacuum, and return the plan or the message of the refusal."""
    wanted = VacuumOptions(retention_check=False, **options)
    try:
        return find_candidates(storage, open_storage, snapshot, wanted, now_ms, SilentProgress(), distributed)
    except DeltaLogError as error:
        return str(error)
