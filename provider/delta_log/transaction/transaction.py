"""Commits a version: put-if-absent, conflict rules, rebase.

Protocol sections "Atomicity" and "In-Commit Timestamps". A commit is one object that must not exist before. A writer that loses
that race reads the winning commits, asks :mod:`delta_log.transaction.conflict` how much of its own commit still stands, and tries
the next version. Where the outcome of a request is unknown (the store failed after it got the bytes, or a client library
repeated a request), the writer reads the object back and compares ``txnId``. It sends no other body before it knows.

A commit stands only in the log that it rests on. The writer checks the version that it read before it sends the commit, after
each lost race, and again when the commit is there. If the table was deleted or made anew meanwhile, it takes the commit back
(:mod:`delta_log.snapshot.table_identity`).

Without concurrent writers a commit costs four requests: one LIST, the commit, the check of the version that was read, and the
commit's checksum file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from msgspec.structs import replace

from delta_log.errors import (
    AccessDenied,
    CommitContention,
    CommitFailed,
    CommitRefused,
    CommitUnknown,
    DeltaLogError,
    NotAFile,
    StorageError,
    TableReplaced,
)
from delta_log.log.actions import decode_commit
from delta_log.log.file_names import commit_key, known_commit
from delta_log.log.log_segment import list_log
from delta_log.printable import printable_logger
from delta_log.runtime import Runtime
from delta_log.snapshot.commit_info import ICT_ENABLED
from delta_log.snapshot.snapshot import Snapshot
from delta_log.snapshot.table_identity import (
    require_same_log,
    require_settled,
    taken_back,
    unfinished_commit,
)
from delta_log.storage.storage import Storage
from delta_log.table_config import features as table_features
from delta_log.table_config.features import Operation
from delta_log.table_config.properties import flag
from delta_log.table_config.row_tracking import DOMAIN, high_water_mark
from delta_log.transaction.commit_body import Attempt, Change, body_of
from delta_log.transaction.conflict import Basis, Head, WinningCommit
from delta_log.transaction.post_commit import look_after
from delta_log.transaction.rebase import Rebase, SourceStates

_LOG = printable_logger(__name__)
_MAX_ATTEMPTS = 50
_MAX_PUTS = 4
_FIRST_WAIT_SECONDS, _MAX_WAIT_SECONDS = 0.005, 2.0


@dataclass(frozen=True, slots=True)
class CommitResult:
    """The outcome of a commit.

    :ivar already_done: ``version`` holds the same transaction, committed by an earlier or a concurrent try.
    :ivar dropped: groups of the change, by number, that were left out because their sources changed, and why.
    :ivar remapped: numbers of groups that were made anew because their sources changed.
    :ivar snapshot: the table as of ``version``, if this call committed it; building it needed no reads.
    :ivar checkpointed: the version of the checkpoint that followed this commit or an earlier one of the transaction.
    """

    version: int
    already_done: bool = False
    dropped: Mapping[int, CommitFailed] = field(default_factory=dict)
    remapped: frozenset[int] = frozenset()
    snapshot: Snapshot | None = field(default=None, compare=False, repr=False)
    checkpointed: int | None = field(default=None, compare=False)


class Transaction:
    """Commits one change, or several, on the base of one snapshot.

    Each change is checked against all commits since the snapshot. Commits that an earlier change has read are not read again.

    :param gate: the operation that the table's protocol must allow.
    :raises UnsupportedFeature: the protocol does not allow it.
    :raises InvalidRequest: the store cannot commit safely.
    :raises CommitFailed: the snapshot's commit is an empty file, which its writer may still be filling.
    """

    def __init__(self, storage: Storage, snapshot: Snapshot, gate: Operation, runtime: Runtime) -> None:
        table_features.require(snapshot.protocol, gate, snapshot.unused_features)
        storage.require_writable()
        require_settled(snapshot, runtime.now_ms())
        self._storage, self._snapshot, self._gate, self._runtime = storage, snapshot, gate, runtime
        #: The table as of our last commit, and the commits from the first snapshot to there.
        self._tip = snapshot
        self._passed: tuple[WinningCommit, ...] = ()
        #: Commits of others after the tip, which :meth:`look` has read.
        self._seen: list[WinningCommit] = []
        self._checkpointed: int | None = None

    def look(self) -> WinningCommit | None:
        """Read the commit that follows all that this transaction knows; one request. ``None``: there is none yet.

        The next :meth:`commit` checks its change against it, and does not read it again.

        :raises StorageError: the store failed.
        """
        version = self._known_version() + 1
        try:
            body = self._storage.read(commit_key(version))
        except FileNotFoundError:
            return None
        self._seen.append(_settled_winner(version, body))
        return self._seen[-1]

    def catch_up(self) -> Sequence[WinningCommit]:
        """Read all commits that follow those that this transaction knows, as :meth:`look` does, but many at a time.

        :raises TableReplaced: the version that was read is not in the log any more.
        :raises CommitFailed: a commit was cleaned from the log before it was read.
        :raises StorageError: the store failed.
        """
        version = self._known_version() + 1
        latest = self._latest(version)
        found = self._winners(version, latest) if latest >= version else ()
        self._seen += found
        return found

    def _known(self) -> tuple[WinningCommit, ...]:
        """The commits after the snapshot that need not be read again."""
        return (*self._passed, *self._seen)

    def _known_version(self) -> int:
        return self._seen[-1].version if self._seen else self._tip.version

    def commit(self, change: Change) -> CommitResult:
        """Make the change the table's next version.

        :raises CommitFailed: another writer's commit contradicts ours; nothing was committed.
        :raises TableReplaced: the table was deleted or made anew; nothing was committed, unless the error says so.
        :raises UnsupportedFeature, NeedsCatalog: another writer made the table one that we must not write to; nothing was committed.
        :raises CommitUnknown: the store failed, and whether our commit is in the log cannot be told yet.
        :raises StorageError: the store failed, and our commit is not in the log.
        """
        basis = change.basis(self._storage.uri, self._gate, self._snapshot.unused_features)
        states = SourceStates.of(basis) if change.remap is not None else None
        rebase = Rebase(self._head(), tuple(range(len(change.groups))), states)
        if change.transaction is not None:
            rebase.last_app_version = self._snapshot.transactions.get(change.transaction[0])
        known = self._known()
        done = next((w.version for w in known if _is_same_work(w, change.transaction)), None)
        if done is not None:
            return CommitResult(done, already_done=True)
        self._advance(rebase, known, basis, change)
        transaction_id = self._runtime.new_id()
        latest = self._latest(rebase.head.version + 1)
        for tries in range(_MAX_ATTEMPTS):
            version = rebase.head.version + 1
            if latest < version:
                ours, winners = self._send(change, rebase, transaction_id)
                if ours is not None:
                    return self._finished(rebase, ours, transaction_id)
            else:
                winners = self._winners(version, latest)
            done = next((w.version for w in winners if _is_same_work(w, change.transaction)), None)
            if done is not None:
                return CommitResult(done, already_done=True)
            self._advance(rebase, winners, basis, change)
            if tries:
                wait = min(_MAX_WAIT_SECONDS, _FIRST_WAIT_SECONDS * 2**tries)
                self._runtime.sleep(wait * self._runtime.jitter())
        raise CommitContention(
            f"Other writers took {_MAX_ATTEMPTS} versions in a row, up to {rebase.head.version}. Nothing was "
            "committed; run again when the table is quieter.",
            version=rebase.head.version,
            winning_commits=rebase.winning_commits,
        )

    def _advance(
        self, rebase: Rebase, winners: Sequence[WinningCommit], basis: Basis, change: Change
    ) -> None:
        for winner in winners:
            for action in winner.actions:
                if action.protocol is not None:
                    table_features.require_catalog(action.protocol, self._storage)
            rebase.advance(winner, basis, change.transaction)

    def _send(
        self, change: Change, rebase: Rebase, transaction_id: str
    ) -> tuple[WinningCommit | None, Sequence[WinningCommit]]:
        """Send the commit as the next version. Return it where it stands, else the commits that won."""
        version = rebase.head.version + 1
        if change.remap is not None:
            rebase.remap(change.remap)
        body = body_of(change, self._attempt(rebase, transaction_id))
        if self._put(version, body):
            ours = _winner(version, body)
        else:
            winners = self._winners_or_ours(version)
            if not (winners and _is_ours(winners[0], transaction_id)):
                # The winners may be commits of another table.
                require_same_log(self._storage, self._snapshot)
                return None, winners
            ours = winners[0]
        self._look_again(version, body)
        return ours, ()

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
        """Return the newest version that others have committed since the snapshot; less than ``version`` if there is none.

        :raises TableReplaced: the version that was read is not in the log any more.
        :raises CommitFailed: a version between was committed and cleaned from the log, so its name is free again.
        """
        listing = list_log(self._storage, self._snapshot.version)
        require_same_log(self._storage, self._snapshot, listing)
        if not all(winner in listing.commits for winner in range(version, listing.latest + 1)):
            raise _cleaned(version, listing.latest)
        return listing.latest

    def _attempt(self, rebase: Rebase, transaction_id: str) -> Attempt:
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
        """Write our body as a version. ``False``: the version exists, and its ``txnId`` tells which writer wrote it.

        A repeated request has the same bytes and the same condition, so at most one of them takes effect.

        :raises AccessDenied, CommitRefused: the store or the table's catalog refused the first request, and the version does not exist.
        :raises CommitUnknown: the version does not exist, but a request may still reach the store.
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
            # A refusal is an answer. After a request without one, the outcome of that request is still open.
            if not tries and isinstance(failure, (AccessDenied, CommitRefused)) and not failure.retryable:
                raise failure
            self._runtime.sleep(_FIRST_WAIT_SECONDS * 2**tries * self._runtime.jitter())
        raise CommitUnknown(
            f"The store failed {_MAX_PUTS} times to write version {version}, and did not say whether it took effect "
            f"({failure}). Run again: a repetition finds out and does nothing twice.",
            key,
        ) from failure

    def _look_again(self, version: int, body: bytes) -> None:
        """Check that our commit, which exists, follows the version that it rests on; else take it back.

        :raises TableReplaced: it did not.
        :raises CommitUnknown: the store failed, so the check has no result.
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

    def _winners_or_ours(self, version: int) -> Sequence[WinningCommit]:
        """Read the commits from a version on. The first may be ours, since the outcome of a put may be unknown.

        :raises CommitUnknown: they cannot be read.
        :raises NotAFile: a directory has the name of the commit.
        """
        try:
            return self._winners(version, version - 1)
        except NotAFile:
            raise  # it is not ours, and no commit
        except (StorageError, OSError) as error:
            raise CommitUnknown(
                f"Version {version} is there, and whether it is ours cannot be read ({error}). Run again: a repetition "
                "finds out and does nothing twice.",
                commit_key(version),
            ) from error

    def _winners(self, version: int, latest: int) -> Sequence[WinningCommit]:
        """Read every commit from a version on, in order.

        :param latest: the commits up to this one are known to exist, and are read in parallel.
        """
        known = range(version, latest + 1)
        try:
            bodies = list(self._storage.read_many([commit_key(v) for v in known]))
        except FileNotFoundError:
            raise _cleaned(version, latest) from None
        found = [_settled_winner(v, body) for v, body in zip(known, bodies, strict=True)]
        version += len(found)
        while True:
            try:
                found.append(_settled_winner(version, self._storage.read(commit_key(version))))
            except FileNotFoundError:
                return found
            version += 1

    def _finished(self, rebase: Rebase, ours: WinningCommit, transaction_id: str) -> CommitResult:
        """Do what follows a commit. The commit stands, whatever fails here."""
        version, winners = ours.version, [*rebase.winners, ours]
        self._seen.clear()
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
        remapped = frozenset(rebase.remapped)
        return CommitResult(version, False, rebase.dropped, remapped, snapshot, self._checkpointed)


def _cleaned(version: int, latest: int) -> CommitFailed:
    return CommitFailed(
        f"While this ran, others committed up to version {latest}, and their commits were cleaned from the log again, so "
        "whether ours still stands cannot be told. Nothing was committed; run again.",
        version=version,
    )


def _without_files(ours: WinningCommit) -> WinningCommit:
    """Leave out the files of our commit: they cannot conflict with our later commits, and may be many."""
    return replace(ours, actions=[a for a in ours.actions if a.add is None and a.remove is None])


def _winner(version: int, body: bytes) -> WinningCommit:
    return WinningCommit(version, decode_commit(body, commit_key(version)), len(body))


def _settled_winner(version: int, body: bytes) -> WinningCommit:
    """
    :raises CommitFailed: the commit has just appeared and is empty, so nothing is known of it.
    """
    if not body.strip():
        raise unfinished_commit(version)
    return _winner(version, body)


def find_transaction(snapshot: Snapshot, storage: Storage, app_id: str, app_version: int) -> int | None:
    """Return the version that holds exactly this transaction, or ``None``.

    ``txn`` holds only the newest version of an application. Where that is newer than ours, older work (a backfill, a late
    retry) may or may not be done; the commits since then tell.
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
        if winner.transaction_tag == basis_tag:
            return version
        recorded = winner.app_version(app_id)
        if recorded is None:
            continue
        if recorded == app_version and winner.transaction_tag is None:
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
    tag = winner.transaction_tag
    if tag is not None:
        return tag == f"{app_id}:{app_version}"
    return winner.app_version(app_id) == app_version
