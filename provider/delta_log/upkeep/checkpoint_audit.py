"""A checkpoint read to its last row, and compared with the log that it stands for.

Before the commits below a checkpoint are deleted it is the only witness of its version, so this is the last moment at
which anybody can tell whether it lost something. It is compared with a replay that starts from commit 0 or from an
older checkpoint, where the log still has one of them, and with the version's checksum, where there is one. Expired
transactions may be missing in it, and tombstones are not compared: each writer has a clock of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import pyarrow as pa

from delta_log.arrow.row_hash import RowHash
from delta_log.checkpoint.state import ADD_COLUMNS, REMOVE_COLUMNS, CheckpointState, row_hash_of
from delta_log.errors import CorruptLog, TableError, UnsupportedFeature, VersionNotFound
from delta_log.log.checkpoint_reader import CheckpointReader, OtherActions, UnreadableCheckpoint
from delta_log.log.data_path import decode_paths
from delta_log.log.file_names import checksum_key
from delta_log.log.log_segment import Checkpoint, LogListing, LogSegment, segment_of
from delta_log.snapshot.counts import Counts
from delta_log.snapshot.snapshot import Snapshot
from delta_log.snapshot.version_checksum import disagreements, read_version_checksum
from delta_log.storage.storage import Storage

#: What tells one live file from another; in everything else writers may lawfully differ.
IDENTITY = ("key", "size", "deletion_vector")
#: What a checkpoint was compared with: every commit since version 0; an older checkpoint and the commits after it; the
#: version's checksum, which tells counts; or nothing, since nothing else is left.
Witness = Literal["commits", "checkpoint", "checksum", "none"]


class CheckpointAuditFailed(TableError):
    """A checkpoint lost something, or made it up, and what could show it is about to be deleted.

    :ivar key: of its first file; ``differences`` names the actions that are not the same.
    """

    def __init__(self, key: str, differences: tuple[str, ...], witness: str) -> None:
        super().__init__(
            f"The checkpoint {key} is not what the log says of its version ({', '.join(differences)}; told by {witness}). "
            "Nothing was deleted, since the older part of the log is the evidence. Find out which is right; if it is "
            "the log, remove the checkpoint and have a new one written."
        )
        self.key, self.differences = key, differences


@dataclass(frozen=True, slots=True)
class CheckpointContent:
    """What a whole checkpoint says.

    :ivar live: of its live files, by :data:`IDENTITY`.
    """

    other: OtherActions
    counts: Counts = field(default_factory=Counts)
    live: RowHash = field(default_factory=RowHash)


def read_whole(storage: Storage, checkpoint: Checkpoint) -> CheckpointContent:
    """Every row of every file of it, in every column, streamed.

    :raises UnreadableCheckpoint: some of it cannot be read, or there is no protocol or metadata in it.
    """
    reader = CheckpointReader(storage, checkpoint)
    other, keys = reader.other, tuple(file.key for file in checkpoint.files)
    if other.protocol is None or other.metadata is None:
        raise UnreadableCheckpoint(keys[0], "it holds no protocol or no metadata", keys)
    counts, live = Counts(), RowHash()
    for batch in reader.batches("add", ADD_COLUMNS):
        counts = counts.plus(Counts.of(batch))
        arrays = [decode_paths(batch.column("path"), storage.uri), *map(batch.column, IDENTITY[1:])]
        live = live.plus(RowHash.of(pa.record_batch(arrays, list(IDENTITY)), ordered_maps=False))
    for _ in reader.batches("remove", REMOVE_COLUMNS):
        pass
    return CheckpointContent(other, counts, live)


def audit(
    storage: Storage, checkpoint: Checkpoint, content: CheckpointContent, listing: LogListing, now_ms: int
) -> Witness:
    """Compare a checkpoint with all that else is left of its version.

    :param listing: of the whole log.
    :raises CheckpointAuditFailed: it is not what the log says.
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
        return witness  # what it would be compared with is broken, and no version below can be read any more
    base = older.checkpoint_version
    if base is not None and base >= checkpoint.version:
        return witness  # an older checkpoint proved unreadable on the way, and this very one took its place
    if wrong:
        raise CheckpointAuditFailed(
            key, tuple(wrong), f"the commits since {'version 0' if base is None else base}"
        )
    return "commits" if base is None else "checkpoint"


def _stated(
    storage: Storage, checkpoint: Checkpoint, content: CheckpointContent, listing: LogListing
) -> Witness:
    """The version's checksum; a broken one states nothing."""
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
    """The checkpoint's version from what is older than it."""
    version = checkpoint.version
    unusable = frozenset(
        file.key for other in listing.checkpoints if other.version >= version for file in other.files
    )
    try:
        return Snapshot(storage, segment_of(listing, storage, version, unusable))
    except (CorruptLog, VersionNotFound, UnsupportedFeature):
        return None
