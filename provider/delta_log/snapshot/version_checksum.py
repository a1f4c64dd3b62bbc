"""The version checksum (``.crc``): a summary of a version by its writer.

Protocol section "Version Checksum File". One small object tells counts, protocol and metadata without a replay, so that
a watcher of many tables can read it often. It is a *statement*: nothing protects it against damage, and writers have
been wrong, so no snapshot is made from it. Where the log is read as well, :func:`disagreements` compares the two.

This package writes checksums from a snapshot's totals. It leaves out what depends on the reader's clock (transactions
that expire), and the list of all files.
"""

from __future__ import annotations

import msgspec

from delta_log.errors import CorruptLog, NotAFile
from delta_log.log.actions import DomainMetadata, Int64, Metadata, Protocol, SetTransaction
from delta_log.log.file_names import checksum_key
from delta_log.snapshot.commit_info import ICT_ENABLED
from delta_log.snapshot.counts import Counts
from delta_log.snapshot.replayed_log import complete_metadata
from delta_log.snapshot.snapshot import Snapshot
from delta_log.stats.file_histogram import SIZE_BOUNDARIES
from delta_log.storage.storage import Storage
from delta_log.table_config import features as table_features
from delta_log.table_config.features import Operation, supports
from delta_log.table_config.properties import TRANSACTION_RETENTION, flag


class Histogram(msgspec.Struct):
    """Files by size: ``fileCounts`` and ``totalBytes`` for each bin of ``sortedBinBoundaries``."""

    sortedBinBoundaries: list[Int64] = []
    fileCounts: list[Int64] = []
    totalBytes: list[Int64] = []


class DeletedRecordCounts(msgspec.Struct):
    """Live files by deleted rows, in the ten bins of the protocol."""

    deletedRecordCounts: list[Int64] = []


class VersionChecksum(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The members that this package uses, under the protocol's names; ``None``: the writer left it out."""

    tableSizeBytes: Int64
    numFiles: Int64
    numMetadata: Int64 | None = None
    numProtocol: Int64 | None = None
    #: Required by the protocol, and absent in the files of early writers.
    protocol: Protocol | None = None
    metadata: Metadata | None = None
    txnId: str | None = None
    inCommitTimestampOpt: Int64 | None = None
    setTransactions: list[SetTransaction] | None = None
    domainMetadata: list[DomainMetadata] | None = None
    numDeletionVectorsOpt: Int64 | None = None
    numDeletedRecordsOpt: Int64 | None = None
    fileSizeHistogram: Histogram | None = None
    histogramOpt: Histogram | None = None
    deletedRecordCountsHistogramOpt: DeletedRecordCounts | None = None


_DECODER = msgspec.json.Decoder(VersionChecksum, strict=False)


def read_version_checksum(storage: Storage, version: int) -> VersionChecksum | None:
    """Read the checksum of a version; ``None``: there is none.

    :raises CorruptLog: the file is not a checksum, or contradicts itself.
    """
    key = checksum_key(version)
    try:
        data = storage.read(key)
    except FileNotFoundError:
        return None
    except NotAFile as error:
        raise CorruptLog(key, "it is not a file") from error
    try:
        checksum = _DECODER.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise CorruptLog(key, f"it is not a version checksum ({error})") from error
    histogram = checksum.fileSizeHistogram or checksum.histogramOpt
    stated = (checksum.numFiles, checksum.tableSizeBytes)
    if min(stated) < 0 or (
        histogram is not None and (sum(histogram.fileCounts), sum(histogram.totalBytes)) != stated
    ):
        raise CorruptLog(key, "its histogram of file sizes does not add up to its counts")
    return checksum


def checksum_of(snapshot: Snapshot, txn_id: str | None) -> VersionChecksum:
    """Make the checksum of a version.

    :param txn_id: the ``txnId`` of the version's commit.
    """
    counts, protocol, properties = snapshot.counts, snapshot.protocol, snapshot.properties
    with_vectors = supports(protocol, "deletionVectors")
    bins = counts.histogram
    return VersionChecksum(
        txnId=txn_id,
        tableSizeBytes=counts.size_bytes,
        numFiles=counts.files,
        numMetadata=1,
        numProtocol=1,
        metadata=complete_metadata(snapshot.metadata),
        protocol=protocol,
        inCommitTimestampOpt=snapshot.timestamp_ms if flag(properties, ICT_ENABLED) else None,
        setTransactions=None
        if TRANSACTION_RETENTION in properties
        else sorted(snapshot.set_transactions, key=lambda t: t.appId),
        domainMetadata=sorted(snapshot.domains, key=lambda d: d.domain),
        numDeletionVectorsOpt=counts.deletion_vectors if with_vectors else None,
        numDeletedRecordsOpt=counts.deleted_rows if with_vectors else None,
        fileSizeHistogram=Histogram(list(SIZE_BOUNDARIES), bins.files.tolist(), bins.size_bytes.tolist()),
        deletedRecordCountsHistogramOpt=DeletedRecordCounts(bins.files_by_deleted_rows.tolist())
        if with_vectors
        else None,
    )


def write_version_checksum(storage: Storage, snapshot: Snapshot, txn_id: str | None) -> bool:
    """Write the checksum of a version; ``False``: there is one already, and it stays.

    :raises UnsupportedFeature: the table may hold state that this package does not know.
    """
    table_features.require(snapshot.protocol, Operation.CHECKPOINT)
    body = msgspec.json.encode(checksum_of(snapshot, txn_id))
    return storage.put_if_absent(checksum_key(snapshot.version), body)


def disagreements(
    checksum: VersionChecksum, snapshot: Snapshot, counts: Counts | None = None
) -> tuple[str, ...]:
    """The names of the members in which a checksum and the replayed log differ.

    :param counts: the counts of the snapshot, if the caller has them already.
    """
    counts = counts or snapshot.counts
    expiring = TRANSACTION_RETENTION in snapshot.properties
    said_and_found = {
        "numFiles": (checksum.numFiles, counts.files),
        "tableSizeBytes": (checksum.tableSizeBytes, counts.size_bytes),
        "protocol": (checksum.protocol, snapshot.protocol),
        "schema": (checksum.metadata and checksum.metadata.schemaString, snapshot.metadata.schemaString),
        "configuration": (checksum.metadata and checksum.metadata.properties, snapshot.properties),
        "numDeletionVectorsOpt": (checksum.numDeletionVectorsOpt, counts.deletion_vectors),
        "numDeletedRecordsOpt": (checksum.numDeletedRecordsOpt, counts.deleted_rows),
        "setTransactions": (
            None if expiring else _versions(checksum.setTransactions),
            snapshot.transactions,
        ),
        "domainMetadata": (_configurations(checksum.domainMetadata), snapshot.domain_metadata),
    }
    return tuple(name for name, (said, found) in said_and_found.items() if said is not None and said != found)


def _versions(transactions: list[SetTransaction] | None) -> dict[str, int] | None:
    return None if transactions is None else {t.appId: t.version for t in transactions}


def _configurations(domains: list[DomainMetadata] | None) -> dict[str, str] | None:
    return None if domains is None else {d.domain: d.configuration for d in domains if not d.removed}
