"""The conflict rules: what another writer's commit means for ours, as pure functions.

The rules find conflicts. :mod:`~delta_log.transaction.rebase` decides what a conflict drops: one group of files (a bin of a
rewrite), which it may also remap, or the whole commit.

The protocol leaves conflict detection to writers. Our commits mostly rearrange rows and change none, so an append does not
conflict with them. They need their sources to be live, as they read them, under a schema and a protocol that still fit. A
source that got another deletion vector is another logical file: a commit over it would bring deleted rows back.

The table says what an action of a winning commit means for ours. :data:`RULES` has a function for each row that can stop a
commit:

=============================  =============================================  ==========================
action of the winner           commit that adds or removes files              commit of ``commitInfo`` only
=============================  =============================================  ==========================
``protocol``                   the gate again; a feature that went, or came   the gate again
                               and concerns how files are written:
                               :class:`ProtocolChanged`
``metaData``                   :class:`MetadataChanged`, unless all that      rebase
                               changed is harmless (:data:`HARMLESS_PROPERTIES`,
                               the high-water marks of identity columns) and
                               our commit sets neither metadata nor protocol
``remove`` of a source         :class:`ConcurrentDelete`, for the group of    —
                               files that it belongs to; the others go on
``add`` of a source, the same  rebase, with its row ids for our ``remove``;   —
logical file                   where tracked ids changed as ``remove``
``add`` or ``remove`` with     rebase; :class:`ConcurrentAppend` where the    rebase
``dataChange`` of other files  commit rests on the whole table
``domainMetadata``             rebase, with row ids above the winner's mark;  rebase
                               :class:`MetadataChanged` for a domain that the
                               commit rests on
``txn`` of our own             already done, if it is this very work; else    as for files
                               rebase
``cdc``, ``commitInfo``,       rebase                                         rebase
anything unknown
=============================  =============================================  ==========================
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from delta_log.errors import (
    CommitFailed,
    ConcurrentAppend,
    ConcurrentDelete,
    MetadataChanged,
    ProtocolChanged,
    brief,
)
from delta_log.log.actions import Action, Add, Metadata, Protocol, Remove
from delta_log.log.data_path import address_of
from delta_log.snapshot.commit_info import is_moment
from delta_log.table_config import features as table_features
from delta_log.table_config.features import (
    Operation,
    reader_features,
    writer_features,
    writes_deletion_vectors,
)
from delta_log.table_config.properties import flag
from delta_log.table_config.row_tracking import DOMAIN, ENABLED, high_water_mark

#: Properties that may change under a commit that writes files, since they do not concern how a file is written.
HARMLESS_PROPERTIES = frozenset(
    {
        "delta.enableInCommitTimestamps",
        "delta.inCommitTimestampEnablementVersion",
        "delta.inCommitTimestampEnablementTimestamp",
        "delta.checkpointPolicy",
        "delta.enableDeletionVectors",
    }
)
#: Features that may join the protocol under a commit that writes files, since they do not concern how a file is written.
HARMLESS_FEATURES = frozenset(
    {
        "allowColumnDefaults",
        "appendOnly",
        "changeDataFeed",
        "checkConstraints",
        "checkpointProtection",
        "deletionVectors",
        "domainMetadata",
        "generatedColumns",
        "identityColumns",
        "inCommitTimestamp",
        "invariants",
        "timestampNtz",
        "v2Checkpoint",
        "vacuumProtocolCheck",
    }
)
IDENTITY_HIGH_WATER_MARK = "delta.identity.highWaterMark"
#: In ``commitInfo.tags``: the piece of work that a commit finishes, as ``appId:version``.
TRANSACTION_TAG = "delta-maintenance.transaction"
#: In ``commitInfo.tags``: which run of this project a commit belongs to, and which task of Airflow has started the run.
RUN_TAG = "delta-maintenance.run"
#: In ``commitInfo.tags``: the run that the run of :data:`RUN_TAG` was a step of.
WHOLE_RUN_TAG = "delta-maintenance.whole-run"
DAG_TAG, TASK_TAG = "airflow.dag_id", "airflow.task_id"


class WinningCommit(Struct, frozen=True):
    """A commit that took a version that ours wanted.

    :param size_bytes: the size of its file.
    """

    version: int
    actions: Sequence[Action]
    size_bytes: int = 0

    @property
    def commit_info(self) -> dict[str, Any]:
        return next((a.commitInfo for a in self.actions if a.commitInfo is not None), {})

    @property
    def transaction_tag(self) -> str | None:
        """The piece of work that the commit finished, by its tag, as ``appId:version``."""
        return self._tags.get(TRANSACTION_TAG)

    @property
    def maintained_by(self) -> str | None:
        """Which run of this project made the commit, for people; ``None``: it was another writer."""
        tags = {name: brief(value) for name, value in self._tags.items() if isinstance(value, str)}
        if DAG_TAG in tags and TASK_TAG in tags:
            return f"task {tags[TASK_TAG]} of DAG {tags[DAG_TAG]}"
        return f"run {tags[RUN_TAG]}" if RUN_TAG in tags else None

    @property
    def _tags(self) -> dict[str, Any]:
        tags = self.commit_info.get("tags")
        return tags if isinstance(tags, dict) else {}

    def app_version(self, app_id: str) -> int | None:
        """Return the version of its ``txn`` for an application."""
        found = (a.txn.version for a in self.actions if a.txn is not None and a.txn.appId == app_id)
        return next(found, None)

    def describe(self) -> str:
        info, by = self.commit_info, self.maintained_by
        facts = [
            info.get("operation", "unknown operation"),
            info.get("engineInfo", "?"),
            *([by] if by else []),
        ]
        return f"version {self.version} ({', '.join(map(str, facts))})"


class Head(Struct, frozen=True):
    """The version that our commit would follow: the version that was read, or the last winner after it.

    :param in_commit_timestamp_ms: the version's; ``None`` where the table has none.
    :param row_id_mark: the greatest row id in use.
    """

    version: int
    protocol: Protocol
    metadata: Metadata
    in_commit_timestamp_ms: int | None = None
    row_id_mark: int = -1

    def after(self, winner: WinningCommit) -> Head:
        protocol, metadata, mark = self.protocol, self.metadata, self.row_id_mark
        for action in winner.actions:
            protocol, metadata = action.protocol or protocol, action.metaData or metadata
            domain = action.domainMetadata
            if domain is not None and domain.domain == DOMAIN:
                mark = high_water_mark(None if domain.removed else domain.configuration)
        stamp = winner.commit_info.get("inCommitTimestamp")
        return replace(
            self,
            version=winner.version,
            protocol=protocol,
            metadata=metadata,
            in_commit_timestamp_ms=stamp if is_moment(stamp) else self.in_commit_timestamp_ms,
            row_id_mark=mark,
        )


class Basis(Struct, frozen=True):
    """What our commit rests on.

    :param sources: the files that it removes or adds again, by key, with the number of the group that each belongs to.
    :param writes_files: ``True`` if it adds or removes files, or says how they are to be written.
    :param whole_table: ``True`` if it rests on all rows of the table.
    :param domains: metadata domains that it rests on.
    :param unused: features of which the table makes no use.
    :param sets_state: ``True`` if it sets the protocol or the metadata, so that a winner's would be lost.
    :param writes_vectors: ``True`` if it deletes rows by deletion vectors.
    """

    table_uri: str
    gate: Operation
    sources: Mapping[str, tuple[int, Add | Remove]]
    writes_files: bool = True
    whole_table: bool = False
    domains: frozenset[str] = frozenset()
    unused: frozenset[str] = frozenset()
    sets_state: bool = False
    writes_vectors: bool = False


class Conflict(Struct, frozen=True):
    """The reason why a commit, or a part of it, cannot follow a winner.

    :param group: the number of the group that cannot be committed; ``None``: the whole commit cannot.
    """

    error: CommitFailed
    group: int | None = None


Rule = Callable[[WinningCommit, Head, Basis], Iterator[Conflict]]


def conflicts_of(winner: WinningCommit, head: Head, basis: Basis) -> list[Conflict]:
    """Return the conflicts of our commit with a winner; none: it can follow.

    :param head: the version before the winner's.
    :raises UnsupportedFeature: the winner made the table one that we must not write to.
    """
    return [conflict for rule in RULES.values() for conflict in rule(winner, head, basis)]


def refreshed_row_ids(winner: WinningCommit, basis: Basis) -> dict[str, Add]:
    """Return the sources, by key, that the winner added again as the same logical file, with their new row ids."""
    return {
        key: add
        for key, add in _added_sources(winner, basis)
        if _same_logical_file(add, basis.sources[key][1])
    }


def _protocol(winner: WinningCommit, head: Head, basis: Basis) -> Iterator[Conflict]:
    for action in winner.actions:
        theirs, ours = action.protocol, head.protocol
        if theirs is None or theirs == ours:
            continue
        table_features.require(theirs, basis.gate, basis.unused)
        before = {*reader_features(ours), *writer_features(ours)}
        now = {*reader_features(theirs), *writer_features(theirs)}
        harmless = frozenset() if basis.sets_state else HARMLESS_FEATURES
        concerned = sorted((before - now) | (now - before - harmless))
        if basis.writes_files and concerned:
            yield Conflict(
                _lost(ProtocolChanged, winner, f"changed the table's features ({', '.join(concerned)})")
            )


def _metadata(winner: WinningCommit, head: Head, basis: Basis) -> Iterator[Conflict]:
    for action in winner.actions:
        if action.metaData is None or not basis.writes_files:
            continue
        changed = _changes(head.metadata, action.metaData)
        if basis.sets_state and action.metaData != head.metadata:
            changed = changed or ["metadata"]
        if basis.writes_vectors and not writes_deletion_vectors(head.protocol, action.metaData.properties):
            changed.append("property delta.enableDeletionVectors")
        if changed:
            yield Conflict(_lost(MetadataChanged, winner, f"changed the table's {', '.join(changed)}"))


def _domains(winner: WinningCommit, head: Head, basis: Basis) -> Iterator[Conflict]:
    for action in winner.actions:
        domain = action.domainMetadata
        if domain is not None and domain.domain in basis.domains:
            yield Conflict(_lost(MetadataChanged, winner, f"changed the metadata domain {domain.domain}"))


def _removed_sources(winner: WinningCommit, head: Head, basis: Basis) -> Iterator[Conflict]:
    for action in winner.actions:
        if action.remove is None:
            continue
        key = address_of(action.remove.path, basis.table_uri)
        if key in basis.sources:
            yield _lost_source(winner, basis, key, "removed or deleted rows from")


def _changed_sources(winner: WinningCommit, head: Head, basis: Basis) -> Iterator[Conflict]:
    tracked = flag(head.metadata.properties, ENABLED)
    for key, add in _added_sources(winner, basis):
        ours = basis.sources[key][1]
        if not _same_logical_file(add, ours):
            yield _lost_source(winner, basis, key, "changed")
        elif tracked and ours.baseRowId is not None and add.baseRowId != ours.baseRowId:
            yield _lost_source(winner, basis, key, "gave new row ids to")


def _changed_rows(winner: WinningCommit, head: Head, basis: Basis) -> Iterator[Conflict]:
    if not basis.whole_table:
        return
    for action in winner.actions:
        file = action.add or action.remove
        # An absent dataChange counts as true: a needless conflict is better than a wrong row.
        if file is not None and file.dataChange is not False:
            yield Conflict(
                _lost(ConcurrentAppend, winner, "changed rows, and the commit rests on all of them")
            )
            return


#: The rules by the action of the winner that each is about.
RULES: dict[str, Rule] = {
    "protocol": _protocol,
    "metaData": _metadata,
    "domainMetadata": _domains,
    "remove of a source": _removed_sources,
    "add of a source": _changed_sources,
    "changed rows": _changed_rows,
}


def _added_sources(winner: WinningCommit, basis: Basis) -> Iterator[tuple[str, Add]]:
    if not basis.sources:
        return
    for action in winner.actions:
        if action.add is not None:
            key = address_of(action.add.path, basis.table_uri)
            if key in basis.sources:
                yield key, action.add


def _same_logical_file(theirs: Add, ours: Add | Remove) -> bool:
    vectors = [file.deletionVector and file.deletionVector.unique_id for file in (theirs, ours)]
    return vectors[0] == vectors[1] and ours.size in (None, theirs.size)


def _lost_source(winner: WinningCommit, basis: Basis, key: str, what: str) -> Conflict:
    error = _lost(ConcurrentDelete, winner, f"{what} {key}, which was being rewritten")
    return Conflict(error, basis.sources[key][0])


def _changes(ours: Metadata, theirs: Metadata) -> list[str]:
    """Name the differences that concern how files are written."""
    before, now = ours.properties, theirs.properties
    properties = {name for name in {*before, *now} if before.get(name) != now.get(name)}
    facts = {
        "identity": ours.id != theirs.id,
        "schema": ours.schemaString != theirs.schemaString
        and without_identity_marks(ours.schemaString) != without_identity_marks(theirs.schemaString),
        "partition columns": ours.partition_columns != theirs.partition_columns,
    }
    return [name for name, changed in facts.items() if changed] + [
        f"property {name}" for name in sorted(properties - HARMLESS_PROPERTIES)
    ]


def without_identity_marks(schema: str) -> Any:
    """Parse a schema and leave out the high-water marks of identity columns, which an append moves."""

    def stripped(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: stripped(v) for name, v in value.items() if name != IDENTITY_HIGH_WATER_MARK}
        return [stripped(v) for v in value] if isinstance(value, list) else value

    try:
        return stripped(json.loads(schema))
    except (ValueError, RecursionError):
        return schema


def _lost(kind: type[CommitFailed], winner: WinningCommit, what: str) -> CommitFailed:
    """Make the error of a commit that cannot follow a winner."""
    by = winner.maintained_by
    remedy = (
        " Two jobs maintain this table at the same time: let one begin after the other, for example in a pool of one slot."
        if by is not None
        else ""
    )
    return kind(
        f"Lost to a concurrent commit: {winner.describe()} {what}. The table is intact; run again to plan anew.{remedy}",
        version=winner.version,
        maintained_by=by,
    )
