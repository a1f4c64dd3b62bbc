"""Committing a version: put-if-absent, conflict rules, rebase.

Protocol sections "Atomicity" and "In-Commit Timestamps". A commit is one object that nobody else has created yet.
Whoever loses that race reads what won, asks :mod:`delta_log.conflict` whether its own commit still stands, and tries
the next version. An outcome that is not known (the store failed after it got the bytes) is found out by reading the
object back and comparing ``txnId``; nothing is ever repeated blindly.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from delta_log import table_features
from delta_log.actions import Action, Add, Remove, SetTransaction, decode_actions, encode_actions
from delta_log.conflict import Basis, Winner, conflict_of
from delta_log.errors import CommitContention, CommitFailed, StorageError
from delta_log.file_path import address_of
from delta_log.history import ICT_ENABLED, read_commit_info
from delta_log.log_path import commit_key
from delta_log.log_segment import list_log
from delta_log.runtime import Runtime
from delta_log.snapshot import Snapshot
from delta_log.storage import Storage
from delta_log.table_features import Operation
from delta_log.table_properties import flag
from delta_log.version import VERSION

ENGINE_INFO = f"airflow-provider-delta/{VERSION}"
#: In ``commitInfo.tags``: the piece of work that a commit finishes, as ``appId:version``.
TRANSACTION_TAG = "delta-maintenance.transaction"
_MAX_ATTEMPTS = 50
_MAX_WAIT_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Change:
    """What a commit does, and what is said about it.

    :param parameters: of the operation; anything but a string is written as JSON text.
    :param metrics: integers; written as strings, as every writer does.
    :param transaction: application id and version: this piece of work is done at most once.
    """

    operation: str
    adds: Sequence[Add] = ()
    removes: Sequence[Remove] = ()
    parameters: Mapping[str, Any] | None = None
    metrics: Mapping[str, int] | None = None
    transaction: tuple[str, int] | None = None
    tags: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class CommitResult:
    """``already_done``: ``version`` holds the same transaction, committed by an earlier or a concurrent try."""

    version: int
    already_done: bool = False


class Transaction:
    """One commit on the base of one snapshot.

    :param gate: the operation that the table's protocol must allow.
    :raises UnsupportedFeature: it does not.
    :raises InvalidRequest: the store cannot commit safely.
    """

    def __init__(self, storage: Storage, snapshot: Snapshot, gate: Operation, runtime: Runtime) -> None:
        table_features.require(snapshot.protocol, gate)
        storage.require_writable()
        self._storage, self._snapshot, self._runtime = storage, snapshot, runtime

    def commit(self, change: Change) -> CommitResult:
        """Make the change the table's next version.

        :raises CommitFailed: another writer's commit contradicts ours; nothing was committed.
        :raises StorageError: the store failed, and ours is not in the log.
        """
        basis = self._basis(change)
        transaction_id = self._runtime.new_id()
        enabled = flag(self._snapshot.properties, ICT_ENABLED)
        previous_ms = self._snapshot.timestamp_ms if enabled else None
        last_version = self._snapshot.transactions.get(basis.app_id) if basis.app_id is not None else None
        version = self._snapshot.version + 1
        winners: list[int] = []
        for attempt in range(_MAX_ATTEMPTS):
            self._require_no_hole(version)
            body = self._body(change, transaction_id, previous_ms, last_version)
            if self._put(version, body, transaction_id):
                return CommitResult(version)
            for winner in self._winners(version):
                winners.append(winner.version)
                done = _transaction_of(winner, basis)
                if done == basis.app_version and done is not None:
                    return CommitResult(winner.version, already_done=True)
                conflict = conflict_of(winner, basis)
                if conflict is not None:
                    conflict.winning_commits = tuple(winners)
                    raise conflict
                last_version = max(
                    filter(None, (last_version, _app_version(winner, basis.app_id))), default=None
                )
                if enabled:
                    stamp = winner.commit_info.get("inCommitTimestamp")
                    previous_ms = max(previous_ms or 0, stamp if isinstance(stamp, int) else 0)
                version = winner.version + 1
            self._runtime.sleep(min(_MAX_WAIT_SECONDS, 0.01 * 2**attempt) * self._runtime.jitter())
        raise CommitContention(
            f"Other writers took {_MAX_ATTEMPTS} versions in a row, up to {version - 1}. Nothing was committed; "
            "run again when the table is quieter.",
            version=version,
            winning_commits=tuple(winners),
        )

    def _require_no_hole(self, version: int) -> None:
        """A version that somebody committed long ago and log cleanup removed is free, and yet taken."""
        latest = list_log(self._storage, self._snapshot.version).latest
        if latest > version and self._storage.head(commit_key(version)) is None:
            raise CommitFailed(
                f"While this ran, others committed up to version {latest}, and their commits were cleaned from the "
                "log again, so nobody can tell whether ours still stands. Nothing was committed; run again.",
                version=version,
            )

    def _basis(self, change: Change) -> Basis:
        uri = self._storage.uri
        app_id, app_version = change.transaction or (None, None)
        return Basis(
            uri,
            self._snapshot.protocol,
            self._snapshot.metadata,
            frozenset(address_of(remove.path, uri) for remove in change.removes),
            app_id,
            app_version,
        )

    def _put(self, version: int, body: bytes, transaction_id: str) -> bool:
        try:
            return self._storage.put_if_absent(commit_key(version), body)
        except StorageError:
            # Did it take effect all the same? Only the log knows.
            info = read_commit_info(self._storage, version)
            if info is not None and info.get("txnId") == transaction_id:
                return True
            if self._storage.head(commit_key(version)) is None:
                raise
            return False

    def _winners(self, version: int) -> Sequence[Winner]:
        """Every commit from a version on, in order."""
        found = []
        while True:
            key = commit_key(version)
            try:
                found.append(Winner(version, decode_actions(self._storage.read(key), key)))
            except FileNotFoundError:
                return found
            version += 1

    def _body(
        self, change: Change, transaction_id: str, previous_ms: int | None, last_version: int | None
    ) -> bytes:
        now_ms = self._runtime.now_ms()
        info: dict[str, Any] = {"timestamp": now_ms}
        if previous_ms is not None:
            info["inCommitTimestamp"] = max(now_ms, previous_ms + 1)
        info |= {
            "operation": change.operation,
            "operationParameters": {
                name: value if isinstance(value, str) else json.dumps(value)
                for name, value in (change.parameters or {}).items()
            },
            "readVersion": self._snapshot.version,
            "isolationLevel": "SnapshotIsolation",
            "isBlindAppend": False,
            "operationMetrics": {name: str(value) for name, value in (change.metrics or {}).items()},
            "engineInfo": ENGINE_INFO,
            "txnId": transaction_id,
        }
        tags = dict(change.tags or {})
        actions: list[Action] = []
        if change.transaction is not None:
            app_id, app_version = change.transaction
            tags[TRANSACTION_TAG] = f"{app_id}:{app_version}"
            # An application's version never falls: older work that is done late leaves its mark in the tag alone.
            recorded = max(app_version, last_version if last_version is not None else app_version)
            actions.append(Action(txn=SetTransaction(app_id, recorded, now_ms)))
        if tags:
            info["tags"] = tags
        actions += [Action(remove=remove) for remove in change.removes]
        actions += [Action(add=add) for add in change.adds]
        return encode_actions([Action(commitInfo=info), *actions])


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
            winner = Winner(version, decode_actions(storage.read(commit_key(version)), commit_key(version)))
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


def _transaction_of(winner: Winner, basis: Basis) -> int | None:
    if basis.app_id is None:
        return None
    if _tag_of(winner) == f"{basis.app_id}:{basis.app_version}":
        return basis.app_version
    return _app_version(winner, basis.app_id) if _tag_of(winner) is None else None


def _tag_of(winner: Winner) -> str | None:
    tags = winner.commit_info.get("tags")
    return tags.get(TRANSACTION_TAG) if isinstance(tags, dict) else None


def _app_version(winner: Winner, app_id: str | None) -> int | None:
    return next((a.txn.version for a in winner.actions if a.txn is not None and a.txn.appId == app_id), None)
