"""Temporary files that killed processes left in a table, and where a vacuum looks for them.

A storage knows which files are its own temporary ones and when they have served
(:meth:`~delta_log.storage.storage.Storage.remove_leftovers`). They lie beside what was to be written: in the log, in the directories of
manifests and quarantines, and, with hidden names, among the data. Only those directories of data are looked into in which the
vacuum's listing met something hidden.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress

from delta_log.errors import StorageError, SymbolicLinkRefused
from delta_log.log.file_names import LOG_DIRECTORY
from delta_log.storage.storage import KeySpan, Storage
from delta_maintenance.listing.listing import Listing
from delta_maintenance.progress import ProgressReporter
from delta_maintenance.rewrite.bin import MANIFEST_DIRECTORY
from delta_maintenance.vacuum.quarantine import QUARANTINE_DIRECTORY

#: Each run has a directory of its own in these.
_OF_RUNS = (MANIFEST_DIRECTORY, QUARANTINE_DIRECTORY)


def remove_leftovers(
    storage: Storage, listing: Listing, now_ms: int, progress: ProgressReporter, *, dry_run: bool
) -> int:
    """How many there were. What cannot be tidied up is no failure of a vacuum."""
    try:
        found = storage.remove_leftovers(_places(storage, listing), now_ms, dry_run=dry_run)
    except StorageError as error:
        progress.message(f"temporary files are left for another run: {error}")
        return 0
    if found:
        done = "would remove" if dry_run else "removed"
        progress.message(f"{done} {len(found):,} temporary files of killed processes, for example {found[0]}")
    return len(found)


def _places(storage: Storage, listing: Listing) -> Iterator[str]:
    yield from ("", LOG_DIRECTORY)
    if storage.has_directories:
        for directory in _OF_RUNS:
            yield directory
            yield from _directories_in(storage, directory)
        yield from sorted(listing.untouched - {""})


def _directories_in(storage: Storage, directory: str) -> list[str]:
    met: list[str] = []

    def told(directories: Sequence[str]) -> tuple[()]:
        met.extend(directories)
        return ()

    with suppress(SymbolicLinkRefused):
        for _ in storage.list_part(KeySpan(f"{directory}/"), told):
            pass
    return met
