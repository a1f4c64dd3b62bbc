"""What somebody else's commit means for ours: the conflict rules, as pure functions.

The protocol leaves conflict detection to writers. Ours rearranges rows and changes none, so an append never concerns
it; what does is that its sources are still the live files that it read, under the same schema and protocol. A source
that got another deletion vector is another logical file: committing over it would bring deleted rows back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from delta_log.actions import Action, Metadata, Protocol
from delta_log.errors import CommitFailed, ConcurrentDelete, MetadataChanged, ProtocolChanged
from delta_log.file_path import address_of


@dataclass(frozen=True, slots=True)
class Basis:
    """What our commit rests on.

    :param sources: keys of the files that we read in order to remove them.
    :param app_id: of our ``txn`` action, and its version.
    """

    table_uri: str
    protocol: Protocol
    metadata: Metadata
    sources: frozenset[str]
    app_id: str | None = None
    app_version: int | None = None


@dataclass(frozen=True, slots=True)
class Winner:
    """A commit that took a version which we wanted."""

    version: int
    actions: Sequence[Action] = field(repr=False)

    @property
    def commit_info(self) -> dict[str, object]:
        return next((a.commitInfo for a in self.actions if a.commitInfo is not None), {})

    def describe(self) -> str:
        info = self.commit_info
        return f"version {self.version} ({info.get('operation', 'unknown operation')}, {info.get('engineInfo', '?')})"


def conflict_of(winner: Winner, basis: Basis) -> CommitFailed | None:
    """Why we cannot commit after this winner, or ``None``: rebase.

    =========================  ==============================================================
    action of the winner       consequence
    =========================  ==============================================================
    ``protocol``, changed      :class:`ProtocolChanged`
    ``metaData``, changed      :class:`MetadataChanged`
    ``remove`` of a source     :class:`ConcurrentDelete` (whatever its deletion vector)
    anything else              rebase
    =========================  ==============================================================
    """
    for action in winner.actions:
        if action.protocol is not None and action.protocol != basis.protocol:
            return ProtocolChanged(_message(winner, "changed the table's protocol"), version=winner.version)
        if action.metaData is not None and _changed(action.metaData, basis.metadata):
            return MetadataChanged(
                _message(winner, "changed the table's schema or properties"), version=winner.version
            )
        if action.remove is not None:
            key = address_of(action.remove.path, basis.table_uri)
            if key in basis.sources:
                return ConcurrentDelete(
                    _message(winner, f"removed or deleted rows from {key}, which was being rewritten"),
                    version=winner.version,
                )
    return None


def _changed(theirs: Metadata, ours: Metadata) -> bool:
    return (theirs.schemaString, theirs.partition_columns, theirs.properties) != (
        ours.schemaString,
        ours.partition_columns,
        ours.properties,
    )


def _message(winner: Winner, what: str) -> str:
    return f"Lost to a concurrent commit: {winner.describe()} {what}. The table is intact; run again to plan anew."
