"""Decides whether a table is due for a checkpoint: a pure function of how much of the log a reader replays.

A reader that opens a table reads the newest checkpoint and every commit after it: one request each, and JSON, which is read
many times slower than Parquet. A checkpoint is due

1. after as many commits as the table allows (``delta.checkpointInterval``);
2. when the commits are larger than :data:`MAX_TAIL_BYTES`;
3. when the commits take a reader longer than the checkpoint, so that opening the table takes more than twice as long as
   necessary.

Times are rough estimates for a reader on an object store.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct, to_builtins

#: Size of the commits after the newest checkpoint that costs every reader about a second.
MAX_TAIL_BYTES = 64 << 20
#: A reader does not notice less.
MIN_TAIL_MS = 250
#: A small request, several of which are under way together; a mebibyte of JSON; one of a checkpoint's Parquet.
_REQUEST_MS, _JSON_MS, _PARQUET_MS = 5, 20, 5


class ReplayCost(Struct, frozen=True):
    """What a reader of a version replays.

    :param checkpoint_version: version of the newest checkpoint; ``None``: there is none.
    :param commits: number of commits after it.
    :param size_bytes: size of those commits.
    :param checkpoint_bytes: size of all files of that checkpoint.
    """

    version: int
    checkpoint_version: int | None
    commits: int
    size_bytes: int
    checkpoint_bytes: int = 0

    @property
    def tail_ms(self) -> int:
        """Estimated time that a reader spends on the commits."""
        return self.commits * _REQUEST_MS + (self.size_bytes * _JSON_MS >> 20)

    @property
    def checkpoint_ms(self) -> int:
        """Estimated time that a reader spends on the checkpoint."""
        return (
            0
            if self.checkpoint_version is None
            else _REQUEST_MS + (self.checkpoint_bytes * _PARQUET_MS >> 20)
        )


class CheckpointPlan(Struct, frozen=True):
    """``reasons`` say why it is due, or why not; for people."""

    tail: ReplayCost
    interval: int
    due: bool
    reasons: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        costs = {"tailMs": self.tail.tail_ms, "checkpointMs": self.tail.checkpoint_ms}
        return {**to_builtins(self), "reasons": list(self.reasons), "readerCost": costs}


def plan_checkpoint(tail: ReplayCost, interval: int) -> CheckpointPlan:
    """Decide whether a checkpoint is due.

    :param interval: commits between two checkpoints.
    """
    reasons = []
    since = (
        "and no checkpoint yet"
        if tail.checkpoint_version is None
        else f"since the newest checkpoint (version {tail.checkpoint_version})"
    )
    if tail.commits >= interval:
        reasons.append(f"{tail.commits:,} commits {since}; {interval:,} are allowed")
    if tail.size_bytes >= MAX_TAIL_BYTES:
        mebibytes = tail.size_bytes >> 20
        reasons.append(f"{mebibytes:,} MiB of commits {since}; every reader parses them")
    if not reasons and tail.tail_ms >= max(MIN_TAIL_MS, tail.checkpoint_ms):
        reasons.append(
            f"{tail.commits:,} commits {since}; they cost a reader about {tail.tail_ms:,} ms, "
            f"and the checkpoint itself {tail.checkpoint_ms:,} ms"
        )
    if reasons:
        return CheckpointPlan(tail, interval, due=True, reasons=tuple(reasons))
    why_not = f"{tail.commits:,} of {interval:,} commits and {tail.size_bytes >> 20:,} MiB since the newest checkpoint"
    return CheckpointPlan(tail, interval, due=False, reasons=(f"{why_not} ({since})",))
