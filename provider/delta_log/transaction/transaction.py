"""Committing a version: put-if-absent, conflict rules, rebase.

Protocol sections "Atomicity" and "In-Commit Timestamps". A commit is one object that nobody else has created yet.
Whoever loses that race reads what won, asks :mod:`delta_log.transaction.conflict` how much of its own commit still stands, and
tries the next version. An outcome that is not known (the store failed after it got the bytes, or a client library
repeated a request behind our back) is found out by reading the object back and comparing ``txnId``; another body is
never sent before that verdict.

A commit stands only in the log that it rests on. The version that was read is looked at before the commit is sent, after
each lost race, and again when the commit is there: where the table was deleted or made anew meanwhile, the commit is taken
back (:mod:`delta_log.snapshot.table_identity`).

In the quiet case a commit costs four requests: one LIST, the commit, a look at the version that was read, the checksum
file of the commit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from delta_log.errors import (
    CommitContention,
    CommitFailed,
    CommitUnknown,
    DeltaLogError,
    StorageError,
    TableReplaced,
)
from delta_log.log.actions import Add, decode_actions
from delta_log.log.file_names import commit_key, known_commit
from delta_log.log.log_segment import list_log
from delta_log.printable import printable_logger
from delta_log.runtime import Runtime
from delta_log.snapshot.commit_info import ICT_ENABLED
from delta_log.snapshot.snapshot import Snapshot
from delta_log.snapshot.table_identity import require_same_log, taken_back
from delta_log.storage.storage import Storage
from delta_log.table_config import features as table_features
from delta_log.table_config.features import Operation
from delta_log.table_config.properties import flag
from delta_log.table_config.row_tracking import DOMAIN, high_water_mark
from delta_log.transaction.commit_body import TRANSACTION_TAG, Attempt, Change, FileGroup, Remap, body_of
from delta_log.transaction.conflict import (
    Basis,
    Conflict,
    Head,
    WinningCommit,
    conflicts_of,
    refreshed_row_ids,
)
from delta_log.transaction.post_commit import look_after
from delta_log.transaction.source_state import SourceStates

_LOG = printable_logger(__name__)
_MAX_ATTEMPTS = 50
_MAX_PUTS = 4
_FIRST_WAIT_SECONDS, _MAX_WAIT_SECONDS = 0.005, 2.0


@dataclass(frozen=True, slots=True)
class CommitResult:
    """
    :ivar already_done: ``version`` holds the same transaction, committed by an earlier or a concurrent try.
    :ivar dropped: groups of the change, by number, that were left out because their sources changed, and why.
    :ivar remapped: numbers of groups that were made anew, since their sources changed.
    :ivar snapshot: the table as of ``version``, where we committed it: it cost no reading.
    """

    version: int
    already_done: bool = False
    dropped: Mapping[int, CommitFailed] = field(default_factory=dict)
    remapped: frozenset[int] = frozenset()
    snapshot: Snapshot | None = field(default=None, compare=False, repr=False)


class Transaction:
    """Commits on the base of one snapshot: one, or several that share what they rest on.

    A second change is held against everything that was committed since the snapshot, as the first was; what the first
    has read of it is not read again.

    :param gate: the operation that the table's protocol must allow.
    :raises UnsupportedFeature: it does not.
    :raises InvalidRequest: the store cannot commit safely.
    """

    def __init__(self, storage: Storage, snapshot: Snapshot, gate: Operation, runtime: Runtime) -> None:
        table_features.require(snapshot.protocol, gate, snapshot.unused_features)
        storage.require_writable()
        self._storage, self._snapshot, self._gate, self._runtime = storage, snapshot, gate, runtime
        #: As of our own last commit, and what was committed from the first snapshot to there.
        self._tip = snapshot
        self._passed: tuple[WinningCommit, ...] = ()
        self._checkpointed: int | None = None

    def commit(self, change: Change) -> CommitResult:
        """Make the change the table's next version.

        :raises CommitFailed: another writer's commit contradicts ours; nothing was committed.
        :raises TableReplaced: the table was deleted or made anew; nothing was committed, unless the error says so.
        :raises UnsupportedFeature: another writer made the table one that we must not write to; the same.
        :raises CommitUnknown: the store failed so that nobody can tell yet whether ours is in the log.
        :raises StorageError: the store failed, and ours is not in the log.
        """
        basis = change.basis(self._storage.uri, self._gate, self._snapshot.unused_features)
        states = SourceStates.of(basis) if change.remap is not None else None
        rebase = _Rebase(self._head(), tuple(range(len(change.groups))), states)
        if change.transaction is not None:
            rebase.last_app_version = self._snapshot.transactions.get(change.transaction[0])
        done = next((w.version for w in self._passed if _is_same_work(w, change.transaction)), None)
        if done is not None:
            return CommitResult(done, already_done=True)
        for winner in self._passed:
            rebase.advance(winner, basis, change.transaction)
        transaction_id = self._runtime.new_id()
        latest = self._latest(rebase.head.version + 1)
        for tries in range(_MAX_ATTEMPTS):
            version = rebase.head.version + 1
            if latest < version:
                if change.remap is not None:
                    rebase.remap(change.remap)
                body = body_of(change, self._attempt(rebase, transaction_id))
                if self._put(version, body):
                    self._look_again(version, body)
                    return self._finished(rebase, _winner(version, body), transaction_id)
                winners = self._judges(version)
                if winners and _is_ours(winners[0], transaction_id):
                    self._look_again(version, body)
                    return self._finished(rebase, winners[0], transaction_id)
                # The winners may be those of another table.
                require_same_log(self._storage, self._snapshot)
            else:
                winners = self._winners(version, latest)
            done = next((w.version for w in winners if _is_same_work(w, change.transaction)), None)
            if done is not None:
                return CommitResult(done, already_done=True)
            for winner in winners:
                rebase.advance(winner, basis, change.transaction)
            if tries:
                wait = min(_MAX_WAIT_SECONDS, _FIRST_WAIT_SECONDS * 2**tries)
                self._runtime.sleep(wait * self._runtime.jitter())
        raise CommitContention(
            f"Other writers took {_MAX_ATTEMPTS} versions in a row, up to {rebase.head.version}. Nothing was "
            "committed; run again when the table is quieter.",
            version=rebase.head.version,
            winning_commits=rebase.winning_commits,
        )

    def _head(self) -> Head:
        snapshot = self._snapshot
        return Head(
            snapshot.version,
            snapshot.protocol,
            snapshot.metadata,
            snapshot.timestamp_ms if flag(snapshot.properties, ICT_ENABLED) else None,
            high_water_mark(snapshot.domain_metadata.get(DOMAIN)),
        )

    def _latest(self, version: int) -> int:
        """The newest version that others have committed while we worked; less than ``version``: none.

        :raises TableReplaced: the version that was read is not in the log any more.
        :raises CommitFailed: a version between was committed long ago and cleaned from the log: it is free, and yet
            taken.
        """
        listing = list_log(self._storage, self._snapshot.version)
        require_same_log(self._storage, self._snapshot, listing)
        if not all(winner in listing.commits for winner in range(version, listing.latest + 1)):
            raise _cleaned(version, listing.latest)
        return listing.latest

    def _attempt(self, rebase: _Rebase, transaction_id: str) -> Attempt:
        return Attempt(
            rebase.head,
            self._snapshot.version,
            rebase.kept,
            rebase.refreshed_row_ids,
            transaction_id,
            rebase.last_app_version,
            self._runtime.now_ms(),
            self._storage.uri,
            rebase.remapped,
        )

    def _put(self, version: int, body: bytes) -> bool:
        """Did our body become that version? ``False``: the version is there; whose it is, its ``txnId`` tells.

        The same bytes under the same condition may be sent again: at most one of them takes effect.

        :raises CommitUnknown: the version is not there, but a request may still be on its way to it.
        """
        key = commit_key(version)
        for tries in range(_MAX_PUTS):
            try:
                return self._storage.put_if_absent(key, body)
            except (StorageError, OSError) as error:
                failure = error
            with suppress(StorageError, OSError):
                if self._storage.head(key) is not None:
                    return False
            self._runtime.sleep(_FIRST_WAIT_SECONDS * 2**tries * self._runtime.jitter())
        raise CommitUnknown(
            f"The store failed {_MAX_PUTS} times to write version {version}, and did not say whether it took effect "
            f"({failure}). Run again: a repetition finds out and does nothing twice.",
            key,
        ) from failure

    def _look_again(self, version: int, body: bytes) -> None:
        """See that a commit of ours, which is there, follows what it rests on; else take it back.

        :raises TableReplaced: it did not.
        :raises CommitUnknown: the store failed, so that nobody can tell.
        """
        for tries in range(_MAX_PUTS):
            try:
                require_same_log(self._storage, self._snapshot)
            except TableReplaced as replaced:
                raise taken_back(
                    self._storage, replaced, commit_key(version), body, follower=commit_key(version + 1)
                ) from replaced
            except (StorageError, OSError) as error:
                failure = error
            else:
                return
            self._runtime.sleep(_FIRST_WAIT_SECONDS * 2**tries * self._runtime.jitter())
        raise CommitUnknown(
            f"Version {version} was written, and whether the table was made anew meanwhile cannot be found out "
            f"({failure}). Run again: a repetition finds out and does nothing twice.",
            commit_key(version),
        ) from failure

    def _judges(self, version: int) -> Sequence[WinningCommit]:
        """The winners from a version on, of which the first may be ours: a put came back without a verdict.

        :raises CommitUnknown: they cannot be read.
        """
        try:
            return self._winners(version, version - 1)
        except (StorageError, OSError) as error:
            raise CommitUnknown(
                f"Version {version} is there, and whether it is ours cannot be read ({error}). Run again: a repetition "
                "finds out and does nothing twice.",
                commit_key(version),
            ) from error

    def _winners(self, version: int, latest: int) -> Sequence[WinningCommit]:
        """Every commit from a version on, in order.

        :param latest: so far they are known to be there, and are read side by side.
        """
        known = range(version, latest + 1)
        try:
            bodies = list(self._storage.read_many([commit_key(v) for v in known]))
        except FileNotFoundError:
            raise _cleaned(version, latest) from None
        found = [_winner(v, body) for v, body in zip(known, bodies, strict=True)]
        version += len(found)
        while True:
            try:
                found.append(_winner(version, self._storage.read(commit_key(version))))
            except FileNotFoundError:
                return found
            version += 1

    def _finished(self, rebase: _Rebase, ours: WinningCommit, transaction_id: str) -> CommitResult:
        """The commit stands, whatever becomes of the rest."""
        version, winners = ours.version, [*rebase.winners, ours]
        newer = [winner for winner in winners if winner.version > self._tip.version]
        try:
            snapshot = self._tip.advanced(
                [(known_commit(winner.version, winner.size_bytes), winner.actions) for winner in newer]
            )
        except (DeltaLogError, OSError) as error:
            _LOG.warning("%s: version %d cannot be read: %s", self._storage.uri, version, error)
            self._tip, self._passed = self._snapshot, ()
            return CommitResult(version, dropped=rebase.dropped, remapped=frozenset(rebase.remapped))
        self._tip, self._passed = snapshot, (*rebase.winners, _without_files(ours))
        self._checkpointed = look_after(
            snapshot, self._storage, transaction_id, self._runtime, self._checkpointed
        )
        return CommitResult(version, False, rebase.dropped, frozenset(rebase.remapped), snapshot)


@dataclass(slots=True)
class _Rebase:
    """How far a commit has come: the version that it would follow, and what of it still stands.

    :ivar stale: groups that lost sources and are to be made anew, and why they cannot stay as they are.
    :ivar remapped: those, made anew to follow version ``remapped_behind``.
    """

    head: Head
    kept: tuple[int, ...]
    states: SourceStates | None = None
    last_app_version: int | None = None
    winners: list[WinningCommit] = field(default_factory=list)
    dropped: dict[int, CommitFailed] = field(default_factory=dict)
    refreshed_row_ids: dict[str, Add] = field(default_factory=dict)
    stale: dict[int, CommitFailed] = field(default_factory=dict)
    remapped: dict[int, FileGroup] = field(default_factory=dict)
    remapped_behind: int = -1

    @property
    def winning_commits(self) -> tuple[int, ...]:
        return tuple(winner.version for winner in self.winners)

    def advance(self, winner: WinningCommit, basis: Basis, transaction: tuple[str, int] | None) -> None:
        """Step behind a winner.

        :raises CommitFailed: nothing of ours can follow it.
        """
        self.winners.append(winner)
        if self.states is not None:
            self.states.advance(winner)
        for conflict in conflicts_of(winner, self.head, basis):
            if self.states is not None and conflict.group in self.kept:
                self.stale.setdefault(conflict.group, conflict.error)
            else:
                self._drop_or_raise(conflict)
        self.refreshed_row_ids.update(refreshed_row_ids(winner, basis))
        self.head = self.head.after(winner)
        if transaction is not None:
            versions = (self.last_app_version, _app_version(winner, transaction[0]))
            self.last_app_version = max((v for v in versions if v is not None), default=None)

    def remap(self, made_anew: Remap) -> None:
        """Make the groups anew that lost sources, as these are by now; those of which that cannot be done are left out.

        :raises CommitFailed: nothing of ours is left.
        """
        assert self.states is not None
        if self.remapped_behind == self.head.version:
            return
        self.remapped_behind = self.head.version
        self.remapped.clear()
        for number, why in [(number, why) for number, why in self.stale.items() if number in self.kept]:
            try:
                self.remapped[number] = made_anew(number, self.head, self.states.of_group(number))
            except CommitFailed as error:
                self._drop_or_raise(Conflict(error, number))
            except DeltaLogError as error:
                _LOG.warning("what became of %s cannot be read: %s", why, error)
                self._drop_or_raise(Conflict(why, number))

    def _drop_or_raise(self, conflict: Conflict) -> None:
        if conflict.group is not None:
            self.dropped.setdefault(conflict.group, conflict.error)
            self.kept = tuple(number for number in self.kept if number != conflict.group)
        if conflict.group is None or not self.kept:
            conflict.error.winning_commits = self.winning_commits
            raise conflict.error


def _cleaned(version: int, latest: int) -> CommitFailed:
    return CommitFailed(
        f"While this ran, others committed up to version {latest}, and their commits were cleaned from the log again, so "
        "nobody can tell whether ours still stands. Nothing was committed; run again.",
        version=version,
    )


def _without_files(ours: WinningCommit) -> WinningCommit:
    """Files of our own commits are no concern of our later ones, and may be many."""
    return replace(ours, actions=[a for a in ours.actions if a.add is None and a.remove is None])


def _winner(version: int, body: bytes) -> WinningCommit:
    return WinningCommit(version, decode_actions(body, commit_key(version)), len(body))


def find_transaction(snapshot: Snapshot, storage: Storage, app_id: str, app_version: int) -> int | None:
    """The version that holds exactly this transaction, or ``None``.

    ``txn`` remembers only the newest version of an application. Where it is newer than ours, an older piece of work
    (a backfill, a late retry) may or may not have been done; the commits since then tell.
    """
    last = snapshot.transactions.get(app_id)
    if last is None or last < app_version:
        return None
    basis_tag = f"{app_id}:{app_version}"
    commits = list_log(storage).commits
    for version in sorted((v for v in commits if v <= snapshot.version), reverse=True):
        try:
            winner = _winner(version, storage.read(commit_key(version)))
        except FileNotFoundError:
            break  # cleaned meanwhile, and everything older with it
        if _tag_of(winner) == basis_tag:
            return version
        recorded = _app_version(winner, app_id)
        if recorded is None:
            continue
        if recorded == app_version and _tag_of(winner) is None:
            return version
        if recorded < app_version:
            return None
    return snapshot.version if last == app_version else None


def _is_ours(winner: WinningCommit, transaction_id: str) -> bool:
    return winner.commit_info.get("txnId") == transaction_id


def _is_same_work(winner: WinningCommit, transaction: tuple[str, int] | None) -> bool:
    if transaction is None:
        return False
    app_id, app_version = transaction
    tag = _tag_of(winner)
    if tag is not None:
        return tag == f"{app_id}:{app_version}"
    return _app_version(winner, app_id) == app_version


def _tag_of(winner: WinningCommit) -> str | None:
    tags = winner.commit_info.get("tags")
    return tags.get(TRANSACTION_TAG) if isinstance(tags, dict) else None


def _app_version(winner: WinningCommit, app_id: str) -> int | None:
    return next((a.txn.version for a in winner.actions if a.txn is not None and a.txn.appId == app_id), None)
