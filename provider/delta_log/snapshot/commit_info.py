"""When a version was committed, and by which writer: ``commitInfo`` in one form for all writers.

Protocol sections "Commit Provenance Information" and "In-Commit Timestamps". ``commitInfo`` may be absent, may hold
any members, and may spell numbers and objects as strings; :func:`normalise` accepts all of it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from typing import Any, TypeGuard

from delta_log.errors import CorruptLog
from delta_log.log.actions import decode_commit
from delta_log.log.file_names import LogFile, commit_key
from delta_log.log.log_segment import LogSegment, list_log
from delta_log.storage.storage import Storage
from delta_log.table_config.properties import flag, readable

#: Milliseconds since the epoch of the first and the last moment that has a date: the years 1 to 9999.
_FIRST_MS, _LAST_MS = -62_135_596_800_000, 253_402_300_799_999

#: How deep arrays and objects may be nested; no engine nests more than a few.
MAX_DEPTH = 64

ICT_ENABLED = "delta.enableInCommitTimestamps"
ICT_ENABLEMENT_VERSION = "delta.inCommitTimestampEnablementVersion"


def commit_timestamp_ms(
    storage: Storage,
    segment: LogSegment,
    properties: Mapping[str, str],
    commit_info: Mapping[str, Any] | None,
) -> int:
    """When the segment's version was committed, in ms since the epoch."""
    # A property that is no boolean enables nothing, and the table can be read all the same. Commits refuse it.
    if readable(lambda found: flag(found, ICT_ENABLED), properties):
        if commit_info is None:
            commit_info = read_commit_info(storage, segment.version)
        return in_commit_timestamp_ms(segment.version, commit_info)
    listing = list_log(storage)
    versions = [v for v in sorted(listing.commits) if listing.earliest <= v <= segment.version]
    if versions and versions[-1] == segment.version:
        return monotone_times([listing.commits[v].info.modification_time_ms for v in versions])[-1]
    # The commit was cleaned; the time of its checkpoint is the best estimate.
    assert segment.checkpoint is not None
    return segment.checkpoint.files[0].info.modification_time_ms


def is_moment(value: object) -> TypeGuard[int]:
    """Whether a value of the log is a time in milliseconds within the years 1 to 9999."""
    return isinstance(value, int) and not isinstance(value, bool) and _FIRST_MS <= value <= _LAST_MS


def moment_text(time_ms: int) -> str:
    """A time of the log as ISO 8601 in UTC, to the millisecond, such as ``2026-01-31T12:00:00.250Z``."""
    if not is_moment(time_ms):
        return "before year 1" if time_ms < 0 else "after year 9999"
    moment = datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(milliseconds=time_ms)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def in_commit_timestamp_ms(version: int, commit_info: Mapping[str, Any] | None) -> int:
    """The in-commit timestamp of a version.

    :raises CorruptLog: the commit has none, or it is no time.
    """
    timestamp = (commit_info or {}).get("inCommitTimestamp")
    if timestamp is None:
        raise CorruptLog(commit_key(version), "in-commit timestamps are enabled, but its commitInfo has none")
    if not is_moment(timestamp):
        raise CorruptLog(
            commit_key(version),
            f"its in-commit timestamp is {str(timestamp)[:40]}, not milliseconds of the years 1 to 9999",
        )
    return timestamp


def monotone_times(times_ms: list[int]) -> list[int]:
    """The modification times of successive commits, moved so that each is at least 1 ms after the one before."""
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
        (a.commitInfo for a in decode_commit(data, commit_key(version)) if a.commitInfo is not None), None
    )


def normalise(raw: Mapping[str, Any], commit: LogFile) -> dict[str, Any]:
    """``version``, ``timestamp`` (ms) and the members of ``commitInfo``, with parameters and metrics as JSON values.

    ``timestamp`` is the in-commit timestamp, else the writer's, else the file's; a value that is no time counts as
    absent. Strings that hold JSON arrays, objects, numbers or booleans become those. Members that are absent are left
    out, as are parameters and metrics that are no objects, and values nested deeper than :data:`MAX_DEPTH`.
    """
    entry: dict[str, Any] = {
        key: value for key, value in raw.items() if value is not None and is_shallow(value)
    }
    entry["version"] = commit.version
    stated = stated_time_ms(raw)
    entry["timestamp"] = commit.info.modification_time_ms if stated is None else stated
    for name in ("operationParameters", "operationMetrics"):
        members = entry.pop(name, None)
        if isinstance(members, dict):
            entry[name] = {key: _value(value) for key, value in members.items()}
    return entry


def stated_time_ms(commit_info: Mapping[str, Any]) -> int | None:
    """The time of a commit by its writer's clock; ``None``: ``commitInfo`` has none."""
    times = (commit_info.get(name) for name in ("inCommitTimestamp", "timestamp"))
    return next((time_ms for time_ms in times if is_moment(time_ms)), None)


def _value(value: Any) -> Any:
    if not isinstance(value, str) or not value[:1] or value[0] not in '[{"-0123456789tf':
        return value
    try:
        found = json.loads(value)
    except (ValueError, RecursionError):
        return value
    return found if is_shallow(found) else value


def is_shallow(value: Any) -> bool:
    """Whether a JSON value is nested at most :data:`MAX_DEPTH` deep, so that code may recurse into it."""
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [
            member
            for one in level
            if isinstance(one, (dict, list))
            for member in (one.values() if isinstance(one, dict) else one)
        ]
        if not level:
            return True
    return False
