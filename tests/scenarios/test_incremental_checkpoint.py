"""An incremental checkpoint is the full one, and writes only what changed."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.checks.checkpoint_state import state_of
from tests.support.repetition import examples
from tests.support.tables.checkpoint_histories import (
    PROPERTIES,
    PROTOCOL,
    FreshStorage,
    at,
    check_history,
    commit,
    fresh_copy,
    only_the_checkpoint,
    snapshot_of,
)
from tests.support.tables.random_log import DAY_MS, NOW_MS

from delta_log.checkpoint.sidecar_tags import tags_of
from delta_log.checkpoint.writer import CheckpointResult, write_checkpoint
from delta_log.errors import CorruptLog
from delta_log.log.actions import decode_actions
from delta_log.log.last_checkpoint import read_last_checkpoint
from delta_log.storage.storage import Storage
from delta_log.testing import Fault, FaultyStorage, MemoryStorage


@examples(6)
@given(properties=PROPERTIES, sidecar_actions=st.sampled_from([1, 2, 5]), data=st.data())
def test_an_incremental_checkpoint_holds_what_the_commits_replay_to(
    properties: dict[str, str], sidecar_actions: int, data: st.DataObject
) -> None:
    check_history(data, properties, sidecar_actions)


# -- a table of ten sidecars ---------------------------------------------------------------------------------------


def add(path: str, **more: Any) -> dict[str, Any]:
    body = {"path": path, "partitionValues": {}, "size": 10, "modificationTime": 1, "dataChange": True}
    return {"add": {**body, **more}}


def remove(path: str, **more: Any) -> dict[str, Any]:
    return {"remove": {"path": path, "deletionTimestamp": NOW_MS, "dataChange": True, **more}}


def vector(number: int) -> dict[str, Any]:
    return {"storageType": "i", "pathOrInlineDv": f"dv{number}", "sizeInBytes": 4, "cardinality": number}


def ten_sidecars(
    properties: dict[str, str] | None = None, files: int = 20
) -> tuple[FreshStorage, CheckpointResult]:
    """Twenty files, two in a sidecar, in a checkpoint of version 0; the first two are the newest."""
    schema = {"type": "struct", "fields": [{"name": "x", "type": "long", "nullable": True, "metadata": {}}]}
    metadata_ = {
        "id": "t",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps(schema),
        "partitionColumns": [],
        "configuration": {"delta.checkpointPolicy": "v2", **(properties or {})},
    }
    storage = FreshStorage()
    commit(
        storage,
        0,
        [{"protocol": PROTOCOL}, {"metaData": metadata_}, *(add(f"f{n:02}") for n in range(files))],
    )
    return storage, write(storage)


def write(storage: Storage, now_ms: int = NOW_MS, **more: Any) -> CheckpointResult:
    return write_checkpoint(storage, snapshot_of(storage), at(now_ms), sidecar_actions=2, **more)


def same_as_full(storage: FreshStorage, result: CheckpointResult, now_ms: int = NOW_MS) -> bool:
    full = write(fresh_copy_without(storage, result), now_ms, incremental=False)
    assert full.reused_sidecars == 0
    expected = state_of(snapshot_of(storage), now_ms)
    return state_of(only_the_checkpoint(storage, result), now_ms) == expected


def fresh_copy_without(storage: MemoryStorage, result: CheckpointResult) -> FreshStorage:
    copy = fresh_copy(storage)
    copy.delete([result.keys[0]])
    return copy


@pytest.mark.parametrize(
    ("actions", "reused"),
    [
        ([], 10),
        ([add("new")], 10),
        ([remove("f03"), add("new")], 9),
        ([remove("f03"), remove("f02")], 9),
        ([add("f19", tags={"a": "b"})], 9),
        ([remove("f19"), add("f19", deletionVector=vector(1))], 9),
        ([remove(f"f{n:02}") for n in range(0, 20, 2)], 0),
        ([remove("unheard-of")], 10),
    ],
    ids=[
        "nothing",
        "append",
        "update",
        "whole sidecar",
        "refresh",
        "deletion vector",
        "everywhere",
        "unknown",
    ],
)
def test_sidecars_whose_actions_did_not_change_are_named_again(actions: list[Any], reused: int) -> None:
    storage, before = ten_sidecars()
    commit(storage, 1, actions)
    result = write(storage)
    assert result.reused_sidecars == reused == len(set(result.keys) & set(before.keys))
    assert same_as_full(storage, result)


def test_an_untouched_sidecar_is_not_decoded() -> None:
    storage, before = ten_sidecars()
    commit(storage, 1, [remove("f03"), add("new")])
    opened: list[str] = []
    read: list[str] = []

    def note(name: str, key: str) -> None:
        if key in before.keys[1:]:
            (opened if name == "open_read" else read).append(f"{name} {key}")

    small = storage.read(before.keys[1])
    assert len(small) < 1 << 20  # fetched whole, where it is decoded
    lengths: dict[str, int] = {}

    class Counting(FaultyStorage):
        def read(self, key: str, start: int = 0, length: int | None = None) -> bytes:
            data = super().read(key, start, length)
            lengths[key] = max(lengths.get(key, 0), len(data))
            return data

    write(Counting(storage, before=note))
    whole = [key for key in before.keys[1:] if lengths.get(key) == len(storage.read(key))]
    assert whole == [before.keys[2]]
    assert opened == []


def test_small_additions_are_gathered_so_that_sidecars_stay_few() -> None:
    storage, result = ten_sidecars()
    for version in range(1, 40):
        commit(storage, version, [add(f"g{version}")])
        result = write_checkpoint(storage, snapshot_of(storage), at(NOW_MS), sidecar_actions=16)
    assert result.num_add_files == 59
    assert len(result.keys) < 20
    assert same_as_full(storage, result)


def test_tombstones_that_expired_are_left_out_and_the_others_named_again() -> None:
    storage, _ = ten_sidecars()
    commit(storage, 1, [remove(f"f0{n}", deletionTimestamp=NOW_MS - (6 - n) * DAY_MS) for n in range(4)])
    first = write(storage)
    commit(storage, 2, [])
    later_ms = NOW_MS + 2 * DAY_MS
    result = write(storage, later_ms)
    assert result.reused_sidecars == len(first.keys) - 2
    left = only_the_checkpoint(storage, result).tombstones(["key"]).column(0).to_pylist()
    assert sorted(left) == ["f02", "f03"]
    assert same_as_full(storage, result, later_ms)


def test_a_tombstone_without_a_time_of_deletion_is_one_of_1970() -> None:
    storage, _ = ten_sidecars({"delta.deletedFileRetentionDuration": "interval 30000 days"})
    commit(
        storage,
        1,
        [remove("f00"), remove("f01", deletionTimestamp=None), remove("f02", deletionTimestamp=None)],
    )
    first = write(storage)
    assert only_the_checkpoint(storage, first).tombstones(["key"]).num_rows == 3
    commit(storage, 2, [])
    assert write(storage).reused_sidecars == len(first.keys) - 1
    commit(storage, 3, [])
    result = write(storage, 30_000 * DAY_MS)
    assert only_the_checkpoint(storage, result).tombstones(["key"]).column(0).to_pylist() == ["f00"]


def test_sidecars_near_the_end_of_log_retention_are_written_anew() -> None:
    storage, _ = ten_sidecars({"delta.logRetentionDuration": "interval 4 days"})
    commit(storage, 1, [])
    # They were written a day before, by the store's clock.
    assert write(fresh_copy(storage), NOW_MS + DAY_MS).reused_sidecars == 10
    late_ms = NOW_MS + DAY_MS + 1000
    result = write(storage, late_ms)
    assert result.reused_sidecars == 0
    assert same_as_full(storage, result, late_ms)


def test_nothing_is_named_again_after_a_change_of_what_sidecars_hold() -> None:
    storage, _ = ten_sidecars()
    body = json.loads(storage.read("_delta_log/00000000000000000000.json").splitlines()[2])
    body["metaData"]["configuration"]["delta.checkpoint.writeStatsAsStruct"] = "true"
    commit(storage, 1, [body])
    result = write(storage)
    assert (result.reused_sidecars, result.stats_forms) == (0, ("json", "struct"))
    assert same_as_full(storage, result)


def test_only_sidecars_of_the_newest_checkpoint_are_named_again() -> None:
    storage, first = ten_sidecars()
    held = snapshot_of(storage)
    commit(storage, 1, [add("one")])
    write_checkpoint(storage, snapshot_of(storage), at(NOW_MS), "v2", incremental=False, sidecar_actions=2)
    commit(storage, 2, [add("two")])
    # A snapshot that still rests on the first checkpoint, whose sidecars no other checkpoint names.
    stale = held.refreshed()
    result = write_checkpoint(storage, stale, at(NOW_MS), sidecar_actions=2)
    assert result.reused_sidecars > 0
    assert not set(result.keys) & set(first.keys)
    assert same_as_full(storage, result)
    commit(storage, 3, [add("three")])
    write_checkpoint(storage, snapshot_of(storage), at(NOW_MS), "classic")
    commit(storage, 4, [])
    assert write(storage).reused_sidecars == 0


def test_a_sidecar_without_filter_is_looked_up_by_its_paths() -> None:
    storage, _ = ten_sidecars()
    commit(storage, 1, [add("s3://bucket/absolute"), add("s3://bucket/other")])
    first = write(storage)
    top = decode_actions(storage.read(first.keys[0]), "")
    found = [tags_of(action.sidecar) for action in top if action.sidecar is not None]
    assert [tags.filter is None for tags in found if tags is not None] == [True] + [False] * 10
    commit(storage, 2, [remove("s3://bucket/absolute")])
    result = write(storage)
    assert result.reused_sidecars == 10
    assert same_as_full(storage, result)


def test_a_damaged_sidecar_is_named_and_no_checkpoint_is_made_of_it() -> None:
    storage, first = ten_sidecars()
    storage.put(first.keys[2], storage.read(first.keys[3]))
    commit(storage, 1, [remove("f03"), remove("f05")])
    objects = dict(storage.objects)
    with pytest.raises(CorruptLog, match="does not hold what it held when it was written"):
        write(storage)
    assert storage.objects == objects


def test_a_sidecar_that_a_cleanup_deletes_meanwhile_is_not_pointed_to() -> None:
    source, first = ten_sidecars(files=8)
    commit(source, 1, [add("new")])
    write(source)
    commit(source, 2, [remove("f03")])
    expected = state_of(snapshot_of(source), NOW_MS)
    calls: list[str] = []
    write(FaultyStorage(fresh_copy(source), before=lambda name, key: calls.append(name)))
    for moment in range(len(calls)):
        storage = fresh_copy(source)
        left = [moment]

        def clean(name: str, key: str, storage: FreshStorage = storage, left: list[int] = left) -> None:
            left[0] -= 1
            if left[0] == -1:
                storage.delete([first.keys[-1]])

        with_cleanup = FaultyStorage(storage, before=clean)
        write_or_fail(with_cleanup)
        assert state_of(snapshot_of(storage), NOW_MS) == expected
        again = write(storage)
        assert read_last_checkpoint(storage) == 2
        assert state_of(only_the_checkpoint(storage, again), NOW_MS) == expected


def write_or_fail(storage: Storage) -> None:
    """The cleanup takes what this very reader needs: it may find the table unreadable, and a second try must not."""
    try:
        write(storage)
    except CorruptLog:
        return


def test_a_process_that_dies_at_any_call_leaves_the_old_state_or_the_new() -> None:
    source, _ = ten_sidecars(files=6)
    commit(source, 1, [remove("f03"), add("new"), add("f05", tags={"a": "b"})])
    expected = state_of(snapshot_of(source), NOW_MS)
    for when in ("before", "after"):
        calls: list[str] = []
        note = {when: lambda name, key, calls=calls: calls.append(name)}
        write(FaultyStorage(fresh_copy(source), **note))
        for fatal in range(len(calls)):
            storage = fresh_copy(source)
            left = [fatal]

            def die(name: str, key: str, left: list[int] = left) -> None:
                left[0] -= 1
                if left[0] < 0:
                    raise Fault

            with pytest.raises(Fault):
                write(FaultyStorage(storage, **{when: die}))
            assert read_last_checkpoint(storage) in (0, 1)
            assert state_of(snapshot_of(storage), NOW_MS) == expected
            again = write(storage)
            assert read_last_checkpoint(storage) == 1
            assert state_of(only_the_checkpoint(storage, again), NOW_MS) == expected


def test_concurrent_checkpointers_of_one_version_agree() -> None:
    storage, _ = ten_sidecars()
    commit(storage, 1, [remove("f03"), add("new")])
    expected = state_of(snapshot_of(storage), NOW_MS)
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda _: write(storage), range(4)))
    assert len({result.actions for result in results}) == 1
    for result in results:
        assert state_of(only_the_checkpoint(storage, result), NOW_MS) == expected


def test_an_unreadable_checkpoint_does_not_prevent_another() -> None:
    storage, first = ten_sidecars()
    storage.delete([first.keys[3]])
    result = write(storage)
    assert not result.already_there
    assert same_as_full(storage, result)
