"""Decides when a rewrite is committed beside writers that would lose to it: pure functions.

A commit that adds files makes another writer's statement fail if that statement has read the files' partition and commits later.
delta-spark and delta-rs check so even where a commit changes no rows. Appends that read nothing do not fail. So a commit
costs other writers least when as few of their statements as possible are between their read and their commit:

* **behind a statement**: the one that has just committed is over. Others that began before it in the same partition have lost to
  it already, so they lose nothing more to us;
* **between statements**: the log tells how long statements take and how long the pauses between their commits are. Among
  the earlier pauses that lasted as long as the present one, the share in which the next statement had already begun is the
  estimate for now;
* **in silence**: no commit has come for clearly longer than ever before, so the writer has probably gone.

The log does not name sessions. Statements of several sessions in one partition are therefore one sequence. A statement counts as
one that reads only the partitions in which it changed files.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from functools import cached_property
from itertools import pairwise
from typing import Any

from msgspec import Struct

from delta_log.log.actions import Action, Add, Remove
from delta_log.snapshot.commit_info import stated_time_ms
from delta_log.table_config.properties import whole_number
from delta_log.transaction.conflict import WinningCommit

#: Values of partition columns; empty where the table has none.
Partition = frozenset[tuple[str, str | None]]

#: The share of commits that may meet a statement in flight.
_RARE = 0.05
#: How many pauses the share of time counts as in which statements are in flight at all, beside pauses that lasted as long as
#: this one. Few pauses alone would look better than they are.
_PRIOR_PAUSES = 12
#: A statement has read the table a little before its writer starts the clock, and our commit takes a moment.
_MARGIN_MS = 500
#: How much longer than ever before a silence has to be.
_LONGER = 1.5
#: What counts as silence where the log says nothing about the length of statements.
_UNKNOWN_SILENCE_MS = 60_000
#: With fewer pauses, the next one may well be the longest: a silence then has to be as long as where nothing is known.
_MANY_PAUSES = 32
#: Appends by these operations read nothing, where the writer does not say so itself.
_APPENDS = frozenset({"WRITE", "STREAMING UPDATE", "COPY INTO"})
#: Names of a statement's duration in ``operationMetrics``, of delta-spark and of delta-rs.
_DURATIONS = ("executionTimeMs", "execution_time_ms")


class Statement(Struct, frozen=True):
    """A commit of a writer that has read what it changed, and so can lose to a commit of ours.

    :param committed_ms: milliseconds since the epoch; ``None``: the commit does not say.
    :param duration_ms: time from its read to its commit; ``None``: unknown.
    :param partitions: partitions in which it changed files.
    """

    version: int
    committed_ms: int | None
    duration_ms: int | None
    partitions: frozenset[Partition]


class Decision(Enum):
    """What to do now, and why."""

    WAIT = "wait"
    #: No other writer has changed rows here lately.
    QUIET = "quiet"
    #: A statement has just been committed.
    BEHIND = "behind"
    #: At this point of a pause, statements are hardly ever in flight.
    BETWEEN = "between"
    #: The pause is clearly longer than any before.
    SILENCE = "silence"
    #: The wait has lasted as long as it may.
    GIVE_UP = "give_up"


class Verdict(Struct, frozen=True):
    """
    :param in_flight: the estimated probability that a statement is in flight; ``None``: unknown.
    :param until_ms: how long the silence has to last, without a commit, before the decision is another one; ``None`` where there is
        nothing to wait for.
    """

    decision: Decision
    in_flight: float | None = None
    until_ms: int | None = None

    @property
    def commits(self) -> bool:
        return self.decision not in (Decision.WAIT, Decision.GIVE_UP)


class Pauses(Struct, frozen=True, dict=True):
    """The pauses between the statements of one partition.

    :param lengths_ms: time from one commit to the next, each with the duration of the statement that ended it.
    :param longest_statement_ms: 0 where no duration is known.
    """

    lengths_ms: tuple[tuple[int, int | None], ...]
    longest_statement_ms: int

    @classmethod
    def between(cls, statements: Sequence[Statement]) -> Pauses:
        """
        :param statements: statements in the order of their versions.
        """
        lengths = [
            (max(0, later.committed_ms - earlier.committed_ms), later.duration_ms)
            for earlier, later in pairwise(statements)
            if earlier.committed_ms is not None and later.committed_ms is not None
        ]
        return cls(tuple(lengths), max((s.duration_ms or 0 for s in statements), default=0))

    @cached_property
    def silence_ms(self) -> int:
        """After so long a pause the writers have probably gone."""
        longest = max((length for length, _ in self.lengths_ms), default=0)
        known = max(_LONGER * longest, 2 * self.longest_statement_ms)
        if not known or len(self.lengths_ms) < _MANY_PAUSES:
            known = max(known, _UNKNOWN_SILENCE_MS)
        return int(known)

    @cached_property
    def busy(self) -> float:
        """The share of time in which a statement is in flight; 1 where that is not known."""
        total_ms = sum(length for length, _ in self.lengths_ms)
        flown_ms = sum(
            length if took is None else min(length, took + _MARGIN_MS) for length, took in self.lengths_ms
        )
        return flown_ms / total_ms if total_ms else 1.0

    def in_flight(self, silence_ms: int) -> float:
        """Estimate the probability that the next statement has begun, when the last commit was so long ago.

        It is the share of earlier pauses of this length in which it had.
        """
        reached = [(length, took) for length, took in self.lengths_ms if length > silence_ms]
        begun = sum(took is None or length - took - _MARGIN_MS <= silence_ms for length, took in reached)
        return (begun + _PRIOR_PAUSES * self.busy) / (len(reached) + _PRIOR_PAUSES)

    def verdict(self, silence_ms: int) -> Verdict:
        if silence_ms > self.silence_ms:
            return Verdict(Decision.SILENCE, 0.0)
        expected = self.in_flight(silence_ms)
        if expected <= _RARE:
            return Verdict(Decision.BETWEEN, expected)
        # As a silence grows, the estimate falls only where an earlier pause ended.
        ends = {length for length, _ in self.lengths_ms if length > silence_ms}
        good = (at for at in sorted(ends) if self.in_flight(at) <= _RARE)
        silent_ms = self.silence_ms + 1
        return Verdict(Decision.WAIT, expected, min(next(good, silent_ms), silent_ms))


class Situation(Struct, frozen=True):
    """What is known of one partition.

    :param pauses: ``None``: no other writer has changed rows there lately.
    :param silence_ms: time since the last statement was committed.
    :param just_committed: ``True``: a statement was committed a moment ago, and seen at once.
    """

    pauses: Pauses | None
    silence_ms: int = 0
    just_committed: bool = False


def decide(situation: Situation, waited_ms: int, max_wait_ms: int) -> Verdict:
    """Decide whether to commit to a partition now.

    :param waited_ms: time since the bins of the partition were finished.
    """
    if situation.pauses is None:
        return Verdict(Decision.QUIET, 0.0)
    if situation.just_committed:
        return Verdict(Decision.BEHIND, 0.0)
    found = situation.pauses.verdict(max(0, situation.silence_ms))
    if found.decision is Decision.WAIT and waited_ms >= max_wait_ms:
        return Verdict(Decision.GIVE_UP, found.in_flight)
    return found


def statements_in(commits: Iterable[WinningCommit], times_ms: dict[int, int | None]) -> list[Statement]:
    """Return the statements among some commits, in order.

    :param times_ms: times at which earlier versions were committed, by version; the times of the commits are added.
    """
    found = []
    for commit in commits:
        info = commit.commit_info
        times_ms[commit.version] = committed_ms = stated_time_ms(info)
        if is_statement(commit.actions, info):
            took = _duration_ms(info, committed_ms, times_ms)
            found.append(Statement(commit.version, committed_ms, took, partitions_of(commit.actions)))
    return found


def is_statement(actions: Sequence[Action], info: Mapping[str, Any]) -> bool:
    """Tell whether a commit's writer has read rows in order to change them.

    In doubt it has: to wait for nothing is better than to make a statement fail.
    """
    changes = [file for file in _files(actions) if file.dataChange is not False]
    if not changes:
        return False
    if info.get("isBlindAppend") is True:
        return False
    appends = not any(isinstance(file, Remove) for file in changes)
    return not (appends and info.get("isBlindAppend") is None and info.get("operation") in _APPENDS)


def partitions_of(actions: Sequence[Action]) -> frozenset[Partition]:
    """Return the partitions of the files that a commit changes."""
    return frozenset(partition_key(file.partitionValues or {}) for file in _files(actions))


def partition_key(values: Mapping[str, str | None]) -> Partition:
    """Return partition values as a set; an empty value is a null, as in the log."""
    return frozenset((name, value or None) for name, value in values.items())


def _files(actions: Sequence[Action]) -> list[Add | Remove]:
    return [file for action in actions if (file := action.add or action.remove) is not None]


def _duration_ms(
    info: Mapping[str, Any], committed_ms: int | None, times_ms: Mapping[int, int | None]
) -> int | None:
    """How long a statement took: as it says, else at most the time since the version that it read was committed."""
    metrics = info.get("operationMetrics")
    if isinstance(metrics, Mapping):
        for name in _DURATIONS:
            stated = whole_number(str(metrics.get(name)))
            if stated is not None:
                return stated
    read = info.get("readVersion")
    began_ms = times_ms.get(read) if isinstance(read, int) else None
    return max(0, committed_ms - began_ms) if committed_ms is not None and began_ms is not None else None
