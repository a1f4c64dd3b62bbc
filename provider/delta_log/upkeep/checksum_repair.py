"""Examines the version checksum of the newest version, and repairs it where the right content can be proved.

Protocol section "Version Checksum File". Readers and VACUUM rely on a checksum being independent of the checkpoints. So
one is written only with a proof that is independent of them: all commits since version 0, or the right checksum of an
older version and the commits since then. A checkpoint alone is no proof.

A checksum is never overwritten: on request a wrong one is deleted, and a new one is created by put-if-absent.
"""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec import Struct

from delta_log.errors import CorruptLog, DeltaLogError, VersionNotFound
from delta_log.log.actions import Add
from delta_log.log.data_path import address_of
from delta_log.log.file_names import checksum_key
from delta_log.log.log_segment import LogListing, LogSegment, list_log, segment_of
from delta_log.snapshot.commit_info import ICT_ENABLED, read_commit_info
from delta_log.snapshot.snapshot import Snapshot
from delta_log.snapshot.version_checksum import (
    VersionChecksum,
    checksum_of,
    disagreements,
    read_version_checksum,
    write_version_checksum,
)
from delta_log.storage.storage import Storage
from delta_log.table_config import features as table_features
from delta_log.table_config.features import Operation
from delta_log.table_config.properties import flag
from delta_log.upkeep.log_inventory import list_everything

#: ``broken``: the file exists and is not a checksum.
ChecksumState = Literal["right", "missing", "wrong", "broken"]
#: What proves the content: ``commits``: all of them; ``checksum``: the checksum of an older version and the commits since.
ChecksumProof = Literal["commits", "checksum"]


class _WithFiles(msgspec.Struct):
    allFiles: list[Add] | None = None  # noqa: N815 - the protocol's name


class ChecksumVerdict(Struct, frozen=True):
    """The result of examining a checksum.

    :param disagreements: the members that differ from the log.
    :param proof: proof of the content of a repaired checksum; ``None``: nothing proves it, so no checksum is written. Not
        computed when the checksum is right.
    """

    version: int
    state: ChecksumState
    disagreements: tuple[str, ...] = ()
    proof: ChecksumProof | None = None

    @property
    def can_be_repaired(self) -> bool:
        return self.state != "right" and self.proof is not None


def examine(storage: Storage, snapshot: Snapshot) -> ChecksumVerdict:
    """Compare the checksum of a snapshot's version with the snapshot; unless it is right, look for a proof.

    :raises UnsupportedFeature: the table may hold state that this package does not know.
    """
    table_features.require(snapshot.protocol, Operation.CHECKPOINT)
    version = snapshot.version
    state: ChecksumState = "missing"
    wrong: tuple[str, ...] = ()
    try:
        stated = read_version_checksum(storage, version)
        if stated is not None:
            wrong = _all_disagreements(storage, stated, snapshot)
            state = "wrong" if wrong else "right"
    except CorruptLog:
        state = "broken"
    proof = None if state == "right" else _proof(storage, snapshot)
    return ChecksumVerdict(version, state, wrong, proof)


def repair(storage: Storage, snapshot: Snapshot, verdict: ChecksumVerdict) -> bool:
    """Write a missing checksum, or replace a wrong one.

    :return: whether this call wrote the checksum.
    :raises CorruptLog: the checksum that is read back differs from the log.
    """
    if not verdict.can_be_repaired:
        return False
    storage.require_writable()
    if verdict.state != "missing":
        storage.delete([checksum_key(snapshot.version)])
    transaction_id = (read_commit_info(storage, snapshot.version) or {}).get("txnId")
    written = write_version_checksum(
        storage, snapshot, transaction_id if isinstance(transaction_id, str) else None
    )
    found = read_version_checksum(storage, snapshot.version)
    if found is None or _all_disagreements(storage, found, snapshot):
        raise CorruptLog(
            checksum_key(snapshot.version),
            "it was just written, and differs from the log",
            "Run again: another program has written it in between.",
        )
    return written


