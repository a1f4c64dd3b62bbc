"""When each operation ran last, by the notes that its writer left in the log."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from delta_log.errors import CorruptLog, brief
from delta_log.log.actions import decode_commit
from delta_log.log.file_names import LogFile
from delta_log.log.log_segment import LogListing
from delta_log.snapshot.commit_info import normalise
from delta_log.snapshot.snapshot import Snapshot
from delta_log.storage.storage import Storage
from delta_maintenance.health.facts import CommitFact, HealthFacts, LastRun

#: ``commitInfo.operation`` of Spark, of delta-rs and of this package.
_OPERATIONS = {
    "OPTIMIZE": "optimize",
    "REORG": "purge",
    "VACUUM START": "vacuum",
    "VACUUM END": "vacuum",
}
#: How far back to look. Commits after the newest checkpoint were read for the snapshot; older ones cost a request each.
_MAX_COMMITS = 50
_MAX_READ_BYTES = 8 << 20
#: How many of them a reading lists, and the longest text of a writer that it quotes there.
_MAX_LISTED, _MAX_TEXT = 12, 120


def last_runs(
    storage: Storage, snapshot: Snapshot, listing: LogListing, earlier: HealthFacts | None = None
) -> tuple[dict[str, LastRun], tuple[CommitFact, ...], int]:
    """Find the newest commit of each operation.

    :param listing: listing of the whole log.
    :param earlier: facts of an earlier version of the same log: only the commits since then are looked at.
    :return: the runs by operation, the newest commits, and how many commits were looked at.
    """
    known = -1 if earlier is None else earlier.version
    versions = sorted((v for v in listing.commits if known < v <= snapshot.version), reverse=True)
    found: dict[str, LastRun] = {}
    listed: list[CommitFact] = []
    count = 0
    for commit, info in _infos(storage, snapshot, [listing.commits[v] for v in versions[:_MAX_COMMITS]]):
        count += 1
        entry = normalise(info, commit)
        operation = _OPERATIONS.get(str(entry.get("operation")))
        engine = entry.get("engineInfo")
        if len(listed) < _MAX_LISTED:
            texts = (_text(entry.get("operation")), _text(engine))
            listed.append(CommitFact(commit.version, entry["timestamp"], *texts))
        if operation is not None and operation not in found:
            by = brief(engine) if isinstance(engine, str) else None
            found[operation] = LastRun(commit.version, entry["timestamp"], by)
    # Beyond a commit that was not read, the earlier facts would leave a gap.
    if earlier is not None and count == snapshot.version - earlier.version:
        found = {**earlier.last_runs, **found}
        found.pop("checkpoint", None)
        listed = [*listed, *earlier.commits][:_MAX_LISTED]
        count += earlier.num_commits_read
    checkpoints = [one for one in listing.checkpoints if one.version <= snapshot.version]
    if checkpoints:
        newest = checkpoints[-1]
        found["checkpoint"] = LastRun(newest.version, newest.files[0].info.modification_time_ms)
    return found, tuple(listed), count


def _text(value: Any) -> str | None:
    return brief(value, _MAX_TEXT) if isinstance(value, str) else None


def _infos(
    storage: Storage, snapshot: Snapshot, commits: list[LogFile]
) -> Iterator[tuple[LogFile, Mapping[str, Any]]]:
    """Yield commits with their ``commitInfo``, newest first, as far as they may be read."""
    known = snapshot.commit_infos
    wanted, left = [], _MAX_READ_BYTES
    for commit in commits:
        left -= 0 if commit.version in known else commit.info.size
        if left < 0:
            break
        wanted.append(commit)
    unread = [commit for commit in wanted if commit.version not in known]
    bodies = storage.read_many([commit.key for commit in unread])
    # A log cleanup may delete a commit between the listing and this.
    with suppress(FileNotFoundError):
        for commit in wanted:
            info = known.get(commit.version)
            yield commit, info if info is not None else _info_in(next(bodies), commit)


def _info_in(body: bytes, commit: LogFile) -> Mapping[str, Any]:
    """The ``commitInfo`` of a commit; empty where there is none, or where an old commit is broken, which harms no reader."""
    try:
        actions = decode_commit(body, commit.key)
    except CorruptLog:
        return {}
    return next((action.commitInfo for action in actions if action.commitInfo is not None), {})
