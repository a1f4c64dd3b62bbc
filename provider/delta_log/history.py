"""When a version was committed, and by whom: ``commitInfo`` of every writer's dialect, brought to one form.

Protocol sections "Commit Provenance Information" and "In-Commit Timestamps". ``commitInfo`` may be absent, may hold
what its writer pleased, and may spell numbers and objects as strings; :func:`normalise` accepts all of it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from delta_log.actions import decode_actions
from delta_log.errors import CorruptLog
from delta_log.log_path import LogFile, commit_key
from delta_log.log_segment import LogListing, LogSegment, list_log
from delta_log.storage import Storage
from delta_log.table_properties import flag

ICT_ENABLED = "delta.enableInCommitTimestamps"
ICT_ENABLEMENT_VERSION = "delta.inCommitTimestampEnablementVersion"


def commit_timestamp_ms(
    storage: Storage,
    segment: LogSegment,
    properties: Mapping[str, str],
    commit_info: Mapping[str, Any] | None,
) -> int:
    """When the segment's version was committed, in ms since the epoch."""
    if flag(properties, ICT_ENABLED):
        if commit_info is None:
            commit_info = read_commit_info(storage, segment.version)
        timestamp = (commit_info or {}).get("inCommitTimestamp")
        if not isinstance(timestamp, int):
            raise CorruptLog(
                commit_key(segment.version), "in-commit timestamps are enabled, but its commitInfo has none"
            )
        return timestamp
    listing = list_log(storage)
    versions = [v for v in sorted(listing.commits) if listing.earliest <= v <= segment.version]
    if versions and versions[-1] == segment.version:
        return monotone_times([listing.commits[v].info.modification_time_ms for v in versions])[-1]
    # The commit was cleaned; its checkpoint is the nearest witness.
    assert segment.checkpoint is not None
    return segment.checkpoint.files[0].info.modification_time_ms


def monotone_times(times_ms: list[int]) -> list[int]:
    """The times of successive commits by their files, each at least 1 ms after the one before."""
    ascending: list[int] = []
    for time_ms in times_ms:
        ascending.append(max(time_ms, ascending[-1] + 1) if ascending else time_ms)
    return ascending


def read_commit_info(storage: Storage, version: int) -> dict[str, Any] | None:
    """The ``commitInfo`` of a version, or ``None`` where the commit or the action is not there."""
    try:
        data = storage.read(commit_key(version))
    except FileNotFoundError:
        return None
    return next(
        (a.commitInfo for a in decode_actions(data, commit_key(version)) if a.commitInfo is not None), None
    )


def read_history(storage: Storage, listing: LogListing, limit: int | None) -> list[dict[str, Any]]:
    """One entry per commit that the log still holds, newest first; see :func:`normalise`."""
    commits = [listing.commits[v] for v in sorted(listing.commits, reverse=True)[:limit]]
    entries = []
    for commit, data in zip(commits, storage.read_many([c.key for c in commits]), strict=True):
        actions = decode_actions(data, commit.key)
        raw = next((a.commitInfo for a in actions if a.commitInfo is not None), {})
        entries.append(normalise(raw, commit))
    return entries


def normalise(raw: Mapping[str, Any], commit: LogFile) -> dict[str, Any]:
    """``version``, ``timestamp`` (ms) and whatever ``commitInfo`` says, with parameters and metrics as JSON values.

    ``timestamp`` is the in-commit timestamp where there is one, else the writer's, else the file's. Strings that hold
    JSON arrays, objects, numbers or booleans become those; members that the writer left out are left out.
    """
    entry: dict[str, Any] = {key: value for key, value in raw.items() if value is not None}
    timestamp = raw.get("inCommitTimestamp", raw.get("timestamp"))
    entry["version"] = commit.version
    entry["timestamp"] = timestamp if isinstance(timestamp, int) else commit.info.modification_time_ms
    for name in ("operationParameters", "operationMetrics"):
        if isinstance(entry.get(name), dict):
            entry[name] = {key: _value(value) for key, value in entry[name].items()}
    return entry


def _value(value: Any) -> Any:
    if not isinstance(value, str) or not value[:1] or value[0] not in '[{"-0123456789tf':
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value
