"""Says in the log of a task, at each look of a sensor, what was measured against which limit."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from delta_maintenance.units import counted

if TYPE_CHECKING:
    from delta_log.tail.commit_summary import CommitFilter, CommitSummary
    from delta_log.tail.version_range import Awaited

#: After so long a line is repeated although nothing has changed, to show that the sensor still looks.
REPEAT_SECONDS = 600.0
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class LookLog:
    """Writes a line for each look that found something else than the look before, and every ten minutes.

    :param clock: clock in seconds that never goes back.
    """

    def __init__(self, log: logging.Logger, clock: Callable[[], float] = time.monotonic) -> None:
        self._log, self._clock = log, clock
        self._line = ""
        self._written_at = 0.0

    def tell(self, line: str) -> None:
        now = self._clock()
        if line != self._line or now - self._written_at >= REPEAT_SECONDS:
            self._line, self._written_at = line, now
            self._log.info("%s", line)


def seen_text(
    baseline: int, position: int, held: Sequence[CommitSummary], commit_filter: CommitFilter
) -> str:
    """Say what a sensor has seen of a log: ``2 of 5 commits after version 12 count, with 120 rows``.

    :param baseline: the version after which the sensor looks; `position` is the newest that it has read.
    :param held: the commits in between that passed the filter.
    """
    since = f"after version {baseline}" if baseline >= 0 else "from version 0 on"
    if position <= baseline:
        return f"no commit {since} yet"
    text = f"{len(held):,} of {position - baseline:,} commits {since} count"
    if commit_filter.min_rows and held:
        text += f", with {counted(sum(commit.num_rows or 0 for commit in held), 'row')}"
    return text


def awaited_text(commit_filter: CommitFilter, awaited: Awaited | None) -> str:
    """Say what a sensor waits for: ``a commit that changes data, at least 1,000 rows``."""
    return ", ".join(_awaited(commit_filter, awaited))


def _awaited(commit_filter: CommitFilter, awaited: Awaited | None) -> Iterator[str]:
    yield "a commit that changes data" if commit_filter.data_change_only else "a commit"
    if commit_filter.operations:
        yield f"by {' or '.join(sorted(commit_filter.operations))}"
    for column, values in commit_filter.partitions.items():
        yield f"in {column}={'|'.join(sorted('null' if value is None else value for value in values))}"
    if commit_filter.min_rows:
        yield f"at least {counted(commit_filter.min_rows, 'row')}"
    if awaited is None:
        return
    if awaited.version is not None:
        yield f"version {awaited.version} or later"
    if awaited.newer_than_ms is not None:
        yield f"at {(_EPOCH + timedelta(milliseconds=awaited.newer_than_ms)).isoformat(timespec='seconds')} or later"
    if awaited.transaction is not None:
        app_id, version = awaited.transaction
        yield f"with version {version} or later of {app_id}"
