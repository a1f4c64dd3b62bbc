"""Whether the table at an address is still the one that was read.

A table may be deleted and made anew at its address while a run works on it. The new log begins at version 0, so a commit
that follows a version of the old log would leave a gap, or name files that the new table never had. The log is the same
as long as the commit of the version that was read is the same object, by its size, time and tag. A writer compares them
before it writes to the log or deletes files by what the log says, and again afterwards.

Two cases need more than this comparison:

* The object differs, but may have the same content: with a lock table, the process that completes a commit puts the file
  in its place, and several may do so. Then ``commitInfo`` is compared.
* The commit is gone, and a log cleanup may have deleted it. Then the id of the table in the newest checkpoint is compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from delta_log.errors import (
    CommitFailed,
    CorruptLog,
    InvalidRequest,
    NotATable,
    StorageError,
    TableDropped,
    TableError,
    TableReplaced,
    UnsupportedFeature,
)
from delta_log.log.file_names import UNKNOWN_TIME_MS, commit_key
from delta_log.log.log_segment import LogListing, find_log_segment, list_log
from delta_log.snapshot.commit_info import read_commit_info
from delta_log.snapshot.snapshot import Snapshot
from delta_log.storage.storage import FileInfo, Storage

_MAX_TRIES = 4
#: How long an empty commit may be one that is being written; with a margin for the difference of clocks.
_SETTLED_MS = 10 * 60_000
#: Members of ``commitInfo`` by which two commits differ.
_TELLING = ("txnId", "inCommitTimestamp", "timestamp")


def require_same_log(
    storage: Storage,
    snapshot: Snapshot,
    listing: LogListing | None = None,
    *,
    own_checkpoint: frozenset[str] = frozenset(),
) -> None:
    """Require that the log is the one that the snapshot was read from. Costs at most one request in the usual case.

    :param listing: a listing of the log that was made just now, from the snapshot's version or an earlier one on.
    :param own_checkpoint: keys of a checkpoint that the caller has just written for the snapshot; it proves nothing.
    :raises TableReplaced: the snapshot's version is gone from the log, or is another commit.
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


def require_settled(snapshot: Snapshot, now_ms: int) -> None:
    """Require that the newest commit is not an empty file that its writer may still be filling.

    An empty version changes nothing. Where a store shows files before they are complete, it may do so later.

    :raises CommitFailed: it is, and was made less than :data:`_SETTLED_MS` ago.
    """
    commit = snapshot.last_commit
    if (
        commit is not None
        and commit.info.size == 0
        and commit.info.modification_time_ms > now_ms - _SETTLED_MS
    ):
        raise unfinished_commit(snapshot.version)


def unfinished_commit(version: int) -> CommitFailed:
    """Return the error for an empty file in place of a commit."""
    return CommitFailed(
        f"The commit of version {version} is an empty file, which its writer may still be filling. Nothing was committed. "
        f"Run again in {_SETTLED_MS // 60_000} minutes: then it counts as a version that changes nothing, as for other readers.",
        version=version,
    )


@contextmanager
def noticing_a_drop(storage: Storage, has_been_read: Callable[[], bool]) -> Iterator[None]:
    """Look whether the table is still there when a block fails: without its log, any file may be missing.

    Nothing is asked of the store unless the block fails.

    :param has_been_read: whether a snapshot was made, so that there was a table at all.
    :raises TableDropped: the block failed, and the table has no log any more.
    """
    try:
        yield
    except (StorageError, InvalidRequest, UnsupportedFeature, TableDropped):
        raise
    except Exception as error:
        was_there = has_been_read() or not isinstance(error, NotATable)
        if was_there and _has_no_log(storage):
            raise TableDropped(storage.uri, str(error)) from error
        raise


def _has_no_log(storage: Storage) -> bool:
    try:
        return list_log(storage).latest < 0
    except (StorageError, OSError):
        return False


def taken_back(
    storage: Storage, replaced: TableReplaced, key: str, body: bytes, *, follower: str | None = None
) -> TableReplaced:
    """Delete a file that the caller wrote into the log of another table.

    :param body: the content that the caller wrote. Other content under that key is left alone.
    :param follower: key of the next commit. If it exists, writers of that table have followed the file, which then stays.
    :return: the error to raise; it names the file if it was left.
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
    """Whether the log has a checkpoint of the same table for the commit."""
    try:
        segment = find_log_segment(storage, unusable=own_checkpoint)
        if segment.checkpoint is None or segment.checkpoint.version < snapshot.version:
            return False
        return Snapshot(storage, segment).metadata.id == snapshot.metadata.id
    except TableError:
        return False
