"""Generates old logs: commits up to a day apart, checkpoints of several kinds, and leftovers of writers."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Any

from hypothesis import strategies as st

from delta_log.checkpoint.writer import CheckpointPolicy, write_checkpoint
from delta_log.errors import CorruptLog, VersionNotFound
from delta_log.log.file_names import LAST_CHECKPOINT, commit_key
from delta_log.log.log_segment import find_log_segment
from delta_log.runtime import Runtime
from delta_log.snapshot.snapshot import Snapshot
from delta_log.snapshot.version_checksum import write_version_checksum
from delta_log.storage.storage import Storage
from delta_log.testing import MemoryStorage
from tests.support.checks.checkpoint_state import state_of
from tests.support.tables.random_log import DAY_MS, NOW_MS, logs, write_commits

POLICIES: list[list[CheckpointPolicy]] = [["classic"], ["v2"], ["classic", "v2"]]
RUNTIME = Runtime(now_ms=lambda: NOW_MS)
PROPERTIES = {
    "delta.logRetentionDuration": "interval 3 days",
    "delta.deletedFileRetentionDuration": "interval 1 day",
}


def snapshot_of(storage: Storage, version: int | None = None) -> Snapshot:
    return Snapshot(storage, find_log_segment(storage, version))


def copy_of(storage: MemoryStorage) -> MemoryStorage:
    copy = MemoryStorage(storage.uri)
    copy.objects, copy._clock_ms = dict(storage.objects), storage._clock_ms
    return copy


def age(storage: MemoryStorage, key: str, days: float) -> None:
    """Sets the age of an object."""
    storage.objects[key] = (storage.objects[key][0], NOW_MS - int(days * DAY_MS))


def readable_states(storage: Storage, first: int = 0) -> dict[int, dict[str, Any]]:
    """Returns the state of every version that can be opened and whose files can all be read."""
    found = {}
    for version in range(first, snapshot_of(storage).version + 1):
        with suppress(CorruptLog, VersionNotFound):
            found[version] = state_of(snapshot_of(storage, version), NOW_MS, stats="none")
    return found


def readable_versions(storage: Storage) -> set[int]:
    return set(readable_states(storage))


@st.composite
def aged_logs(
    draw: st.DrawFn, max_versions: int = 10, properties: Mapping[str, str] = MappingProxyType({})
) -> MemoryStorage:
    """A table whose newest commit is new, each earlier one half a day to a day older than the next."""
    commits: list[list[dict[str, Any]]] = draw(logs({**PROPERTIES, **properties}, max_versions=max_versions))
    storage = MemoryStorage()
    write_commits(storage, commits)
    latest = len(commits) - 1
    days = 0.0
    for version in range(latest, -1, -1):
        age(storage, commit_key(version), days)
        days += draw(st.sampled_from([0.4, 0.9, 1.0]))
    for version in sorted(draw(st.sets(st.integers(0, latest), max_size=4))):
        for policy in draw(st.sampled_from(POLICIES)):
            result = write_checkpoint(storage, snapshot_of(storage, version), RUNTIME, policy)
            when = (NOW_MS - storage.objects[commit_key(version)][1]) / DAY_MS
            for key in result.keys:
                age(storage, key, when)
    for version in draw(st.sets(st.integers(0, latest), max_size=3)):
        write_version_checksum(storage, snapshot_of(storage, version), None)
    if draw(st.booleans()):
        storage.delete([LAST_CHECKPOINT])
    for name in draw(st.sets(st.sampled_from(LITTER), max_size=4)):
        storage.put(f"_delta_log/{name}", b"x" if "empty" not in name else b"")
        age(storage, f"_delta_log/{name}", draw(st.sampled_from([0.1, 5.0])))
    storage._clock_ms = NOW_MS
    return storage


LITTER = (
    f"{1:020d}.checkpoint.{1:010d}.{2:010d}.parquet",
    f"{3:020d}.checkpoint.empty.parquet",
    "_sidecars/orphan.parquet",
    f".{2:020d}.json.abc.tmp",
    "_commit_abc.json.tmp",
    f".{0:020d}.json.crc",
    f".{77:020d}.json.crc",
    f"_staged_commits/{1:020d}.abc.json",
    "of-another-program.file",
    f"{0:020d}.{3:020d}.compacted.json.txt",
)
