"""What a vacuum deletes besides the files of its plan: old quarantines, and temporary files of killed processes.

A storage knows which files are its own temporary files, and how old such a file must be
(:meth:`~delta_log.storage.storage.Storage.remove_leftovers`). A temporary file lies beside the file that was to be
written: in the log, in the directories of manifests and quarantines, and, under a hidden name, among the data. Directories
of data are searched only if the vacuum's listing found something hidden in them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

from msgspec import Struct

from delta_log.errors import DeltaLogError, StorageError, SymbolicLinkRefused
from delta_log.log.file_names import LOG_DIRECTORY
from delta_log.storage.storage import KeySpan, Storage
from delta_maintenance.listing.listing import Listing
from delta_maintenance.progress import ProgressReporter
from delta_maintenance.rewrite.task import MANIFEST_DIRECTORY
from delta_maintenance.vacuum.candidates import PlannedVacuum
from delta_maintenance.vacuum.presence_check import live_keys
from delta_maintenance.vacuum.quarantine.purge import Purge, purge
from delta_maintenance.vacuum.quarantine.quarantine import QUARANTINE_DIRECTORY


class Housekeeping(Struct, frozen=True):
    """What was deleted, or would be.

    :param purged: ``None`` if the options do not ask for a purge, or if it failed.
    :param num_leftovers: temporary files.
    :param warning: why old quarantines stay, if their purge failed after the vacuum was committed.
    """

    purged: Purge | None = None
    num_leftovers: int = 0
    warning: str | None = None

    @property
    def has_deleted(self) -> bool:
        return bool(self.num_leftovers or (self.purged is not None and self.purged.num_files))

    def planned(self) -> dict[str, Any]:
        """What the plan of a dry run says."""
        found: dict[str, Any] = (
            {"numTemporaryFilesToDelete": self.num_leftovers} if self.num_leftovers else {}
        )
        if self.purged is not None:
            found |= {
                "numQuarantinedFilesToDelete": self.purged.num_files,
                "sizeOfQuarantinedDataToDelete": self.purged.size_bytes,
            }
        return found | self.facts()

    def facts(self) -> dict[str, Any]:
        return self.purged.facts() if self.purged is not None else {}

    def metrics(self) -> dict[str, int]:
        found = {"numDeletedTemporaryFiles": self.num_leftovers} if self.num_leftovers else {}
        purged = self.purged
        if purged is not None:
            found |= {"numPurgedFiles": purged.num_files, "sizeOfPurgedData": purged.size_bytes}
            found |= {"numNeededFilesInQuarantine": purged.num_needed} if purged.num_needed else {}
            found |= {"numBrokenQuarantines": len(purged.broken)} if purged.broken else {}
        return found


def keep_house(
    storage: Storage,
    planned: PlannedVacuum,
    progress: ProgressReporter,
    *,
    dry_run: bool,
    is_committed: bool = False,
) -> Housekeeping:
    """Delete quarantines that are older than the options say, and old temporary files.

    :param is_committed: the log says that the vacuum is done. A failed purge is then a warning and no error.
    :raises DeltaLogError: the purge failed, and the vacuum has committed nothing.
    """
    basis = planned.basis
    hours = basis.options.purge_quarantine_hours
    purged = warning = None
    try:
        if hours is not None:
            protected = live_keys(basis.snapshot.refreshed(), storage.uri)
            purged = purge(storage, hours, basis.now_ms, protected, progress, dry_run=dry_run)
    except (DeltaLogError, OSError) as error:
        if not is_committed:
            raise
        warning = f"old quarantines were not deleted: {error}"
        progress.message(warning)
    num_leftovers = remove_leftovers(storage, basis.listing, basis.now_ms, progress, dry_run=dry_run)
    return Housekeeping(purged, num_leftovers, warning)


#: Each run has its own subdirectory in these.
_DIRECTORIES_BY_RUN = (MANIFEST_DIRECTORY, QUARANTINE_DIRECTORY)


def remove_leftovers(
    storage: Storage, listing: Listing, now_ms: int, progress: ProgressReporter, *, dry_run: bool
) -> int:
    """Delete old temporary files, and return their number. If the store fails, the next run deletes them."""
    try:
        found = storage.remove_leftovers(_searched_directories(storage, listing), now_ms, dry_run=dry_run)
    except StorageError as error:
        progress.message(f"temporary files are left for another run: {error}")
        return 0
    if found:
        done = "would remove" if dry_run else "removed"
        progress.message(f"{done} {len(found):,} temporary files of killed processes, for example {found[0]}")
    return len(found)


def _searched_directories(storage: Storage, listing: Listing) -> Iterator[str]:
    yield from ("", LOG_DIRECTORY)
    if storage.has_directories:
        for directory in _DIRECTORIES_BY_RUN:
            yield directory
            yield from _directories_in(storage, directory)
        yield from sorted(listing.untouched - {""})


def _directories_in(storage: Storage, directory: str) -> list[str]:
    found: list[str] = []

    def note(directories: Sequence[str]) -> tuple[()]:
        found.extend(directories)
        return ()

    with suppress(SymbolicLinkRefused):
        for _ in storage.list_part(KeySpan(f"{directory}/"), note):
            pass
    return found
