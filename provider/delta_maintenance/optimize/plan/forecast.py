"""How long a plan will take, by what earlier runs of this rewriter took on the same table. Pure.

Every commit of ours tells in its tags how many milliseconds went by while the bytes that it removed were rewritten.
The newest of them are added up: one slow night weighs as much as its bytes. Where there is none, there is no forecast,
since another table's speed says little about this one's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

#: In ``commitInfo.tags`` of every commit of ours: how long its bins were rewritten, from the start or the commit before.
REWRITE_TIME_TAG = "delta-maintenance.rewrite-ms"
_RUNS = 5


@dataclass(frozen=True, slots=True)
class Forecast:
    """
    :param seconds: that the plan is likely to take.
    :param num_runs: earlier commits that this rests on.
    """

    seconds: int
    num_runs: int

    def to_dict(self) -> dict[str, int]:
        return {"estimatedSeconds": self.seconds, "numRunsOfEstimate": self.num_runs}


def forecast(planned_bytes: int, history: Iterable[Mapping[str, Any]]) -> Forecast | None:
    """The time for a plan; ``None``: the history does not tell.

    :param history: commits, newest first, as :mod:`delta_log.snapshot.commit_info` normalises them.
    """
    total_bytes = total_ms = runs = 0
    for commit in history:
        took_ms, num_bytes = _took(commit)
        if took_ms <= 0 or num_bytes <= 0:
            continue
        total_bytes, total_ms, runs = total_bytes + num_bytes, total_ms + took_ms, runs + 1
        if runs == _RUNS:
            break
    if runs == 0:
        return None
    return Forecast(-(-planned_bytes * total_ms // (total_bytes * 1000)), runs)


def _took(commit: Mapping[str, Any]) -> tuple[int, int]:
    tags, metrics = commit.get("tags"), commit.get("operationMetrics")
    if not isinstance(tags, Mapping) or not isinstance(metrics, Mapping):
        return 0, 0
    text, num_bytes = str(tags.get(REWRITE_TIME_TAG, "")), metrics.get("numRemovedBytes")
    # What others wrote is their business: it is read, and not believed.
    if (
        not text.isdecimal()
        or len(text) > 12
        or isinstance(num_bytes, bool)
        or not isinstance(num_bytes, int)
    ):
        return 0, 0
    return int(text), num_bytes
