"""Reconciling commits: which actions of which version still count.

Protocol section "Action Reconciliation". Commits are taken newest first, and the first action wins: per appId for
``txn``, per domain for ``domainMetadata``, one ``protocol`` and one ``metaData``, and for files per *(decoded path,
deletion vector id)*. The order of actions inside one commit means nothing.

The commits after a checkpoint are few and are decoded to values. The checkpoint may hold millions of files, and is only
filtered by what the commits name; see :mod:`delta_log.snapshot.live_files`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from msgspec import Struct, field

from delta_log.errors import OTHER_COMMIT, CorruptLog
from delta_log.log.action_columns import SEPARATOR, columns_if_many, merged
from delta_log.log.actions import (
    Action,
    Add,
    DomainMetadata,
    Metadata,
    Protocol,
    Remove,
    SetTransaction,
    decode_actions,
    decode_commit,
)
from delta_log.log.data_path import decode_paths
from delta_log.log.file_names import LogFile, LogFileKind
from delta_log.storage.storage import Storage


class ReplayedCommits(Struct):
    """The actions of some successive commits that still count.

    :ivar adds: actions by identity, newest first; ``removes`` likewise. See :mod:`delta_log.log.action_columns`.
    :ivar commit_infos: ``commitInfo`` by version, where the commit itself was read and not a compaction.
    """

    protocol: Protocol | None = None
    metadata: Metadata | None = None
    transactions: dict[str, SetTransaction] = field(default_factory=dict)
    domains: dict[str, DomainMetadata] = field(default_factory=dict)
    adds: Mapping[str, Add] = field(default_factory=dict)
    removes: Mapping[str, Remove] = field(default_factory=dict)
    commit_infos: dict[int, dict[str, Any]] = field(default_factory=dict)

    @property
    def has_files(self) -> bool:
        return bool(self.adds or self.removes)

    @property
    def is_empty(self) -> bool:
        """Whether the commits hold nothing that counts, as the commits of VACUUM do."""
        others = (self.protocol, self.metadata, self.transactions, self.domains)
        return not self.has_files and not any(others)

    def over(self, older: ReplayedCommits) -> ReplayedCommits:
        """These commits and the older ones before them."""
        return ReplayedCommits(
            self.protocol or older.protocol,
            self.metadata or older.metadata,
            {**older.transactions, **self.transactions},
            {**older.domains, **self.domains},
            merged("add", self.adds, older.adds, self.adds, self.removes),
            merged("remove", self.removes, older.removes, self.adds, self.removes),
            {**older.commit_infos, **self.commit_infos},
        )


def replay_commits(storage: Storage, files: Sequence[LogFile], table_uri: str) -> ReplayedCommits:
    """Read and reconcile commits and compactions, given in ascending order."""
    newest_first = list(reversed(files))
    bodies = storage.read_many([f.key for f in newest_first])
    replayed = reconcile(
        ((file, _actions_of(file, data)) for file, data in zip(newest_first, bodies, strict=True)), table_uri
    )
    replayed.adds = columns_if_many("add", replayed.adds)
    replayed.removes = columns_if_many("remove", replayed.removes)
    return replayed


def _actions_of(file: LogFile, data: bytes) -> list[Action]:
    decode = decode_commit if file.kind is LogFileKind.COMMIT else decode_actions
    return decode(data, file.key)


def reconcile(newest_first: Iterable[tuple[LogFile, Sequence[Action]]], table_uri: str) -> ReplayedCommits:
    """Reconcile commits and compactions, given with their actions in descending order.

    :raises CorruptLog: a file is live under two deletion vectors.
    """
    adds: dict[str, Add] = {}
    removes: dict[str, Remove] = {}
    replayed = ReplayedCommits(adds=adds, removes=removes)
    file_actions: list[Add | Remove] = []
    live: set[str] = set()
    for file, actions in newest_first:
        file_actions += _take_others(replayed, file, actions)
    keys = _decoded([action.path for action in file_actions], table_uri)
    for action, key in zip(file_actions, keys, strict=True):
        vector = action.deletionVector
        identity = key + SEPARATOR + ("" if vector is None else vector.unique_id)
        if identity in adds or identity in removes:
            continue
        if isinstance(action, Remove):
            removes[identity] = action
            continue
        if key in live:
            raise CorruptLog(
                key, "two live adds name this file, under different deletion vectors", OTHER_COMMIT
            )
        live.add(key)
        adds[identity] = action
    return replayed


def _take_others(
    replayed: ReplayedCommits, file: LogFile, actions: Sequence[Action]
) -> Iterator[Add | Remove]:
    """Reconcile the actions that are not about files, and yield the others."""
    protocol = metadata = None
    for action in actions:
        if action.add is not None:
            yield action.add
        elif action.remove is not None:
            yield action.remove
        elif action.commitInfo is not None and file.kind is LogFileKind.COMMIT:
            replayed.commit_infos.setdefault(file.version, action.commitInfo)
        elif action.txn is not None:
            replayed.transactions.setdefault(action.txn.appId, action.txn)
        elif action.domainMetadata is not None:
            replayed.domains.setdefault(action.domainMetadata.domain, action.domainMetadata)
        else:
            metadata = action.metaData or metadata
            protocol = action.protocol or protocol
    replayed.protocol = replayed.protocol or protocol
    replayed.metadata = replayed.metadata or metadata


def _decoded(paths: list[str], table_uri: str) -> Sequence[str]:
    array = pa.array(paths, pa.string())
    decoded = decode_paths(array, table_uri)
    # Paths are mostly their own keys, and then nothing is converted.
    return paths if decoded is array else decoded.to_pylist()
