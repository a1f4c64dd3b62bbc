"""Deleting files that have waited in quarantine long enough."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct, field

from delta_log.log.file_names import LOG_DIRECTORY
from delta_log.storage.storage import ODD_KEY, Storage
from delta_log.storage.store_clock import require_store_clock
from delta_maintenance.progress import ProgressReporter
from delta_maintenance.units import HOUR_MS
from delta_maintenance.vacuum.quarantine.quarantine import Quarantine, list_quarantines

_SHOWN_BROKEN = 10


class Purge(Struct, frozen=True):
    """What a purge deleted, or would delete.

    :param num_needed: files that the table needs again; they stay in quarantine, to be restored.
    :param broken: text that says what is wrong with a quarantine that cannot be read, by its name. Such a quarantine is purged by
        the store's time of its manifest; without a manifest it stays.
    """

    num_files: int = 0
    size_bytes: int = 0
    num_needed: int = 0
    broken: Mapping[str, str] = field(default_factory=dict)

    def facts(self) -> dict[str, Any]:
        """What the report's plan says; it names at most :data:`_SHOWN_BROKEN` broken quarantines."""
        return {"brokenQuarantines": dict(list(self.broken.items())[:_SHOWN_BROKEN])} if self.broken else {}


def purge(
    storage: Storage,
    hours: float,
    now_ms: int,
    protected: pa.ChunkedArray,
    progress: ProgressReporter,
    *,
    dry_run: bool,
) -> Purge:
    """Delete the files of quarantines that are older than some hours.

    :param protected: keys of the latest version's live files, in case a writer has restored an older version.
    :raises ClockAhead: by the store's clock the quarantines may be younger; nothing was deleted.
    """
    known = list_quarantines(storage)
    due = [one for one in known if one.since_ms is not None and one.since_ms <= now_ms - hours * HOUR_MS]
    broken = {one.name: one.broken for one in known if one.broken}
    for name, why in broken.items():
        progress.message(f"the quarantine {name} is broken: {why}")
    if due and not dry_run:
        require_store_clock(storage, now_ms, LOG_DIRECTORY)
    num_files = size_bytes = num_needed = 0
    for quarantine in due:
        progress.message(
            f"deleting the quarantine {quarantine.name}" if not dry_run else "looking at quarantines"
        )
        found = _purge_one(quarantine, protected, dry_run=dry_run)
        num_files += found.num_files
        size_bytes += found.size_bytes
        num_needed += found.num_needed
        broken |= found.broken
    return Purge(num_files, size_bytes, num_needed, broken)


def _purge_one(quarantine: Quarantine, protected: pa.ChunkedArray, *, dry_run: bool) -> Purge:
    num_files = size_bytes = num_needed = num_odd = 0
    for keys, sizes in quarantine.files():
        # An object store can hold keys that were put there by hand and that our storages refuse to delete.
        plain = [(key, size) for key, size in zip(keys, sizes, strict=True) if not ODD_KEY.search(key)]
        num_odd += len(keys) - len(plain)
        names = pa.array([key for key, _ in plain], pa.string())
        needed = pc.is_in(names, value_set=protected).to_pylist()
        going = [pair for pair, is_needed in zip(plain, needed, strict=True) if not is_needed]
        num_needed += sum(needed)
        num_files += len(going)
        size_bytes += sum(size or 0 for _, size in going)
        if not dry_run:
            quarantine.storage.delete([quarantine.prefix + key for key, _ in going])
    if not (dry_run or num_odd or num_needed):
        quarantine.delete_record()
    odd = f"{num_odd:,} keys in it are not normalised; delete them by hand"
    return Purge(num_files, size_bytes, num_needed, {quarantine.name: odd} if num_odd else {})
