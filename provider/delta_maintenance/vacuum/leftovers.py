"""Temporary files that killed processes left in a table, and the directories in which a vacuum looks for them.

A storage knows which files are its own temporary files, and how old such a file must be
(:meth:`~delta_log.storage.storage.Storage.remove_leftovers`). A temporary file lies beside the file that was to be
written: in the log, in the directories of manifests and quarantines, and, under a hidden name, among the data. Directories
of data are searched only if the vacuum's listing found something hidden in them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress

from delta_log.errors import StorageError, SymbolicLinkRefused
from delta_log.log.file_names import LOG_DIRECTORY
from delta_log.storage.storage import KeySpan, Storage
from delta_maintenance.listing.listing import Listing
from delta_maintenance.progress import ProgressReporter
from delta_maintenance.rewrite.task import MANIFEST_DIRECTORY
from delta_maintenance.vacuum.quarantine.quarantine import QUARANTINE_DIRECTORY

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
