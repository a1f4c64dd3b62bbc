"""What a watcher of a table has told, what it has seen, and what it tells next: ranges of versions without a gap.

Pure: commits go in, ranges come out, and the :class:`Place` between them is all that has to be kept. Successive ranges
join on to each other (each begins where the one before ended), whatever the filter leaves out. So whoever gets them can
prove that nothing is missing, and a range that comes twice is recognised by its bounds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from delta_log.tail.commit_summary import CommitFilter, CommitSummary

#: Partitions of one commit that a range names; their number is told in any case.
MAX_PARTITIONS = 1000


@dataclass(frozen=True, slots=True)
class Place:
    """
    :param told: the last version of the last range.
    :param seen: the last version that need not be looked at again; not before ``told``.
    """

    told: int
    seen: int

    @classmethod
    def after(cls, version: int) -> Place:
        return cls(version, version)


@dataclass(frozen=True, slots=True)
class VersionRange:
    """Versions ``first`` to ``last``, both included.

    :param commits: those that passed the filter, ascending.
    :param cleaned: versions of the range whose commits were deleted before they were read, first and last.
    """

    first: int
    last: int
    commits: tuple[CommitSummary, ...]
    cleaned: tuple[int, int] | None = None

    def to_dict(self, table: str) -> dict[str, Any]:
        """As JSON values; the payload of events and XComs."""
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


@dataclass(frozen=True, slots=True)
class Awaited:
    """What a sensor waits for besides a commit; ``None``: nothing.

    :param version: a commit of this version or a later one.
    :param newer_than_ms: one at or after this moment.
    :param transaction: one that says that the table holds this ``txn``, application id and version, or a later one.
    """

    version: int | None = None
    newer_than_ms: int | None = None
    transaction: tuple[str, int] | None = None

    def is_met(self, commits: Sequence[CommitSummary]) -> bool:
        return any(map(self._by, commits))

    def _by(self, commit: CommitSummary) -> bool:
        if self.version is not None and commit.version < self.version:
            return False
        if self.newer_than_ms is not None and commit.timestamp_ms < self.newer_than_ms:
            return False
        if self.transaction is None:
            return True
        app_id, version = self.transaction
        return commit.transactions.get(app_id, -1) >= version


@dataclass(frozen=True, slots=True)
class Progress:
    """A place, and what passed the filter since then and was not told.

    :param held: commits after ``place.told``, ascending.
    """

    place: Place
    held: tuple[CommitSummary, ...] = ()
    cleaned: tuple[int, int] | None = None

    def with_commits(
        self, commits: Sequence[CommitSummary], commit_filter: CommitFilter, awaited: Awaited | None = None
    ) -> tuple[Progress, VersionRange | None]:
        """After further commits, which follow without a gap; and the range to tell, if there is one."""
        if not commits:
            return self, None
        last = commits[-1].version
        held = (*self.held, *filter(commit_filter.passes, commits))
        enough = commit_filter.is_enough(held) and (awaited is None or awaited.is_met(held))
        # What was deleted may have been what somebody waits for.
        if enough or (self.cleaned is not None and awaited is None):
            told = VersionRange(self.place.told + 1, last, held, self.cleaned)
            return Progress(Place.after(last)), told
        seen = held[0].version - 1 if held else last
        return Progress(Place(self.place.told, max(self.place.seen, seen)), held, self.cleaned), None

    def without(self, first: int, last: int) -> Progress:
        """After versions that were deleted before they were read."""
        since = self.cleaned[0] if self.cleaned else first
        return Progress(self.place, self.held, (since, last))

    def closed(self, last: int) -> tuple[Progress, VersionRange]:
        """After a range that ends here, whatever is in it."""
        return Progress(Place.after(last)), VersionRange(self.place.told + 1, last, self.held, self.cleaned)
