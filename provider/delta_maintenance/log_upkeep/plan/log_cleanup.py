"""Plans a log cleanup: which files of the log no reader in retention needs. Pure.

Protocol section "Metadata Cleanup". The *anchor* is the newest complete and readable checkpoint at or before the newest
version that is older than the log's retention. The anchor, its commit and everything after it stay, so every version from
the anchor on can be reconstructed. Files below the anchor are deleted, and compactions that start at or before it.

Leftovers (sidecars that no checkpoint names, parts of unfinished checkpoints, temporary files) are useless at any version.
They are deleted once they are older than yesterday's midnight, so that a writer at work loses nothing.

The files are deleted in steps, each complete before the next begins:

1. *entry points*, where a reader could begin or take a short cut: commit 0, checkpoints, compactions. While all commits
   are there, the log has no gap, in whatever order the store deletes these files;
2. files that no reader can reach any more: commits, version checksums, leftovers;
3. sidecars, after every checkpoint that named them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from msgspec import Struct

from delta_log.log.log_segment import Checkpoint
from delta_log.storage.storage import FileInfo
from delta_log.table_config.properties import (
    DELETED_FILE_RETENTION,
    LOG_RETENTION,
    deleted_file_retention_ms,
    flag,
    log_retention_ms,
    readable,
)
from delta_log.upkeep.log_inventory import LogInventory
from delta_maintenance.units import DAY_MS, HOUR_MS

CLEANUP_ENABLED = "delta.enableExpiredLogCleanup"

#: Why a file may be deleted, in the order of reports; :data:`delta_maintenance.text.plan.LOG_CLEANUP_REASONS` has the words.
REASONS = (
    "expired_commit",
    "expired_checkpoint",
    "expired_compaction",
    "expired_checksum",
    "staged_commit",
    "unfinished_checkpoint",
    "orphan_sidecar",
    "temporary_file",
    "hadoop_checksum",
)


class LogRetention(Struct, frozen=True):
    """
    :param retention_ms: how long the table's log keeps its commits.
    :param cutoff_ms: versions since this moment, a midnight in UTC, are kept.
    :param leftover_cutoff_ms: a leftover older than this moment belongs to no writer at work.
    :param now_ms: time by this machine's clock; the other moments follow from it.
    """

    retention_ms: int
    cutoff_ms: int
    leftover_cutoff_ms: int
    now_ms: int
    warnings: tuple[str, ...] = ()

    @classmethod
    def of(cls, properties: Mapping[str, str], now_ms: int) -> LogRetention:
        """
        :raises InvalidProperty: the retention of the log is no duration.
        """
        retention = log_retention_ms(properties)
        files = readable(deleted_file_retention_ms, properties)
        warnings: tuple[str, ...] = ()
        if files is not None and retention < files:
            shorter = (
                f"the log is kept for {retention / HOUR_MS:g} hours ({LOG_RETENTION}), and removed files for "
                f"{files / HOUR_MS:g} ({DELETED_FILE_RETENTION}): versions go before their files do"
            )
            warnings = (shorter,)
        midnight = now_ms - now_ms % DAY_MS
        oldest = now_ms - retention
        return cls(retention, oldest - oldest % DAY_MS, midnight - DAY_MS, now_ms, warnings)


def is_cleanup_enabled(properties: Mapping[str, str]) -> bool:
    return flag(properties, CLEANUP_ENABLED, default=True)


class ExpiredFile(Struct, frozen=True):
    """A file to be deleted, and why: one of :data:`REASONS`."""

    key: str
    size: int
    reason: str


class LogCleanupPlan(Struct, frozen=True):
    """
    :param version: the newest of the log; ``None``: the log was not looked at.
    :param expired_version: the newest that is older than the retention; ``None``: there is none.
    :param anchor: the first version that stays; ``None``: all stay.
    :param witness: what the anchor's checkpoint was compared with, see :mod:`delta_log.upkeep.checkpoint_audit`.
    :param entry_points: the first step, see the module; ``rest`` and ``sidecars`` are the second and the third.
    :param compatible_copy_of: the checkpoint that gets a copy under the classic name, for readers that know no other.
    :param reasons: why nothing is deleted, or less than one might expect; for people.
    """

    version: int | None
    retention: LogRetention
    expired_version: int | None = None
    anchor: Checkpoint | None = None
    witness: str | None = None
    entry_points: tuple[ExpiredFile, ...] = ()
    rest: tuple[ExpiredFile, ...] = ()
    sidecars: tuple[ExpiredFile, ...] = ()
    compatible_copy_of: Checkpoint | None = None
    reasons: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def files(self) -> tuple[ExpiredFile, ...]:
        return (*self.entry_points, *self.rest, *self.sidecars)

    @property
    def is_empty(self) -> bool:
        return not (self.entry_points or self.rest or self.sidecars)

    def to_dict(self) -> dict[str, Any]:
        """A summary as JSON values, small however large the plan is."""
        return {
            "readVersion": self.version,
            "retentionMs": self.retention.retention_ms,
            "cutoffMs": self.retention.cutoff_ms,
            "expiredVersion": self.expired_version,
            "anchorVersion": None if self.anchor is None else self.anchor.version,
            "anchorComparedWith": self.witness,
            "compatibleCheckpointVersion": None
            if self.compatible_copy_of is None
            else self.compatible_copy_of.version,
            "numFilesToDelete": len(self.files),
            "sizeOfDataToDelete": sum(file.size for file in self.files),
            "kinds": by_reason(self.files),
            "reasons": list(self.reasons),
            "warnings": list(self.warnings),
        }


def by_reason(files: Collection[ExpiredFile]) -> dict[str, dict[str, int]]:
    """Files and bytes by :data:`REASONS`."""
    found: dict[str, dict[str, int]] = {}
    for file in files:
        counts = found.setdefault(file.reason, {"numFiles": 0, "numBytes": 0})
        counts["numFiles"] += 1
        counts["numBytes"] += file.size
    return {reason: found[reason] for reason in REASONS if reason in found}


def anchors(
    inventory: LogInventory, expired: int
) -> Iterator[tuple[Checkpoint, tuple[ExpiredFile, ...], tuple[ExpiredFile, ...]]]:
    """Yield the checkpoints that may become the anchor, the preferred one first, with the files of the first two steps.

    Which of them can be read is not known here.

    :param expired: the newest version that is older than the retention.
    """
    for checkpoint in reversed(inventory.listing.checkpoints):
        version = checkpoint.version
        if version <= expired:
            entry_points = tuple(_expired_entry_points(inventory, version))
            yield checkpoint, entry_points, tuple(_expired_rest(inventory, version))


def _expired_entry_points(inventory: LogInventory, anchor: int) -> Iterator[ExpiredFile]:
    """Yield the files of the first step below an anchor."""
    listing = inventory.listing
    if anchor > 0 and 0 in listing.commits:
        yield _expired(listing.commits[0].info, "expired_commit")
    for checkpoint in listing.checkpoints:
        if checkpoint.version < anchor:
            yield from (_expired(file.info, "expired_checkpoint") for file in checkpoint.files)
    for file in listing.compactions:
        if file.version <= anchor:
            yield _expired(file.info, "expired_compaction")


def _expired_rest(inventory: LogInventory, anchor: int) -> Iterator[ExpiredFile]:
    """Yield the files of the second step below an anchor, without leftovers."""
    for version, commit in sorted(inventory.listing.commits.items()):
        if 0 < version < anchor:
            yield _expired(commit.info, "expired_commit")
    for file in inventory.checksums:
        if file.version < anchor:
            yield _expired(file.info, "expired_checksum")
    for version, info in inventory.staged:
        if version < anchor:
            yield _expired(info, "staged_commit")


def expired_leftovers(
    inventory: LogInventory, gone: Collection[str], anchor: int | None, cutoff_ms: int
) -> Iterator[ExpiredFile]:
    """Yield leftovers, which no version needs.

    :param gone: keys of the other files to be deleted.
    """
    for file in inventory.unfinished:
        below = anchor is not None and file.version < anchor
        if below or file.info.modification_time_ms < cutoff_ms:
            yield _expired(file.info, "unfinished_checkpoint")
    for info in inventory.temporary:
        if info.modification_time_ms < cutoff_ms:
            yield _expired(info, "temporary_file")
    for key, info in inventory.hadoop_checksums:
        version = key.rpartition("/")[2][:20]
        below = anchor is not None and version.isdecimal() and int(version) < anchor
        absent = key not in inventory.keys and (below or info.modification_time_ms < cutoff_ms)
        if key in gone or absent:
            yield _expired(info, "hadoop_checksum")


def expired_sidecars(
    inventory: LogInventory, referenced: Collection[str], cutoff_ms: int
) -> Iterator[ExpiredFile]:
    """
    :param referenced: names of sidecars, by every checkpoint that stays.
    """
    for info in inventory.sidecars:
        if info.name not in referenced and info.modification_time_ms < cutoff_ms:
            yield _expired(info, "orphan_sidecar")


def _expired(info: FileInfo, reason: str) -> ExpiredFile:
    return ExpiredFile(info.key, info.size, reason)
