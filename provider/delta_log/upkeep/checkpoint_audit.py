"""The audit of a checkpoint: every row is read and compared with the log, before older commits are deleted.

After that deletion the checkpoint is the only record of its version, so this is the last chance to find out that it lost
something. It is compared with a replay from commit 0 or from an older checkpoint, if the log still has one of them, and
with the version's checksum, if there is one. Expired transactions may be missing, and tombstones are not compared: each
writer expires them by its own clock.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from msgspec import Struct, field

from delta_log.arrow.row_hash import RowHash
from delta_log.checkpoint.state import (
    ADD_COLUMNS,
    IDENTITY,
    REMOVE_COLUMNS,
    CheckpointState,
    identities_of,
    row_hash_of,
)
from delta_log.errors import CorruptLog, TableError, UnsupportedFeature, VersionNotFound
from delta_log.log.checkpoint_reader import CheckpointReader, OtherActions, UnreadableCheckpoint
from delta_log.log.data_path import decode_path
from delta_log.log.file_names import checksum_key
from delta_log.log.log_segment import Checkpoint, LogListing, LogSegment, segment_of
from delta_log.snapshot.counts import Counts
from delta_log.snapshot.snapshot import Snapshot
from delta_log.snapshot.version_checksum import disagreements, read_version_checksum
from delta_log.storage.storage import Storage

#: What a checkpoint was compared with: all commits since version 0; an older checkpoint and the commits after it; the
#: version's checksum, which has counts only; or nothing, since the log has none of these any more.
Witness = Literal["commits", "checkpoint", "checksum", "none"]


class CheckpointAuditFailed(TableError):
    """A checkpoint differs from the log of its version, and the commits that show it were about to be deleted.

    :ivar key: the key of its first file.
    :ivar differences: the kinds of actions that differ.
    """

    at_fault = "the writer of the checkpoint"

    def __init__(self, key: str, differences: tuple[str, ...], witness: str) -> None:
        super().__init__(
            f"The checkpoint {key} differs from the log of its version ({', '.join(differences)}; compared with "
            f"{witness}). Nothing was deleted, since the older part of the log is the evidence. Find out which is right; "
            "if it is the log, remove the checkpoint and write a new one."
        )
        self.key, self.differences = key, differences


class CheckpointContent(Struct, frozen=True):
    """The content of a whole checkpoint, as far as it is compared.

    :ivar live: the hash of its live files in :data:`~delta_log.checkpoint.state.IDENTITY`.
    """

    other: OtherActions
    counts: Counts = field(default_factory=Counts)
    live: RowHash = field(default_factory=RowHash)


def read_whole(storage: Storage, checkpoint: Checkpoint) -> CheckpointContent:
    """Read every row of every file of a checkpoint, in every column, streamed.

    :raises UnreadableCheckpoint: part of it cannot be read, or it has no protocol or metadata.
    """
    reader = CheckpointReader(storage, checkpoint)
    other, keys = reader.other, tuple(file.key for file in checkpoint.files)
    if other.protocol is None or other.metadata is None:
        raise UnreadableCheckpoint(keys[0], "it holds no protocol or no metadata", keys)
    counts, live = Counts(), RowHash()
    for batch in reader.batches("add", ADD_COLUMNS):
        counts = counts.plus(Counts.of(batch))
        live = live.plus(row_hash_of([identities_of(batch, storage.uri)]))
    for _ in reader.batches("remove", REMOVE_COLUMNS):
        pass
    return CheckpointContent(other, counts, live)


def audit(
    storage: Storage, checkpoint: Checkpoint, content: CheckpointContent, listing: LogListing, now_ms: int
) -> Witness:
    """Compare a checkpoint with everything else that the log has of its version.

    :param listing: a listing of the whole log.
    :raises CheckpointAuditFailed: the checkpoint differs from the log.
    """
    key = checkpoint.files[0].key
    witness = _stated(storage, checkpoint, content, listing)
    older = _replayed(storage, checkpoint, listing)
    if older is None:
        return witness
    try:
        wrong = CheckpointState.of(older, now_ms).differences(content.other)
        if row_hash_of(older.file_batches(IDENTITY)) != content.live:
            wrong.append("add")
    except CorruptLog:
        return witness  # the older part of the log is broken, so there is nothing to compare with
    base = older.checkpoint_version
    if base is not None and base >= checkpoint.version:
        return witness  # an older checkpoint proved unreadable, and the replay started from this one
    if wrong:
        raise CheckpointAuditFailed(
            key, tuple(wrong), f"the commits since {'version 0' if base is None else base}"
        )
    return "commits" if base is None else "checkpoint"


def _stated(
    storage: Storage, checkpoint: Checkpoint, content: CheckpointContent, listing: LogListing
) -> Witness:
    """Compare with the version's checksum; a broken one is ignored."""
    try:
        stated = read_version_checksum(storage, checkpoint.version)
    except CorruptLog:
        return "none"
    if stated is None:
        return "none"
    last_commit = listing.commits.get(checkpoint.version)
    alone = Snapshot(storage, LogSegment(checkpoint.version, checkpoint, (), (), last_commit))
    wrong = disagreements(stated, alone, content.counts)
    if wrong:
        raise CheckpointAuditFailed(checkpoint.files[0].key, wrong, checksum_key(checkpoint.version))
    return "checksum"


def _replayed(storage: Storage, checkpoint: Checkpoint, listing: LogListing) -> Snapshot | None:
    """The checkpoint's version, replayed from older files; ``None``: they are gone or cannot be read."""
    version = checkpoint.version
    unusable = frozenset(
        file.key for other in listing.checkpoints if other.version >= version for file in other.files
    )
    try:
        return Snapshot(storage, segment_of(listing, storage, version, unusable))
    except (CorruptLog, VersionNotFound, UnsupportedFeature):
        return None


def referenced_sidecars(storage: Storage, checkpoints: Iterable[Checkpoint]) -> frozenset[str]:
    """The names of the sidecars of some checkpoints.

    Protocol section "Sidecar Files". Several checkpoints may name one sidecar, so it may be deleted only if no remaining checkpoint
    names it. While one of them cannot be read, no sidecar may be deleted.

    :raises UnreadableCheckpoint: one of them cannot be read.
    """
    names = set()
    for checkpoint in checkpoints:
        for sidecar in CheckpointReader(storage, checkpoint).other.sidecars:
            name = sidecar.path.rpartition("/")[2]
            names |= {name, decode_path(name)}
    return frozenset(names)
