"""The version that a table had at a moment.

Protocol sections "In-Commit Timestamps" and "Recommendations for Readers of Tables with In-Commit Timestamps". Without
in-commit timestamps, a version's time is the modification time of its commit file, made strictly ascending; with them it
is the timestamp in the commit. The two kinds are never compared: a moment at or after their enablement is looked up
among the later versions only, an earlier moment among the earlier versions.
"""

from __future__ import annotations

from bisect import bisect_right

from delta_log.errors import InvalidProperty, NotATable, VersionNotFound
from delta_log.log.actions import Action, decode_actions
from delta_log.log.checkpoint_reader import CheckpointReader, UnreadableCheckpoint
from delta_log.log.log_segment import LogListing, list_log, segment_of
from delta_log.snapshot.commit_info import (
    ICT_ENABLED,
    ICT_ENABLEMENT_VERSION,
    in_commit_timestamp_ms,
    monotone_times,
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
        raise VersionNotFound(storage.uri, f"{timestamp_ms} ms", listing.earliest, listing.latest)
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
            raise VersionNotFound(storage.uri, f"{timestamp_ms} ms", listing.earliest, listing.latest)
        return old[found]
    low, high = 0, len(new)
    while low < high:
        middle = (low + high) // 2
        if _in_commit_timestamp(storage, new[middle]) <= timestamp_ms:
            low = middle + 1
        else:
            high = middle
    beyond = low == len(new) and timestamp_ms > _in_commit_timestamp(storage, new[-1])
    if low == 0 or beyond:
        raise VersionNotFound(storage.uri, f"{timestamp_ms} ms", listing.earliest, listing.latest)
    return new[low - 1]


def _newest(storage: Storage, listing: LogListing, versions: list[int], times: list[int], asked: int) -> int:
    found = bisect_right(times, asked) - 1
    if found < 0 or asked > times[-1]:
        raise VersionNotFound(storage.uri, f"{asked} ms", listing.earliest, listing.latest)
    return versions[found]


def _in_commit_timestamps_since(storage: Storage, listing: LogListing) -> int | None:
    """The first version with an in-commit timestamp, by the newest metadata; ``None``: the table has none."""
    unusable: frozenset[str] = frozenset()
    while True:
        segment = segment_of(listing, storage, unusable=unusable)
        for commit in reversed(segment.commits):
            for action in decode_actions(storage.read(commit.key), commit.key):
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
