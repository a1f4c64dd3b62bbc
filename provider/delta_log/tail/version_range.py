"""Ranges of versions that a watcher of a table reports, without a gap.

The module does no I/O: commits go in, ranges come out, and a watcher has to store only the :class:`Place` between two of them.
Each range begins where the one before ended, whatever the filter leaves out. So a receiver can prove that nothing is missing,
and recognises a range that it gets twice by its bounds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from delta_log.tail.commit_summary import CommitFilter, CommitSummary

#: The most partitions of one commit that a range names. It always tells their number.
MAX_PARTITIONS = 1000


class Place(Struct, frozen=True):
    """The place of a watcher in a log.

    :param told: the last version of the last reported range.
    :param seen: the last version that the watcher need not read again; not before ``told``.
    """

    told: int
    seen: int

    @classmethod
    def after(cls, version: int) -> Place:
        return cls(version, version)


class VersionRange(Struct, frozen=True):
    """Versions ``first`` to ``last``, both included.

    :param commits: commits that passed the filter, ascending.
    :param cleaned: versions of the range whose commits were deleted before they were read, first and last.
    """

    first: int
    last: int
    commits: tuple[CommitSummary, ...]
    cleaned: tuple[int, int] | None = None

    def to_dict(self, table: str) -> dict[str, Any]:
        """Return the range as JSON values, the payload of events and XComs."""
        return {
            "table": table,
            "firstVersion": self.first,
            "lastVersion": self.last,
            "numCommits": len(self.commits),
            "numSkipped": self.last - self.first + 1 - len(self.commits) - _length(self.cleaned),
            "commits": [commit.to_dict(MAX_PARTITIONS) for commit in self.commits],
            "cleaned": list(self.cleaned) if self.cleaned else None,
        }


def _length(cleaned: tuple[int, int] | None) -> int:
    return 0 if cleaned is None else cleaned[1] - cleaned[0] + 1


class Awaited(Struct, frozen=True):
    """What a commit must meet for a sensor to end its wait; ``None`` stands for any.

    :param version: the commit has this version or a later one.
    :param newer_than_ms: the commit's time is this moment or later.
    :param transaction: the commit has a ``txn`` of this application id with this version or a later one.
    """

    version: int | None = None
    newer_than_ms: int | None = None
    transaction: tuple[str, int] | None = None

    def is_met(self, commits: Sequence[CommitSummary]) -> bool:
        return any(map(self._is_met_by, commits))

    def _is_met_by(self, commit: CommitSummary) -> bool:
        if self.version is not None and commit.version < self.version:
            return False
        if self.newer_than_ms is not None and commit.timestamp_ms < self.newer_than_ms:
            return False
        if self.transaction is None:
            return True
        app_id, version = self.transaction
        return commit.transactions.get(app_id, -1) >= version


class Progress(Struct, frozen=True):
    """A place, and the commits after it that passed the filter and are not reported yet.

    :param held: commits that passed the filter and are not reported yet, ascending.
    :param cleaned: first and last of the versions that were deleted before they were read.
    """

    place: Place
    held: tuple[CommitSummary, ...] = ()
    cleaned: tuple[int, int] | None = None

    def with_commits(
        self, commits: Sequence[CommitSummary], commit_filter: CommitFilter, awaited: Awaited | None = None
    ) -> tuple[Progress, VersionRange | None]:
        """Add the commits that follow, without a gap. Return the new progress, and the range to report if there is one."""
        if not commits:
            return self, None
        last = commits[-1].version
        held = (*self.held, *filter(commit_filter.passes, commits))
        enough = commit_filter.is_enough(held) and (awaited is None or awaited.is_met(held))
        # A deleted commit may be the one that the watcher waits for.
        if enough or (self.cleaned is not None and awaited is None):
            told = VersionRange(self.place.told + 1, last, held, self.cleaned)
            return Progress(Place.after(last)), told
        seen = held[0].version - 1 if held else last
        return Progress(Place(self.place.told, max(self.place.seen, seen)), held, self.cleaned), None

    def without(self, first: int, last: int) -> Progress:
        """Add versions that were deleted before they were read."""
        since = self.cleaned[0] if self.cleaned else first
        return Progress(self.place, self.held, (since, last))

    def closed(self, last: int) -> tuple[Progress, VersionRange]:
        """End a range at a version, whatever it holds. Return the new progress and the range."""
        return Progress(Place.after(last)), VersionRange(self.place.told + 1, last, self.held, self.cleaned)
