"""Holds finished bins back until the moment that :mod:`delta_maintenance.optimize.commit.commit_gap` decides.

The log is tailed by one request: the commit file that would come next is read, and is not there. On a local disk that is one system
call. So when a commit appears, its content is known with the same request, and ours can follow at once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from msgspec import Struct, field

from delta_log.errors import AccessDenied, StorageError
from delta_log.log.actions import decode_commit
from delta_log.log.file_names import commit_key
from delta_log.log.log_segment import list_log
from delta_log.runtime import Runtime
from delta_log.snapshot.snapshot import Snapshot
from delta_log.storage.storage import Storage
from delta_log.transaction.conflict import WinningCommit
from delta_log.transaction.transaction import Transaction
from delta_maintenance.contract import MAX_DROPPED
from delta_maintenance.errors import CommitPostponed
from delta_maintenance.optimize.commit.commit_gap import (
    Decision,
    Partition,
    Pauses,
    Situation,
    Statement,
    Verdict,
    decide,
    statements_in,
)
from delta_maintenance.progress import ProgressReporter
from delta_maintenance.units import counted, format_duration

#: How many commits before the plan's version tell how the table is written to.
_HISTORY = 64
#: Between two looks at the log. A writer without pause begins its next statement some tenths of a second after its commit.
_LOOK_EVERY_SECONDS, _LOOK_AT_STORE_EVERY_SECONDS = 0.01, 0.05
#: A commit counts as seen at once if it was not there so long before. A store may fail to answer for longer.
_AT_ONCE_MS = 500
_TELL_EVERY_MS = 60_000
_WORDS = {
    Decision.QUIET: "no other writer has changed rows there lately",
    Decision.BEHIND: "a statement was just committed",
    Decision.BETWEEN: "statements are hardly ever in flight so soon after the last one",
    Decision.SILENCE: "no commit has come for longer than usual",
    Decision.GIVE_UP: "no gap came in time",
}


class GapWait(Struct):
    """Waits for moments to commit one run's bins.

    :param after_max_wait: ``commit`` or ``leave``, see the option.
    :ivar waited_ms: total time of waiting; ``requests``: number of requests that the waiting needed; ``commits_seen``: number of
        commits seen meanwhile.
    """

    transaction: Transaction
    storage: Storage
    snapshot: Snapshot
    max_wait_ms: int
    after_max_wait: str
    progress: ProgressReporter
    runtime: Runtime
    waited_ms: int = 0
    requests: int = 0
    commits_seen: int = 0
    moments: list[dict[str, Any]] = field(default_factory=list)
    _statements: list[Statement] | None = None
    _times_ms: dict[int, int | None] = field(default_factory=dict)
    _pauses: dict[Partition, Pauses | None] = field(default_factory=dict)
    #: By partition, when its last statement was committed, or was seen if that was at once.
    _last_ms: dict[Partition, int] = field(default_factory=dict)
    #: When the commit that comes next was last known to be absent.
    _absent_ms: int = 0

    def ready(self, partitions: Mapping[Partition, int]) -> frozenset[Partition]:
        """Return the partitions to which bins may be committed at this moment. Do not wait.

        :param partitions: partitions with the number of their bins.
        """
        self._catch_up()
        return self._found(self._verdicts(partitions, frozenset(), 0), partitions, 0)

    def wait(self, partitions: Mapping[Partition, int], prepare: Callable[[], None]) -> frozenset[Partition]:
        """Wait until bins may be committed to at least one partition. Return these partitions.

        :param partitions: partitions with the number of their bins.
        :param prepare: function that is called before a wait, if there has to be one.
        :raises CommitPostponed: no moment came in time, and the bins are to be left to the next try.
        """
        began_ms = self.runtime.now_ms()
        self._catch_up()
        just: frozenset[Partition] = frozenset()
        told_ms: int | None = None
        every = _LOOK_EVERY_SECONDS if self.storage.has_directories else _LOOK_AT_STORE_EVERY_SECONDS
        try:
            while True:
                waited_ms = self.runtime.now_ms() - began_ms
                verdicts = self._verdicts(partitions, just, self.waited_ms + waited_ms)
                found = self._found(verdicts, partitions, waited_ms)
                if found:
                    return found
                if all(verdict.decision is Decision.GIVE_UP for verdict in verdicts.values()):
                    return self._given_up(partitions, waited_ms)
                if told_ms is None:
                    prepare()
                if told_ms is None or waited_ms - told_ms >= _TELL_EVERY_MS:
                    told_ms = waited_ms
                    self._tell(partitions, verdicts, waited_ms)
                give_up_ms = began_ms + self.max_wait_ms - self.waited_ms
                until_ms = min(self._until_ms(verdicts), give_up_ms, began_ms + told_ms + _TELL_EVERY_MS)
                just = self._next_commit(until_ms, every)
        finally:
            self.waited_ms += self.runtime.now_ms() - began_ms

    def to_dict(self) -> dict[str, Any]:
        """The member ``commit_wait`` of a report."""
        return {
            "waited_ms": self.waited_ms,
            "requests": self.requests,
            "commits_seen": self.commits_seen,
            "moments": self.moments[:MAX_DROPPED],
        }

    # -- what the log tells ------------------------------------------------------------------------------------------

    def _catch_up(self) -> None:
        """Learn from the latest commits, and read those that came meanwhile."""
        if self._statements is None:
            commits = self._history()
            self._statements = statements_in(commits, self._times_ms)
            for statement in self._statements:
                self._note(statement, None)
        missed = self.transaction.catch_up()
        self.requests += 1 + len(missed)
        self._absent_ms = self.runtime.now_ms()
        for winner in missed:
            self._met(winner, live=False)

    def _history(self) -> Sequence[WinningCommit]:
        """Read the commits up to the plan's version, as far as they are there."""
        version = self.snapshot.version
        listing = list_log(self.storage, max(0, version - _HISTORY))
        versions = [v for v in sorted(listing.commits) if version - _HISTORY < v <= version]
        self.requests += 1 + len(versions)
        keys = [commit_key(v) for v in versions]
        try:
            bodies = list(self.storage.read_many(keys))
        except FileNotFoundError:  # cleaned meanwhile
            return ()
        return [
            WinningCommit(v, decode_commit(body, key), len(body))
            for v, key, body in zip(versions, keys, bodies, strict=True)
        ]

    def _next_commit(self, until_ms: int, every_seconds: float) -> frozenset[Partition]:
        """Look for a commit until it comes or the time is over.

        :return: the partitions in which it is a statement that was committed a moment ago.
        """
        while True:
            self.requests += 1
            asked_ms = self.runtime.now_ms()
            try:
                winner = self.transaction.look()
            except AccessDenied:
                raise
            except (StorageError, OSError):
                # The next look asks again; the commit itself finds out whether the store answers.
                winner = None
            else:
                if winner is None:
                    self._absent_ms = asked_ms
            if winner is not None:
                return self._met(winner, live=self.runtime.now_ms() - self._absent_ms <= _AT_ONCE_MS)
            if self.runtime.now_ms() >= until_ms:
                return frozenset()
            self.runtime.sleep(every_seconds)

    def _met(self, winner: WinningCommit, *, live: bool) -> frozenset[Partition]:
        """Note a commit of others.

        :param live: ``True``: it was seen at once.
        :return: the partitions in which it is a statement, if it was seen at once.
        """
        self.commits_seen += 1
        found = statements_in([winner], self._times_ms)
        changed: frozenset[Partition] = frozenset()
        for statement in found:
            assert self._statements is not None
            self._statements.append(statement)
            self._note(statement, self.runtime.now_ms() if live else None)
            if live:
                changed |= statement.partitions
        return changed

    def _note(self, statement: Statement, seen_ms: int | None) -> None:
        now_ms = self.runtime.now_ms()
        # The clock of another machine may be ahead of ours.
        moment_ms = min(now_ms, statement.committed_ms or now_ms) if seen_ms is None else seen_ms
        for partition in statement.partitions:
            self._last_ms[partition] = moment_ms
            self._pauses.pop(partition, None)

    # -- decisions ---------------------------------------------------------------------------------------------------

    def _verdicts(
        self, partitions: Collection[Partition], just: frozenset[Partition], waited_ms: int
    ) -> dict[Partition, Verdict]:
        now_ms = self.runtime.now_ms()
        return {
            partition: decide(
                Situation(
                    self._pauses_of(partition),
                    now_ms - self._last_ms.get(partition, now_ms),
                    partition in just,
                ),
                waited_ms,
                self.max_wait_ms,
            )
            for partition in partitions
        }

    def _until_ms(self, verdicts: Mapping[Partition, Verdict]) -> int:
        """When a decision will be another one unless there is a commit."""
        return min(
            self._last_ms[partition] + (verdict.until_ms or 0) for partition, verdict in verdicts.items()
        )

    def _pauses_of(self, partition: Partition) -> Pauses | None:
        if partition not in self._pauses:
            found = [s for s in self._statements or () if partition in s.partitions]
            self._pauses[partition] = Pauses.between(found) if found else None
        return self._pauses[partition]

    def _found(
        self, verdicts: Mapping[Partition, Verdict], partitions: Mapping[Partition, int], waited_ms: int
    ) -> frozenset[Partition]:
        found = frozenset(partition for partition, verdict in verdicts.items() if verdict.commits)
        if found:
            decisions = {verdicts[partition].decision for partition in found}
            # The one that was worth waiting for, if they differ.
            decision = max(decisions, key=list(Decision).index)
            self._ends(decision, sum(partitions[partition] for partition in found), waited_ms)
        return found

    def _given_up(self, partitions: Mapping[Partition, int], waited_ms: int) -> frozenset[Partition]:
        bins = sum(partitions.values())
        self._ends(Decision.GIVE_UP, bins, waited_ms)
        if self.after_max_wait == "leave":
            raise CommitPostponed(self.waited_ms + waited_ms, bins)
        return frozenset(partitions)

    def _ends(self, decision: Decision, bins: int, waited_ms: int) -> None:
        self.moments.append({"decision": decision.value, "bins": bins, "waited_ms": waited_ms})
        if waited_ms or decision is not Decision.QUIET:
            self.progress.message(
                f"waited {format_duration(waited_ms / 1000)} to commit {counted(bins, 'bin')}: {_WORDS[decision]}"
            )

    def _tell(
        self, partitions: Mapping[Partition, int], verdicts: Mapping[Partition, Verdict], waited_ms: int
    ) -> None:
        likely = [verdict.in_flight for verdict in verdicts.values() if verdict.in_flight is not None]
        busiest = f", now with a probability of {max(likely):.0%}" if likely else ""
        left_ms = max(0, self.max_wait_ms - self.waited_ms - waited_ms)
        self.progress.message(
            f"{counted(sum(partitions.values()), 'finished bin')} wait for a gap between statements of other writers: one is in "
            f"flight{busiest}; at most {format_duration(left_ms / 1000)} more"
        )
