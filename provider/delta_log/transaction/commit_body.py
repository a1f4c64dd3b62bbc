"""A change to a table as a value, and the body of the commit that makes it.

Protocol sections "Commit Provenance Information", "Transaction Identifiers" and "In-Commit Timestamps".
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct, field

from delta_log.errors import InvalidRequest
from delta_log.log.actions import (
    Action,
    Add,
    DomainMetadata,
    Metadata,
    Protocol,
    Remove,
    SetTransaction,
    encode_actions,
)
from delta_log.log.data_path import address_of
from delta_log.snapshot.commit_info import ICT_ENABLED
from delta_log.table_config.features import Operation
from delta_log.table_config.properties import flag
from delta_log.table_config.row_tracking import assigns_row_ids, with_row_ids
from delta_log.transaction.conflict import TRANSACTION_TAG, Basis, Head
from delta_log.version import VERSION

ENGINE_INFO = f"airflow-provider-delta/{VERSION}"

Metrics = Mapping[str, int]
#: Makes a group of a change anew. Given are the group's number, the version that the commit will follow, and, for the
#: group's sources that other commits have touched, the live file actions by key. Raises :class:`~delta_log.errors.CommitFailed` where
#: that is not possible.
Remap = Callable[[int, Head, Mapping[str, Sequence[Add | Remove]]], "FileGroup"]


class FileGroup(Struct, frozen=True):
    """Files that replace others. A group is committed whole, or not at all where its sources changed."""

    adds: Sequence[Add] = ()
    removes: Sequence[Remove] = ()


class Change(Struct, frozen=True):
    """The actions of a commit, and what ``commitInfo`` says about them.

    :param groups: independent groups. One that lost its sources is left out, and the rest is committed.
    :param parameters: parameters of the operation; anything but a string is written as JSON text.
    :param metrics: integers, written as strings, as all writers do; or a function of the numbers of the committed groups.
    :param transaction: application id and version of this piece of work, which is done at most once.
    :param metadata: the new metadata; or a function of the version that the commit becomes, which is asked anew after each lost race.
    :param whole_table: the change rests on all rows of the table, so no concurrent commit may change any.
    :param rests_on_domains: metadata domains that must stay as they were read.
    :param writes_vectors: the change deletes rows by deletion vectors, so the table must go on to allow them.
    :param remap: function that makes a group anew whose sources changed, after each lost race; without it such a group is left out.
    """

    operation: str
    groups: Sequence[FileGroup] = ()
    parameters: Mapping[str, Any] | None = None
    metrics: Metrics | Callable[[Sequence[int]], Metrics] | None = None
    transaction: tuple[str, int] | None = None
    tags: Mapping[str, str] | None = None
    protocol: Protocol | None = None
    metadata: Metadata | Callable[[int], Metadata] | None = None
    domains: Sequence[DomainMetadata] = ()
    whole_table: bool = False
    rests_on_domains: frozenset[str] = frozenset()
    writes_vectors: bool = False
    remap: Remap | None = None

    def basis(self, table_uri: str, gate: Operation, unused: frozenset[str] = frozenset()) -> Basis:
        """Return what the change rests on.

        :param unused: features of the protocol that the table does not use.
        :raises InvalidRequest: two groups remove the same file, or one commit both changes and rearranges rows.
        """
        sources: dict[str, tuple[int, Add | Remove]] = {}
        for number, group in enumerate(self.groups):
            for remove in group.removes:
                key = address_of(remove.path, table_uri)
                if key in sources:
                    raise InvalidRequest(f"{remove.path} would be removed twice by one commit.")
                sources[key] = number, remove
        for number, group in enumerate(self.groups):
            for add in group.adds:
                # A file that is added again with other facts must still be live.
                sources.setdefault(address_of(add.path, table_uri), (number, add))
        if len({file.dataChange for file in self.files}) > 1:
            raise InvalidRequest(
                "A commit either changes rows or rearranges them; dataChange may not differ."
            )
        return Basis(
            table_uri,
            gate,
            sources,
            writes_files=bool(self.groups) or self.metadata is not None or self.protocol is not None,
            whole_table=self.whole_table,
            domains=self.rests_on_domains,
            unused=unused,
            sets_state=self.protocol is not None or self.metadata is not None,
            writes_vectors=self.writes_vectors,
        )

    @property
    def files(self) -> list[Add | Remove]:
        found: list[Add | Remove] = []
        for group in self.groups:
            found += [*group.removes, *group.adds]
        return found

    @property
    def changes_rows(self) -> bool:
        return any(file.dataChange is not False for file in self.files)

    @property
    def is_blind_append(self) -> bool:
        return self.changes_rows and not self.whole_table and not any(group.removes for group in self.groups)


class Attempt(Struct, frozen=True):
    """One try at one version: all that the body depends on besides the :class:`Change`.

    :param head: the version before.
    :param kept: numbers of the groups to commit.
    :param refreshed_row_ids: sources by key, with newer row ids for their ``remove``.
    :param last_app_version: the table's ``txn`` version of our application.
    :param remapped: groups by number that replace groups of the change.
    """

    head: Head
    read_version: int
    kept: tuple[int, ...]
    refreshed_row_ids: Mapping[str, Add]
    transaction_id: str
    last_app_version: int | None
    now_ms: int
    table_uri: str
    remapped: Mapping[int, FileGroup] = field(default_factory=dict)

    @property
    def version(self) -> int:
        return self.head.version + 1


def body_of(change: Change, attempt: Attempt) -> bytes:
    """Return the commit's content: ``commitInfo`` first, then the other actions, one on each line."""
    head = attempt.head
    changed = change.metadata(attempt.version) if callable(change.metadata) else change.metadata
    metadata, protocol = changed or head.metadata, change.protocol or head.protocol
    groups = [attempt.remapped.get(number, change.groups[number]) for number in attempt.kept]
    adds: Sequence[Add] = [add for group in groups for add in group.adds]
    domains = list(change.domains)
    if assigns_row_ids(protocol, metadata):
        adds, domain = with_row_ids(adds, head.row_id_mark, attempt.version)
        domains += [domain] if domain is not None else []
    actions = [Action(commitInfo=_commit_info(change, attempt, metadata))]
    if change.transaction is not None:
        app_id, app_version = change.transaction
        # The version of an application never falls: older work that is done late is recorded only in the tag.
        last = attempt.last_app_version
        recorded = app_version if last is None else max(app_version, last)
        actions.append(Action(txn=SetTransaction(app_id, recorded, attempt.now_ms)))
    actions += [Action(protocol=change.protocol)] if change.protocol is not None else []
    actions += [Action(metaData=changed)] if changed is not None else []
    actions += [Action(domainMetadata=domain) for domain in domains]
    actions += [
        Action(
            remove=_with_ids_of(
                attempt.refreshed_row_ids.get(address_of(remove.path, attempt.table_uri)), remove
            )
        )
        for group in groups
        for remove in group.removes
    ]
    actions += [Action(add=add) for add in adds]
    return encode_actions(actions)


