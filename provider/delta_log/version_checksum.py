"""The version checksum (``.crc``): what the writer of a version said that its table came to.

Protocol section "Version Checksum File". One small object tells counts, protocol and metadata without a replay, which
is what a watcher of many tables can afford. It is a *statement*: nothing protects it against damage, and writers have
been wrong, so no snapshot rests on it. Where commits are read as well, :func:`disagreements` compares the two.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from delta_log.actions import DomainMetadata, Metadata, Protocol, SetTransaction
from delta_log.errors import CorruptLog
from delta_log.log_path import checksum_key
from delta_log.storage import Storage

if TYPE_CHECKING:
    from delta_log.snapshot import Snapshot


class Histogram(msgspec.Struct):
    """Files by size: ``fileCounts`` and ``totalBytes`` for each bin of ``sortedBinBoundaries``."""

    sortedBinBoundaries: list[int] = []
    fileCounts: list[int] = []
    totalBytes: list[int] = []


class VersionChecksum(msgspec.Struct, kw_only=True):
    """The members that we use, under the protocol's names; ``None``: the writer did not say."""

    tableSizeBytes: int
    numFiles: int
    #: Required by the protocol, and absent in the files of early writers.
    protocol: Protocol | None = None
    metadata: Metadata | None = None
    txnId: str | None = None
    inCommitTimestampOpt: int | None = None
    setTransactions: list[SetTransaction] | None = None
    domainMetadata: list[DomainMetadata] | None = None
    numDeletionVectorsOpt: int | None = None
    numDeletedRecordsOpt: int | None = None
    fileSizeHistogram: Histogram | None = None
    histogramOpt: Histogram | None = None


_DECODER = msgspec.json.Decoder(VersionChecksum, strict=False)


def read_version_checksum(storage: Storage, version: int) -> VersionChecksum | None:
    """What the writer of a version stated; ``None``: there is no statement.

    :raises CorruptLog: the file is none, or contradicts itself.
    """
    key = checksum_key(version)
    try:
        data = storage.read(key)
    except FileNotFoundError:
        return None
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


def disagreements(checksum: VersionChecksum, snapshot: Snapshot) -> tuple[str, ...]:
    """Where a statement and the replayed log differ: the names of its members."""
    said_and_found = {
        "numFiles": (checksum.numFiles, snapshot.num_files),
        "tableSizeBytes": (checksum.tableSizeBytes, snapshot.size_bytes),
        "protocol": (checksum.protocol, snapshot.protocol),
        "schema": (checksum.metadata and checksum.metadata.schemaString, snapshot.metadata.schemaString),
        "configuration": (checksum.metadata and checksum.metadata.properties, snapshot.properties),
        "numDeletionVectorsOpt": (checksum.numDeletionVectorsOpt, snapshot.num_deletion_vectors),
        "numDeletedRecordsOpt": (checksum.numDeletedRecordsOpt, snapshot.num_deleted_rows),
        "setTransactions": (_versions(checksum.setTransactions), snapshot.transactions),
        "domainMetadata": (_configurations(checksum.domainMetadata), snapshot.domain_metadata),
    }
    return tuple(name for name, (said, found) in said_and_found.items() if said is not None and said != found)


def _versions(transactions: list[SetTransaction] | None) -> dict[str, int] | None:
    return None if transactions is None else {t.appId: t.version for t in transactions}


def _configurations(domains: list[DomainMetadata] | None) -> dict[str, str] | None:
    return None if domains is None else {d.domain: d.configuration for d in domains if not d.removed}
