"""Decides whether a log compaction would help readers, and of which versions: a pure function of the log's tail.

A reader that opens a version reads every commit since the newest checkpoint, one request each. A compaction puts several
commits into one file. It is cheaper than a checkpoint, and useless if a checkpoint is about to be written.

An older piece joins the new file only while it is no larger than all newer ones together. So each byte is rewritten a
logarithmic number of times, and readers find a logarithmic number of files.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct, to_builtins

#: The fewest files that are worth a compaction.
MIN_PIECES = 4


class LogPiece(Struct, frozen=True):
    """A file that a reader reads after the checkpoint: a commit, or a compaction of several."""

    start: int
    end: int
    size_bytes: int


class LogCompactionPlan(Struct, frozen=True):
    """
    :param start: the first version to compact; ``None``: there are fewer than two commits to put together.
    :param pieces: how many files become one, of ``size_bytes`` together.
    :param worth_it: judgement by policy; on request, a compaction is written wherever there is a range.
    """

    start: int | None
    end: int | None
    pieces: int
    size_bytes: int
    worth_it: bool
    reason: str

    def to_dict(self) -> dict[str, Any]:
        return dict(to_builtins(self))


def plan_log_compaction(pieces: Sequence[LogPiece]) -> LogCompactionPlan:
    """
    :param pieces: pieces of the log's tail, ascending.
    """
    taken: list[LogPiece] = []
    size_bytes = 0
    for piece in reversed(pieces):
        # A lone commit is no compaction, however large the one before it is.
        if len(taken) > 1 and piece.size_bytes > size_bytes:
            break
        taken.append(piece)
        size_bytes += piece.size_bytes
    if not taken or taken[-1].start == taken[0].end or len(taken) < 2:
        why = "there are fewer than two files since the newest checkpoint to put together"
        return LogCompactionPlan(None, None, len(taken), size_bytes, worth_it=False, reason=why)
    start, end = taken[-1].start, taken[0].end
    fewer = f"a compaction of the versions {start} to {end} would make one file of {len(taken):,}"
    if len(taken) < MIN_PIECES:
        reason = f"{fewer}, and is worth it from {MIN_PIECES} on"
        return LogCompactionPlan(start, end, len(taken), size_bytes, worth_it=False, reason=reason)
    reason = f"{fewer}, which every reader would otherwise fetch one by one"
    return LogCompactionPlan(start, end, len(taken), size_bytes, worth_it=True, reason=reason)