def _commit_info(change: Change, attempt: Attempt, metadata: Metadata) -> dict[str, Any]:
    info: dict[str, Any] = {"timestamp": attempt.now_ms}
    if flag(metadata.properties, ICT_ENABLED):
        info["inCommitTimestamp"] = max(attempt.now_ms, (attempt.head.in_commit_timestamp_ms or 0) + 1)
    metrics = change.metrics(attempt.kept) if callable(change.metrics) else change.metrics
    info |= {
        "operation": change.operation,
        "operationParameters": {
            name: value if isinstance(value, str) else json.dumps(value)
            for name, value in (change.parameters or {}).items()
        },
        "readVersion": attempt.read_version,
        "isolationLevel": "WriteSerializable" if change.changes_rows else "SnapshotIsolation",
        "isBlindAppend": change.is_blind_append,
        "operationMetrics": {name: str(value) for name, value in (metrics or {}).items()},
        "engineInfo": ENGINE_INFO,
        "txnId": attempt.transaction_id,
    }
    tags = dict(change.tags or {})
    if change.transaction is not None:
        app_id, app_version = change.transaction
        tags[TRANSACTION_TAG] = f"{app_id}:{app_version}"
    return {**info, "tags": tags} if tags else info


def _with_ids_of(add: Add | None, remove: Remove) -> Remove:
    if add is None:
        return remove
    return msgspec.structs.replace(
        remove, baseRowId=add.baseRowId, defaultRowCommitVersion=add.defaultRowCommitVersion
    )
