"""What a checkpoint of a snapshot has to hold: the live state, less what has expired.

Protocol sections "Checkpoints" and "Action Reconciliation". Exactly one protocol and one metadata; live transactions
and domains; live files, with ``dataChange`` false and every other member; unexpired tombstones without ``stats`` and
``tags``. A member that the protocol does not name is not carried over: what readers would miss comes with a table
feature, and the gate refuses those that we do not know. Members that the protocol requires and a careless writer left out are filled with what readers take an
absence for. What is written and what is read back are both compared in this form.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc
from msgspec.structs import replace

from delta_log.arrow.row_hash import Fingerprint
from delta_log.log.actions import Action, DomainMetadata, Metadata, Protocol, SetTransaction
from delta_log.log.checkpoint_reader import ADD_SCHEMA, REMOVE_SCHEMA, OtherActions
from delta_log.snapshot.snapshot import Snapshot
from delta_log.table_config.properties import interval_ms

DELETED_FILE_RETENTION = "delta.deletedFileRetentionDuration"
TRANSACTION_RETENTION = "delta.setTransactionRetentionDuration"
_DEFAULT_DELETED_FILE_RETENTION_MS = 7 * 86_400_000

#: The columns of :data:`~delta_log.log.checkpoint_reader.ADD_SCHEMA` and ``REMOVE_SCHEMA`` that a checkpoint holds.
ADD_COLUMNS = tuple(ADD_SCHEMA.names)
REMOVE_COLUMNS = tuple(name for name in REMOVE_SCHEMA.names if name != "tags")


@dataclass(frozen=True, slots=True)
class CheckpointState:
    """The state of one version as a checkpoint holds it.

    :ivar expiry_ms: tombstones of files deleted at or before this time have expired.
    """

    version: int
    protocol: Protocol
    metadata: Metadata
    transactions: tuple[SetTransaction, ...]
    domains: tuple[DomainMetadata, ...]
    expiry_ms: int
    _snapshot: Snapshot = field(repr=False, compare=False)

    @classmethod
    def of(cls, snapshot: Snapshot, now_ms: int) -> CheckpointState:
        retention_ms = interval_ms(snapshot.properties, DELETED_FILE_RETENTION)
        if retention_ms is None:
            retention_ms = _DEFAULT_DELETED_FILE_RETENTION_MS
        return cls(
            snapshot.version,
            complete_protocol(snapshot.protocol),
            complete_metadata(snapshot.metadata),
            _live_transactions(snapshot, now_ms),
            tuple(sorted(snapshot.domains, key=lambda d: d.domain)),
            now_ms - retention_ms,
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
        """Of some tombstones those that still count; a file without a time of deletion was deleted in 1970."""
        for batch in tombstones:
            when = pc.fill_null(batch.column("deletion_timestamp"), 0)
            kept = _filled(batch, "data_change", partial(pc.fill_null, fill_value=False))
            kept = kept.filter(pc.greater(when, self.expiry_ms))
            if kept.num_rows:
                yield kept

    def differences(self, other: OtherActions) -> list[str]:
        """Which actions of a checkpoint, files apart, are not those of this state."""
        found = {
            "protocol": other.protocol is not None and complete_protocol(other.protocol) == self.protocol,
            "metaData": other.metadata is not None and _same_metadata(other.metadata, self.metadata),
            # Another writer's clock may have let more of them live.
            "txn": all(other.transactions.get(t.appId) == t for t in self.transactions),
            "domainMetadata": tuple(sorted(other.domains.values(), key=lambda d: d.domain)) == self.domains,
        }
        return [name for name, same in found.items() if not same]


def complete_adds(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Live files with all that readers demand of them."""
    batch = _filled(batch, "partition_values", _without_null_maps)
    return _filled(batch, "modification_time", partial(pc.fill_null, fill_value=0))


def _same_metadata(found: Metadata, expected: Metadata) -> bool:
    """The schema may be spelt in another way: some writers parse it and write it anew."""
    if found.schemaString != expected.schemaString:
        try:
            if json.loads(found.schemaString) != json.loads(expected.schemaString):
                return False
        except (ValueError, RecursionError):
            return False
    return replace(complete_metadata(found), schemaString=expected.schemaString) == expected


def fingerprint_of(batches: Iterable[pa.RecordBatch]) -> Fingerprint:
    total = Fingerprint()
    for batch in batches:
        total = total.plus(Fingerprint.of(batch))
    return total


def _filled(batch: pa.RecordBatch, name: str, fill: Callable[[pa.Array], pa.Array]) -> pa.RecordBatch:
    index = batch.schema.get_field_index(name)
    if index < 0 or not batch.column(index).null_count:
        return batch
    return batch.set_column(index, name, fill(batch.column(index)))


def _without_null_maps(maps: pa.MapArray) -> pa.MapArray:
    return pc.if_else(pc.is_null(maps), pa.scalar([], maps.type), maps)


def _live_transactions(snapshot: Snapshot, now_ms: int) -> tuple[SetTransaction, ...]:
    retention_ms = interval_ms(snapshot.properties, TRANSACTION_RETENTION)
    return tuple(
        transaction
        for transaction in sorted(snapshot.set_transactions, key=lambda t: t.appId)
        if retention_ms is None
        or (transaction.lastUpdated is not None and transaction.lastUpdated > now_ms - retention_ms)
    )


def complete_protocol(protocol: Protocol) -> Protocol:
    """With lists of features exactly where its versions have them."""
    return Protocol(
        protocol.minReaderVersion,
        protocol.minWriterVersion,
        list(protocol.readerFeatures or ()) if protocol.minReaderVersion == 3 else None,
        list(protocol.writerFeatures or ()) if protocol.minWriterVersion == 7 else None,
    )


def complete_metadata(metadata: Metadata) -> Metadata:
    """With every member that the protocol requires; a null in a map of texts is the same as nothing."""
    stated = metadata.format or {}
    options = {name: str(value) for name, value in (stated.get("options") or {}).items() if value is not None}
    return replace(
        metadata,
        format={"provider": stated.get("provider") or "parquet", "options": options},
        partitionColumns=list(metadata.partitionColumns or ()),
        configuration=dict(metadata.properties),
    )
