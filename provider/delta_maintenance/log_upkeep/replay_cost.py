"""Measures what a reader of a version replays, for the planners of checkpoints and log compactions."""

from __future__ import annotations

from delta_log.log.checkpoint_reader import CheckpointReader, UnreadableCheckpoint
from delta_log.log.log_segment import Checkpoint, LogSegment, find_log_segment
from delta_log.snapshot.snapshot import Snapshot
from delta_log.storage.storage import Storage
from delta_maintenance.log_upkeep.plan.checkpoint import ReplayCost
from delta_maintenance.log_upkeep.plan.log_compaction import LogPiece


def replay_cost(
    storage: Storage, snapshot: Snapshot, segment: LogSegment | None = None
) -> tuple[ReplayCost, tuple[LogPiece, ...]]:
    """The cost of the log's tail as a whole, and its files one by one.

    :param segment: the files of the snapshot's version, if the caller has just listed the log.
    """
    segment = segment or find_log_segment(storage, snapshot.version)
    checkpoint = segment.checkpoint
    pieces = tuple(LogPiece(file.version, file.end, file.info.size) for file in segment.tail)
    tail = ReplayCost(
        snapshot.version,
        snapshot.checkpoint_version,
        snapshot.commits_since_checkpoint,
        snapshot.bytes_since_checkpoint,
        0 if checkpoint is None else _size_bytes(storage, checkpoint),
    )
    return tail, pieces


def _size_bytes(storage: Storage, checkpoint: Checkpoint) -> int:
    top_bytes = sum(file.info.size for file in checkpoint.files)
    if not checkpoint.files[0].key.endswith(".json"):
        return top_bytes
    try:
        sidecars = CheckpointReader(storage, checkpoint).other.sidecars
    except UnreadableCheckpoint:
        return top_bytes  # the snapshot uses another checkpoint; an estimate is enough here
    return top_bytes + sum(sidecar.sizeInBytes for sidecar in sidecars)
