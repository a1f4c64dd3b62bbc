"""The version that a table had at a moment, and the moment of each version in its history.

Protocol sections "In-Commit Timestamps" and "Recommendations for Readers of Tables with In-Commit Timestamps". Without
in-commit timestamps, a version's time is the modification time of its commit file, made strictly ascending; with them it
is the timestamp in the commit. The two kinds are never compared: a moment at or after their enablement is looked up
among the later versions only, an earlier moment among the earlier versions.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from typing import Any

from delta_log.errors import InvalidProperty, NotATable, TableError, VersionNotFound
from delta_log.log.actions import Action, decode_commit
from delta_log.log.checkpoint_reader import CheckpointReader, UnreadableCheckpoint
from delta_log.log.log_segment import LogListing, list_log, segment_of
from delta_log.snapshot.commit_info import (
    ICT_ENABLED,
    ICT_ENABLEMENT_VERSION,
    in_commit_timestamp_ms,
    is_moment,
    moment_text,
    monotone_times,
    normalise,
    read_commit_info,
)
from delta_log.storage.storage import Storage
from delta_log.table_config.properties import flag, whole_number


def version_at(storage: Storage, timestamp_ms: int) -> int:
    """The newest version committed at or before a moment.

    :raises VersionNotFound: the moment is before the first version or after the last.
    """
    listing = list_log(storage)
    if listing.latest < 0:
        raise NotATable(storage.uri)
    versions = [v for v in sorted(listing.commits) if v >= listing.earliest]
    if not versions:
        raise _not_found(storage, listing, timestamp_ms)
    by_commit = _in_commit_timestamps_since(storage, listing)
    if by_commit is None:
        times = monotone_times([listing.commits[v].info.modification_time_ms for v in versions])
        return _newest(storage, listing, versions, times, timestamp_ms)
    since = max(by_commit, versions[0])
    old = [v for v in versions if v < since]
    new = [v for v in versions if v >= since]
    if old and timestamp_ms < _in_commit_timestamp(storage, since):
        times = monotone_times([listing.commits[v].info.modification_time_ms for v in old])
        # The last of the old versions stands until the first of the new ones.
        found = bisect_right(times, timestamp_ms) - 1
        if found < 0:
            raise _not_found(storage, listing, timestamp_ms, times[0], _in_commit_timestamp(storage, new[-1]))
        return old[found]
    low, high = 0, len(new)
    while low < high:
        middle = (low + high) // 2
        if _in_commit_timestamp(storage, new[middle]) <= timestamp_ms:
            low = middle + 1
        else:
            high = middle
    last_ms = _in_commit_timestamp(storage, new[-1])
    if low == 0 or timestamp_ms > last_ms:
        first_ms = (
            listing.commits[old[0]].info.modification_time_ms
            if old
            else _in_commit_timestamp(storage, new[0])
        )
        raise _not_found(storage, listing, timestamp_ms, first_ms, last_ms)
    return new[low - 1]


def _newest(storage: Storage, listing: LogListing, versions: list[int], times: list[int], asked: int) -> int:
    found = bisect_right(times, asked) - 1
    if found < 0 or asked > times[-1]:
        raise _not_found(storage, listing, asked, times[0], times[-1])
    return versions[found]


def _not_found(
    storage: Storage,
    listing: LogListing,
    asked_ms: int,
    first_ms: int | None = None,
    last_ms: int | None = None,
) -> VersionNotFound:
    """
    :param first_ms: commit time of the first version that the log can reconstruct, and ``last_ms`` of the last version;
        ``None``: the log does not say.
    """
    known = None if first_ms is None or last_ms is None else (moment_text(first_ms), moment_text(last_ms))
    return VersionNotFound(storage.uri, moment_text(asked_ms), listing.earliest, listing.latest, known)


def read_history(storage: Storage, listing: LogListing, limit: int | None) -> list[dict[str, Any]]:
    """One entry per commit that the log still holds, newest first; see :func:`~delta_log.snapshot.commit_info.normalise`.

    ``timestamp`` is the time by which :func:`version_at` finds the version, not the time by the writer's clock.

    :param listing: listing of the whole log.
    """
    commits = [listing.commits[v] for v in sorted(listing.commits, reverse=True)[:limit]]
    stated: dict[int, Mapping[str, Any]] = {}
    for commit, data in zip(commits, storage.read_many([c.key for c in commits]), strict=True):
        actions = decode_commit(data, commit.key)
        stated[commit.version] = next((a.commitInfo for a in actions if a.commitInfo is not None), {})
    times = commit_times(storage, listing, stated)
    return [
        {**normalise(stated[commit.version], commit), "timestamp": times[commit.version]}
        for commit in commits
    ]


def commit_times(
    storage: Storage, listing: LogListing, stated: Mapping[int, Mapping[str, Any]]
) -> dict[int, int]:
    """When each version was committed, in ms since the epoch, by version.

    :param listing: listing of the whole log.
    :param stated: ``commitInfo`` by version; versions without an in-commit timestamp in it have the time of their file.
    """
    since: int | None = None
    if any(is_moment(info.get("inCommitTimestamp")) for info in stated.values()):
        try:
            since = _in_commit_timestamps_since(storage, listing)
        except TableError:
            since = 0  # a history tells what there is, and refuses nothing
    times: dict[int, int] = {}
    by_file = [v for v in sorted(listing.commits) if since is None or v < since]
    # Time travel begins with the first version that can be reconstructed.
    for part in ([v for v in by_file if v < listing.earliest], [v for v in by_file if v >= listing.earliest]):
        file_times = [listing.commits[v].info.modification_time_ms for v in part]
        times.update(zip(part, monotone_times(file_times), strict=True))
    for version, info in stated.items():
        if version not in times:
            in_commit = info.get("inCommitTimestamp")
            file_ms = listing.commits[version].info.modification_time_ms
            times[version] = in_commit if is_moment(in_commit) else file_ms
    return times


def _in_commit_timestamps_since(storage: Storage, listing: LogListing) -> int | None:
    """The first version with an in-commit timestamp, by the newest metadata; ``None``: the table has none."""
    unusable: frozenset[str] = frozenset()
    while True:
        segment = segment_of(listing, storage, unusable=unusable)
        for commit in reversed(segment.commits):
            for action in decode_commit(storage.read(commit.key), commit.key):
                if action.metaData is not None:
                    return _since(action)
        if segment.checkpoint is None:
            return None
        try:
            return _since(Action(metaData=CheckpointReader(storage, segment.checkpoint).other.metadata))
        except UnreadableCheckpoint as failure:
            unusable |= frozenset(failure.checkpoint_keys)


def _since(action: Action) -> int | None:
    if action.metaData is None:
        return None
    properties = action.metaData.properties
    if not flag(properties, ICT_ENABLED):
        return None
    since = properties.get(ICT_ENABLEMENT_VERSION, "0")
    version = whole_number(since)
    if version is None:
        raise InvalidProperty(ICT_ENABLEMENT_VERSION, since, "a version", "0")
    return version


def _in_commit_timestamp(storage: Storage, version: int) -> int:
    return in_commit_timestamp_ms(version, read_commit_info(storage, version))
