"""Forecasts how long a plan will take, from earlier runs of this rewriter on the same table. Pure.

Each of its commits states in a tag how many milliseconds the rewrite of the removed bytes took. The forecast divides the
sums over the newest commits, so a run counts by its bytes. Without such a commit there is no forecast, since the speed on
another table says little.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct

#: In ``commitInfo.tags``: milliseconds of rewriting, since the start of the run or its commit before.
REWRITE_TIME_TAG = "delta-maintenance.rewrite-ms"
_RUNS = 5


class Forecast(Struct, frozen=True):
    """
    :param seconds: how long the plan will take.
    :param num_runs: how many earlier commits the forecast rests on.
    """

    seconds: int
    num_runs: int

    def to_dict(self) -> dict[str, int]:
        return {"estimatedSeconds": self.seconds, "numRunsOfEstimate": self.num_runs}


def forecast(planned_bytes: int, history: Iterable[Mapping[str, Any]]) -> Forecast | None:
    """Forecast the time for a plan; ``None``: the history has no earlier run.

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
    # Other writers may have put anything there.
    if (
        not text.isdecimal()
        or len(text) > 12
        or isinstance(num_bytes, bool)
        or not isinstance(num_bytes, int)
    ):
        return 0, 0
    return int(text), num_bytes
