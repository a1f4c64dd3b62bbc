"""Whether a table is due for a checkpoint, and why: a pure function of how much of its log a reader has to replay.

Opening a table costs the newest checkpoint and every commit after it: a request for each, and its bytes as JSON, which is
read many times slower than Parquet. So two things make a checkpoint due: as many commits as the table allows itself
(``delta.checkpointInterval``), and commits that weigh so much that they cost more than the interval foresaw.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

#: Of JSON after the newest checkpoint: a second or so of every reader's time.
MAX_TAIL_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class LogTail:
    """What a reader of a version replays.

    :param checkpoint_version: of the newest checkpoint; ``None``: there is none.
    :param commits: after it.
    :param size_bytes: of those commits.
    """

    version: int
    checkpoint_version: int | None
    commits: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class CheckpointPlan:
    """``reasons`` say why it is due, or why not; for people."""

    tail: LogTail
    interval: int
    due: bool
    reasons: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {**asdict(self), "reasons": list(self.reasons)}


def plan_checkpoint(tail: LogTail, interval: int) -> CheckpointPlan:
    """Is a checkpoint due?

    :param interval: commits between two checkpoints.
    """
    reasons = []
    since = (
        "there is none" if tail.checkpoint_version is None else f"that of version {tail.checkpoint_version}"
    )
    if tail.commits >= interval:
        reasons.append(
            f"{tail.commits:,} commits since the newest checkpoint ({since}), and {interval:,} are allowed"
        )
    if tail.size_bytes >= MAX_TAIL_BYTES:
        mebibytes = tail.size_bytes >> 20
        reasons.append(
            f"{mebibytes:,} MiB of commits since the newest checkpoint ({since}), which every reader parses"
        )
    if reasons:
        return CheckpointPlan(tail, interval, due=True, reasons=tuple(reasons))
    why_not = f"{tail.commits:,} of {interval:,} commits and {tail.size_bytes >> 20:,} MiB since the newest checkpoint"
    return CheckpointPlan(tail, interval, due=False, reasons=(f"{why_not} ({since})",))
