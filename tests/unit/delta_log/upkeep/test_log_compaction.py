"""A log compaction is what its commits come to: readers find the same table with it and without."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.checks.checkpoint_state import state_of
from tests.support.repetition import examples
from tests.support.tables.random_log import NOW_MS, logs, write_commits

from delta_log.errors import CorruptLog, InvalidRequest, UnsupportedFeature
from delta_log.log.file_names import commit_key
from delta_log.log.log_segment import find_log_segment, list_log
from delta_log.snapshot.snapshot import Snapshot
from delta_log.storage.storage import Storage
from delta_log.testing import Fault, FaultyStorage, MemoryStorage
from delta_log.upkeep.log_compaction import (
    CompactionMismatch,
    CompactionResult,
    compaction_key,
    write_log_compaction,
)


def snapshot_of(storage: Storage, version: int | None = None) -> Snapshot:
    return Snapshot(storage, find_log_segment(storage, version))


def compacted(storage: Storage, snapshot: Snapshot, start: int, end: int) -> CompactionResult:
    """Write a log compaction that holds something."""
    result = write_log_compaction(storage, snapshot, start, end)
    assert result is not None
    return result


def copy_of(storage: MemoryStorage) -> MemoryStorage:
    copy = MemoryStorage(storage.uri)
    copy.objects = dict(storage.objects)
    return copy


def naive(commits: list[list[dict[str, Any]]]) -> dict[tuple[str, ...], dict[str, Any]]:
    """What some commits come to, oldest first, by whatever names an action: the last one said stands."""
    found: dict[tuple[str, ...], dict[str, Any]] = {}
    for actions in commits:
        for action in actions:
            ((kind, body),) = action.items()
            if kind in ("add", "remove"):
                vector = body.get("deletionVector")
                identity = "" if vector is None else json.dumps(vector, sort_keys=True)
                found["file", body["path"], identity] = action
            elif kind == "txn":
                found[kind, body["appId"]] = action
            elif kind == "domainMetadata":
                found[kind, body["domain"]] = action
            elif kind in ("protocol", "metaData"):
                found[(kind,)] = action
    return found


@examples(20)
@given(log=logs({}, max_versions=6), data=st.data())
def test_it_holds_what_a_naive_replay_of_its_commits_holds(
    log: list[list[dict[str, Any]]], data: st.DataObject
) -> None:
    storage = MemoryStorage()
    log.append([{"commitInfo": {}}, {"txn": {"appId": "last", "version": 1}}])
    write_commits(storage, log)
    latest = len(log) - 1
    start = data.draw(st.integers(0, latest - 1))
    end = data.draw(st.integers(start + 1, latest))
    expected = naive(log[start : end + 1])
    if not expected:
        assert write_log_compaction(storage, snapshot_of(storage), start, end) is None
        return
    result = compacted(storage, snapshot_of(storage), start, end)
    lines = [json.loads(line) for line in storage.read(result.key).splitlines()]
    assert sorted(map(canonical, lines)) == sorted(map(canonical, expected.values()))
    assert (result.actions, result.size_bytes) == (len(lines), len(storage.read(result.key)))


def canonical(action: dict[str, Any]) -> str:
    return json.dumps(action, sort_keys=True)


@examples(12)
@given(log=logs({}, max_versions=6), data=st.data())
def test_every_version_is_the_same_with_it_and_without(
    log: list[list[dict[str, Any]]], data: st.DataObject
) -> None:
    storage = MemoryStorage()
    log.append([{"txn": {"appId": "last", "version": 1}}])
    write_commits(storage, log)
    latest = len(log) - 1
    before = {v: state_of(snapshot_of(storage, v), NOW_MS, stats="none") for v in range(latest + 1)}
    for _ in range(data.draw(st.integers(1, 3))):
        start = data.draw(st.integers(0, latest - 1))
        end = data.draw(st.integers(start + 1, latest))
        if naive(log[start : end + 1]):
            write_log_compaction(storage, snapshot_of(storage), start, end)
    used = [f for v in range(latest + 1) for f in find_log_segment(storage, v).tail if f.end > f.version]
    assert used or not list_log(storage).compactions
    # The compacted commits themselves hold nothing of use to a reader.
    blind = copy_of(storage)
    for file in find_log_segment(storage).tail:
        for version in range(file.version, file.end + 1 if file.end > file.version else 0):
            blind.put(commit_key(version), b'{"commitInfo":{}}\n')
    assert state_of(snapshot_of(blind), NOW_MS, stats="none") == before[latest]
    for version in range(latest + 1):
        assert state_of(snapshot_of(storage, version), NOW_MS, stats="none") == before[version]


# -- a log of known shape -------------------------------------------------------------------------------------------

PROTOCOL = {"protocol": {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["domainMetadata"]}}
METADATA = {"metaData": {"id": "t", "schemaString": '{"type":"struct","fields":[]}', "partitionColumns": []}}


def domain(name: str, *, removed: bool = False) -> dict[str, Any]:
    return {"domainMetadata": {"domain": name, "configuration": "{}", "removed": removed}}


def add(path: str, **more: Any) -> dict[str, Any]:
    return {
        "add": {
            "path": path,
            "size": 1,
            "partitionValues": {},
            "modificationTime": 1,
            "dataChange": True,
            **more,
        }
    }


def remove(path: str, **more: Any) -> dict[str, Any]:
    return {"remove": {"path": path, "deletionTimestamp": 5, "dataChange": True, **more}}


def small_log() -> MemoryStorage:
    storage = MemoryStorage()
    write_commits(
        storage,
        [
            [PROTOCOL, METADATA, add("a"), domain("d")],
            [
                {"commitInfo": {"operation": "WRITE"}},
                add("b", unknown={"deep": 1.50}),
                {"txn": {"appId": "x", "version": 1}},
            ],
            [remove("a"), domain("d", removed=True), {"cdc": {"path": "c", "size": 1}}],
            [remove("b"), add("c"), {"txn": {"appId": "x", "version": 2}}, {"brandNew": {"x": 1}}],
        ],
    )
    return storage


def test_removals_stay_and_what_tells_of_commits_goes() -> None:
    storage = small_log()
    result = compacted(storage, snapshot_of(storage), 1, 3)
    assert result.key == f"_delta_log/{1:020d}.{3:020d}.compacted.json"
    lines = [json.loads(line) for line in storage.read(result.key).splitlines()]
    assert lines == [
        remove("a"),
        domain("d", removed=True),
        remove("b"),
        add("c"),
        {"txn": {"appId": "x", "version": 2}},
    ]
    assert snapshot_of(storage).domain_metadata == {}
    assert not result.already_there
    assert compacted(storage, snapshot_of(storage), 1, 3).already_there


def test_unknown_members_are_kept_byte_by_byte() -> None:
    storage = small_log()
    result = compacted(storage, snapshot_of(storage), 0, 1)
    assert b'"unknown": {"deep": 1.5}' in storage.read(result.key)


def test_a_file_that_came_back_is_live_and_one_with_another_vector_is_another() -> None:
    storage = small_log()
    vector = {"storageType": "i", "pathOrInlineDv": "x", "sizeInBytes": 1, "cardinality": 1}
    log = [[remove("c"), add("c", deletionVector=vector)], [remove("c", deletionVector=vector), add("c")]]
    for version, actions in enumerate(log, 4):
        storage.put(commit_key(version), "\n".join(map(json.dumps, actions)).encode())
    before = state_of(snapshot_of(storage), NOW_MS)
    result = compacted(storage, snapshot_of(storage), 4, 5)
    kinds = sorted(next(iter(json.loads(line))) for line in storage.read(result.key).splitlines())
    assert kinds == ["add", "remove"]
    assert state_of(snapshot_of(storage), NOW_MS) == before


@pytest.mark.parametrize(("start", "end"), [(1, 1), (2, 1), (-1, 2), (2, 4)])
def test_a_range_that_makes_no_sense_is_refused(start: int, end: int) -> None:
    storage = small_log()
    objects = dict(storage.objects)
    with pytest.raises(InvalidRequest, match="makes no sense"):
        write_log_compaction(storage, snapshot_of(storage), start, end)
    assert storage.objects == objects


def test_a_gap_is_refused() -> None:
    storage = small_log()
    snapshot = snapshot_of(storage)
    storage.delete([commit_key(2)])
    objects = dict(storage.objects)
    with pytest.raises(CorruptLog, match="2.json.*missing"):
        write_log_compaction(storage, snapshot, 1, 3)
    assert storage.objects == objects


@pytest.mark.parametrize("at", [1, 2, 4])
def test_a_feature_of_any_of_the_versions_that_may_mean_more_actions_is_refused(at: int) -> None:
    storage = small_log()
    unknown = {"protocol": {**PROTOCOL["protocol"], "writerFeatures": ["brandNew"]}}
    for version, protocol in ((at, unknown), (at + 1, PROTOCOL)):
        key = commit_key(version)
        body = storage.read(key) if storage.head(key) else b""
        storage.put(key, body + json.dumps(protocol).encode() + b"\n")
    if at == 4:
        storage.delete([commit_key(5)])
    objects = dict(storage.objects)
    with pytest.raises(UnsupportedFeature, match="brandNew"):
        write_log_compaction(storage, snapshot_of(storage), 2, 3)
    assert storage.objects == objects


def test_the_compaction_of_another_writer_is_compared_and_named() -> None:
    storage = small_log()
    key = compaction_key(1, 3)
    storage.put(key, json.dumps(add("c")).encode())
    objects = dict(storage.objects)
    with pytest.raises(CompactionMismatch) as caught:
        write_log_compaction(storage, snapshot_of(storage, 0).refreshed(), 1, 3)
    assert caught.value.published
    assert set(caught.value.differences) == {"txn", "domainMetadata", "remove"}
    assert storage.objects == objects


def test_a_process_that_dies_at_any_call_leaves_none_or_a_whole_one() -> None:
    expected = state_of(snapshot_of(small_log()), NOW_MS)
    for when in ("before", "after"):
        calls: list[str] = []
        note = {when: lambda name, key, calls=calls: calls.append(name)}
        counting = FaultyStorage(small_log(), **note)
        write_log_compaction(counting, snapshot_of(counting), 1, 3)
        for fatal in range(len(calls)):
            storage, left = small_log(), [fatal]

            def die(name: str, key: str, left: list[int] = left) -> None:
                left[0] -= 1
                if left[0] < 0:
                    raise Fault

            faulty = FaultyStorage(storage, **{when: die})
            with pytest.raises(Fault):
                write_log_compaction(faulty, snapshot_of(faulty), 1, 3)
            assert state_of(snapshot_of(storage), NOW_MS) == expected
            write_log_compaction(storage, snapshot_of(storage), 1, 3)
            assert state_of(snapshot_of(storage), NOW_MS) == expected
