"""Whether the table at an address is still the one that was read.

A table may be deleted and made anew under its address while a run works on it. The new log begins at version 0, so that a
commit that follows a version of the old one would leave a gap, or rest on files that the new table never had. A log is the
same as long as the commit of the version that was read is the same object. One look at that object tells: its size, its
time and its tag. A writer looks before whatever it writes to the log or deletes for the log's sake, and again after it.

Two cases need more than a look:

* The object is another one, and may have the same content: a commit that a lock table coordinates is put in its place by
  whoever completes it. Its ``commitInfo`` tells.
* The commit is gone, and may have been cleaned from the log, which keeps a checkpoint for it. The table's id tells.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from delta_log.errors import CorruptLog, StorageError, TableError, TableReplaced
from delta_log.log.file_names import UNKNOWN_TIME_MS, commit_key
from delta_log.log.log_segment import LogListing, find_log_segment
from delta_log.snapshot.commit_info import read_commit_info
from delta_log.snapshot.snapshot import Snapshot
from delta_log.storage.storage import FileInfo, Storage

_MAX_TRIES = 4
#: Members of ``commitInfo`` that two commits do not share.
_TELLING = ("txnId", "inCommitTimestamp", "timestamp")


def require_same_log(
    storage: Storage,
    snapshot: Snapshot,
    listing: LogListing | None = None,
    *,
    own_checkpoint: frozenset[str] = frozenset(),
) -> None:
    """Costs one request, or none.

    :param listing: of the log, made just now from the snapshot's version or an earlier one on.
    :param own_checkpoint: keys of a checkpoint that the caller has just written for the snapshot; it proves nothing.
    :raises TableReplaced: the snapshot's version is not in the log any more, or is another one.
    """
    known, version = snapshot.last_commit, snapshot.version
    if listing is not None:
        commit = listing.commits.get(version)
        found = None if commit is None else commit.info
    else:
        found = storage.head(commit_key(version))
    if found is None:
        if not _is_cleaned(storage, snapshot, own_checkpoint):
            why = f"version {version}, which was read from its log, is not there any more"
            raise TableReplaced(storage.uri, version, why)
    elif known is None:
        raise TableReplaced(storage.uri, version, f"its log has a version {version} that was not there")
    elif not _is_known(known.info, found) and not (
        known.info.size == found.size and _says_the_same(storage, snapshot)
    ):
        raise TableReplaced(storage.uri, version, f"version {version} of its log is another one")


def taken_back(
    storage: Storage, replaced: TableReplaced, key: str, body: bytes, *, follower: str | None = None
) -> TableReplaced:
    """Delete a file of ours from a log that is another table's; the error says whether that went well.

    :param body: what we created. Anything else under that key is left alone.
    :param follower: key of the next commit. Where it is there, that table's writers have built on ours, and it stays.
    """
    for _ in range(_MAX_TRIES):
        with suppress(StorageError, OSError):
            if follower is not None and storage.head(follower) is not None:
                break
            storage.take_back(key, body)
            return replaced
    return TableReplaced(replaced.table_uri, replaced.read_version, replaced.why, left=key)


def _is_known(known: FileInfo, found: FileInfo) -> bool:
    return known.modification_time_ms != UNKNOWN_TIME_MS and known.is_same_content(found)


def _says_the_same(storage: Storage, snapshot: Snapshot) -> bool:
    info: Mapping[str, Any] | None = snapshot.commit_info
    if info is None or not any(info.get(name) for name in _TELLING):
        return False
    try:
        return read_commit_info(storage, snapshot.version) == info
    except CorruptLog:
        return False


def _is_cleaned(storage: Storage, snapshot: Snapshot, own_checkpoint: frozenset[str]) -> bool:
    """Does a checkpoint stand for the commit, of the same table?"""
    try:
        segment = find_log_segment(storage, unusable=own_checkpoint)
        if segment.checkpoint is None or segment.checkpoint.version < snapshot.version:
            return False
        return Snapshot(storage, segment).metadata.id == snapshot.metadata.id
    except TableError:
        return False
