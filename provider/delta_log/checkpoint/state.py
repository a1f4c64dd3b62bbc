"""What a checkpoint of a snapshot has to hold: the live state, less what has expired.

Protocol sections "Checkpoints" and "Action Reconciliation". A checkpoint holds one protocol, one metadata, live
transactions and domains, live files (with ``dataChange`` false and every other member), and unexpired tombstones
(without ``stats`` and ``tags``). Members that the protocol does not name are not carried over: anything that a reader
would miss comes with a table feature, and unknown features are refused before. Members that the protocol requires and
a writer left out are completed. The writer compares what it writes and what it reads back in this form.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc
from msgspec.structs import replace

from delta_log.arrow.row_hash import RowHash
from delta_log.errors import InvalidProperty
from delta_log.log.actions import Action, DomainMetadata, Metadata, Protocol, SetTransaction
from delta_log.log.checkpoint_reader import OtherActions
from delta_log.log.data_path import decode_paths
from delta_log.log.file_columns import ADD_SCHEMA, REMOVE_SCHEMA
from delta_log.snapshot.replayed_log import (
    complete_adds,
    complete_metadata,
    complete_removes,
)
from delta_log.snapshot.snapshot import Snapshot
from delta_log.table_config.properties import deleted_file_retention_ms, transaction_retention_ms

FileAction = Literal["add", "remove"]
#: The columns of :mod:`~delta_log.log.file_columns` that a checkpoint holds.
ADD_COLUMNS = tuple(ADD_SCHEMA.names)
REMOVE_COLUMNS = tuple(name for name in REMOVE_SCHEMA.names if name != "tags")
COLUMNS: dict[FileAction, tuple[str, ...]] = {"add": ADD_COLUMNS, "remove": REMOVE_COLUMNS}
#: Before every time of a log.
_NEVER_MS = -(1 << 63)
#: The columns in which two checkpoints of a version must agree about live files; writers may differ in all others.
IDENTITY = ("key", "size", "deletion_vector")


@dataclass(frozen=True, slots=True)
class CheckpointState:
    """The state of one version as a checkpoint holds it.

    :ivar expiry_ms: tombstones of files deleted at or before this time have expired.
    :ivar warnings: properties that cannot be read, so that nothing expires by them.
    """

    version: int
    protocol: Protocol
    metadata: Metadata
    transactions: tuple[SetTransaction, ...]
    domains: tuple[DomainMetadata, ...]
    expiry_ms: int
    warnings: tuple[str, ...]
    _snapshot: Snapshot = field(repr=False, compare=False)

    @classmethod
    def of(cls, snapshot: Snapshot, now_ms: int) -> CheckpointState:
        warnings: list[str] = []
        expiry_ms, oldest_ms = _NEVER_MS, _NEVER_MS
        try:
            expiry_ms = now_ms - deleted_file_retention_ms(snapshot.properties)
        except InvalidProperty as error:
            warnings.append(f"the checkpoint keeps all removals: {error}")
        try:
            retention_ms = transaction_retention_ms(snapshot.properties)
            oldest_ms = _NEVER_MS if retention_ms is None else now_ms - retention_ms
        except InvalidProperty as error:
            warnings.append(f"the checkpoint keeps all transactions: {error}")
        return cls(
            snapshot.version,
            snapshot.protocol,
            complete_metadata(snapshot.metadata),
            _live_transactions(snapshot, oldest_ms),
            tuple(sorted(snapshot.domains, key=lambda d: d.domain)),
            expiry_ms,
            tuple(warnings),
            snapshot,
        )

    @property
    def table_uri(self) -> str:
        return self._snapshot.table_uri

    @property
    def other_actions(self) -> tuple[Action, ...]:
        """Everything that is not about files."""
        return (
            Action(protocol=self.protocol),
            Action(metaData=self.metadata),
            *(Action(txn=transaction) for transaction in self.transactions),
            *(Action(domainMetadata=domain) for domain in self.domains),
        )

    def adds(self, columns: Sequence[str] = ADD_COLUMNS) -> Iterator[pa.RecordBatch]:
        return map(complete_adds, self._snapshot.file_batches(columns))

    def removes(self) -> Iterator[pa.RecordBatch]:
        return self.unexpired(self._snapshot.tombstone_batches(REMOVE_COLUMNS))

    def unexpired(self, tombstones: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Keep the tombstones that still count; one without a deletion time counts as deleted in 1970."""
        for batch in tombstones:
            when = pc.fill_null(batch.column("deletion_timestamp"), 0)
            kept = complete_removes(batch).filter(pc.greater(when, self.expiry_ms))
            if kept.num_rows:
                yield kept

    def differences(self, other: OtherActions) -> list[str]:
        """Name the kinds of action, files apart, in which a checkpoint differs from this state."""
        found = {
            "protocol": other.protocol == self.protocol,
            "metaData": other.metadata is not None and _is_same_metadata(other.metadata, self.metadata),
            # The checkpoint may hold more of them: its writer's clock may have been behind ours.
            "txn": all(other.transactions.get(t.appId) == t for t in self.transactions),
            "domainMetadata": tuple(sorted(other.domains.values(), key=lambda d: d.domain)) == self.domains,
        }
        return [name for name, same in found.items() if not same]


def identities_of(adds: pa.RecordBatch, table_uri: str) -> pa.RecordBatch:
    """Adds of a checkpoint, which have a ``path``, in the columns :data:`IDENTITY`."""
    keys = decode_paths(adds.column("path"), table_uri)
    return pa.record_batch([keys, *map(adds.column, IDENTITY[1:])], list(IDENTITY))


def row_hash_of(batches: Iterable[pa.RecordBatch]) -> RowHash:
    total = RowHash()
    for batch in batches:
        total = total.plus(RowHash.of(batch, ordered_maps=False))
    return total


def _live_transactions(snapshot: Snapshot, oldest_ms: int) -> tuple[SetTransaction, ...]:
    return tuple(
        transaction
        for transaction in sorted(snapshot.set_transactions, key=lambda t: t.appId)
        if oldest_ms == _NEVER_MS
        or (transaction.lastUpdated is not None and transaction.lastUpdated > oldest_ms)
    )


def _is_same_metadata(found: Metadata, expected: Metadata) -> bool:
    """Compare the schemas as JSON values: some writers parse a schema and write its text anew."""
    if found.schemaString != expected.schemaString:
        try:
            if json.loads(found.schemaString) != json.loads(expected.schemaString):
                return False
        except (ValueError, RecursionError):
            return False
    return replace(complete_metadata(found), schemaString=expected.schemaString) == expected
