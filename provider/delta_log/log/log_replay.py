"""Reconciling the log: which actions of which version still count.

Protocol section "Action Reconciliation". Newest first, the first action seen wins: per appId for ``txn``, per domain
for ``domainMetadata``, one ``protocol`` and one ``metaData``, and for files per *(decoded path, deletion vector id)*.
The order of actions inside one commit means nothing.

The tail (commits after the checkpoint) is small and is decoded to values; the checkpoint may hold millions of files
and is only ever filtered by what the tail has seen, which is :mod:`delta_log.snapshot.live_files`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from delta_log.errors import CorruptLog
from delta_log.log.action_columns import SEPARATOR, ActionColumns, Item
from delta_log.log.actions import (
    Action,
    Add,
    DomainMetadata,
    Metadata,
    Protocol,
    Remove,
    SetTransaction,
    decode_actions,
)
from delta_log.log.data_path import decode_paths
from delta_log.log.file_names import LogFile, LogFileKind
from delta_log.storage.storage import Storage

#: More file actions than these, of one kind, become columns.
MANY_ACTIONS = 50_000


@dataclass(slots=True)
class ReplayedCommits:
    """The reconciled actions of the commits after the checkpoint."""

    protocol: Protocol | None = None
    metadata: Metadata | None = None
    transactions: dict[str, SetTransaction] = field(default_factory=dict)
    domains: dict[str, DomainMetadata] = field(default_factory=dict)
    #: By file action key, newest first.
    adds: Mapping[str, Add] = field(default_factory=dict)
    removes: Mapping[str, Remove] = field(default_factory=dict)
    #: ``commitInfo`` by version, as far as commits (not compactions) were read.
    commit_infos: dict[int, dict[str, Any]] = field(default_factory=dict)

    @property
    def has_files(self) -> bool:
        return bool(self.adds or self.removes)

    def over(self, older: ReplayedCommits) -> ReplayedCommits:
        """Both tails as one, this one being the newer."""
        return ReplayedCommits(
            self.protocol or older.protocol,
            self.metadata or older.metadata,
            {**older.transactions, **self.transactions},
            {**older.domains, **self.domains},
            self._over("add", self.adds, older.adds),
            self._over("remove", self.removes, older.removes),
            {**older.commit_infos, **self.commit_infos},
        )

    def _over(self, action: str, newer: Mapping[str, Item], older: Mapping[str, Item]) -> Mapping[str, Item]:
        if not isinstance(newer, ActionColumns) and not isinstance(older, ActionColumns):
            return {**newer, **{key: item for key, item in older.items() if not self.knows(key)}}
        columns = [
            found if isinstance(found, ActionColumns) else ActionColumns.emptying(action, dict(found))
            for found in (newer, older)
        ]
        if self.has_files:
            columns[1] = columns[1].without(pa.array([*self.adds, *self.removes], pa.string()))
        return columns[0].then(columns[1])

    def knows(self, key: str) -> bool:
        return key in self.adds or key in self.removes


def replay_commits(storage: Storage, files: Sequence[LogFile], table_uri: str) -> ReplayedCommits:
    """Read and reconcile commits and compactions, given in ascending order."""
    newest_first = list(reversed(files))
    bodies = storage.read_many([f.key for f in newest_first])
    tail = reconcile(
        ((file, decode_actions(data, file.key)) for file, data in zip(newest_first, bodies, strict=True)),
        table_uri,
    )
    tail.adds, tail.removes = _compact("add", tail.adds), _compact("remove", tail.removes)
    return tail


def reconcile(newest_first: Iterable[tuple[LogFile, Sequence[Action]]], table_uri: str) -> ReplayedCommits:
    """The actions of commits and compactions that still count, from theirs in descending order of version."""
    adds: dict[str, Add] = {}
    removes: dict[str, Remove] = {}
    tail = ReplayedCommits(adds=adds, removes=removes)
    file_actions: list[Add | Remove] = []
    live: set[str] = set()
    for file, actions in newest_first:
        file_actions += _take_others(tail, file, actions)
    for action, key in zip(
        file_actions, _decoded([action.path for action in file_actions], table_uri), strict=True
    ):
        identity = (
            key + SEPARATOR + ("" if action.deletionVector is None else action.deletionVector.unique_id)
        )
        if identity in adds or identity in removes:
            continue
        if isinstance(action, Remove):
            removes[identity] = action
            continue
        if key in live:
            raise CorruptLog(key, "two live adds name this file, under different deletion vectors")
        live.add(key)
        adds[identity] = action
    return tail


def _compact(action: str, found: Mapping[str, Item]) -> Mapping[str, Item]:
    if len(found) <= MANY_ACTIONS or not isinstance(found, dict):
        return found
    return ActionColumns.emptying(action, found)


def _take_others(tail: ReplayedCommits, file: LogFile, actions: Sequence[Action]) -> Iterator[Add | Remove]:
    """Reconcile what is not about files, and hand on what is."""
    protocol = metadata = None
    for action in actions:
        if action.add is not None:
            yield action.add
        elif action.remove is not None:
            yield action.remove
        elif action.commitInfo is not None and file.kind is LogFileKind.COMMIT:
            tail.commit_infos.setdefault(file.version, action.commitInfo)
        elif action.txn is not None:
            tail.transactions.setdefault(action.txn.appId, action.txn)
        elif action.domainMetadata is not None:
            tail.domains.setdefault(action.domainMetadata.domain, action.domainMetadata)
        else:
            metadata = action.metaData or metadata
            protocol = action.protocol or protocol
    tail.protocol = tail.protocol or protocol
    tail.metadata = tail.metadata or metadata


def _decoded(paths: list[str], table_uri: str) -> Sequence[str]:
    array = pa.array(paths, pa.string())
    decoded = decode_paths(array, table_uri)
    # Paths are mostly their own keys, and then nothing is converted.
    return paths if decoded is array else decoded.to_pylist()