def _all_disagreements(storage: Storage, stated: VersionChecksum, snapshot: Snapshot) -> tuple[str, ...]:
    """The members that differ, of all that the checksum has and not only of those that checkpoints are compared by."""
    wrong = list(disagreements(stated, snapshot))
    expected = checksum_of(snapshot, None)
    wrong += [name for name in ("numMetadata", "numProtocol") if getattr(stated, name) not in (None, 1)]
    if flag(snapshot.properties, ICT_ENABLED) and stated.inCommitTimestampOpt not in (
        None,
        expected.inCommitTimestampOpt,
    ):
        wrong.append("inCommitTimestampOpt")
    histogram, ours = stated.fileSizeHistogram or stated.histogramOpt, expected.fileSizeHistogram
    if histogram and ours and histogram.sortedBinBoundaries == ours.sortedBinBoundaries and histogram != ours:
        wrong.append("fileSizeHistogram")
    bins = stated.deletedRecordCountsHistogramOpt
    if bins and expected.deletedRecordCountsHistogramOpt not in (None, bins):
        wrong.append("deletedRecordCountsHistogramOpt")
    if _lists_other_files(storage, snapshot):
        wrong.append("allFiles")
    return tuple(wrong)


def _lists_other_files(storage: Storage, snapshot: Snapshot) -> bool:
    key = checksum_key(snapshot.version)
    try:
        listed = msgspec.json.decode(storage.read(key), type=_WithFiles, strict=False).allFiles
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return True
    if listed is None:
        return False
    stated = sorted(
        (address_of(add.path, storage.uri), add.size, add.deletionVector and add.deletionVector.cardinality)
        for add in listed
    )
    rows = snapshot.files(["key", "size", "deletion_vector"]).to_pylist()
    found = sorted(
        (row["key"], row["size"], row["deletion_vector"] and row["deletion_vector"]["cardinality"])
        for row in rows
    )
    return stated != found


# -- proofs ------------------------------------------------------------------------------------


def _proof(storage: Storage, snapshot: Snapshot) -> ChecksumProof | None:
    listing = list_log(storage)
    ours = _statement(snapshot)
    try:
        if all(version in listing.commits for version in range(snapshot.version + 1)):
            commits = tuple(listing.commits[version] for version in range(snapshot.version + 1))
            naive = Snapshot(storage, LogSegment(snapshot.version, None, commits, commits, commits[-1]))
            return "commits" if _statement(naive) == ours else None
        carried = _carried(storage, snapshot, listing)
    except (DeltaLogError, FileNotFoundError):
        return None
    return "checksum" if carried is not None and _statement(carried) == ours else None


def _carried(storage: Storage, snapshot: Snapshot, listing: LogListing) -> Snapshot | None:
    """Replay a snapshot's version from the newest older version with a right checksum; ``None`` where there is none."""
    stating = [file.version for file in list_everything(storage).checksums]
    for version in sorted(stating, reverse=True):
        if not listing.earliest <= version < snapshot.version:
            continue
        try:
            stated = read_version_checksum(storage, version)
        except CorruptLog:
            continue
        if stated is None:
            continue
        older = Snapshot(storage, segment_of(listing, storage, version))
        if _all_disagreements(storage, stated, older):
            return None
        newer = frozenset(
            file.key for other in listing.checkpoints if other.version > version for file in other.files
        )
        try:
            carried = Snapshot(storage, segment_of(listing, storage, snapshot.version, newer))
        except (CorruptLog, VersionNotFound):
            return None
        base = carried.checkpoint_version
        return carried if base is not None and base <= version else None
    return None


def _statement(snapshot: Snapshot) -> bytes:
    """A checksum's content, without the commit's time."""
    stated = checksum_of(snapshot, None)
    stated.inCommitTimestampOpt = None
    return msgspec.json.encode(stated)
