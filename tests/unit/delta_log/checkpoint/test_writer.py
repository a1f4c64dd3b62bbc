"""A checkpoint holds the state of its version, whole, and appears at once or not at all."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.support.checks.checkpoint_state import RETENTION_MS, state_of
from tests.support.repetition import examples
from tests.support.tables.random_log import NOW_MS, logs, write_commits

from delta_log.checkpoint.writer import CheckpointMismatch, CheckpointPolicy, write_checkpoint
from delta_log.errors import CorruptLog, InvalidRequest, UnsupportedFeature
from delta_log.log.file_names import LAST_CHECKPOINT, checksum_key
from delta_log.log.last_checkpoint import read_last_checkpoint
from delta_log.log.log_segment import find_log_segment, list_log
from delta_log.runtime import Runtime
from delta_log.snapshot.snapshot import Snapshot
from delta_log.storage.storage import Storage
from delta_log.testing import Fault, FaultyStorage, MemoryStorage

RUNTIME = Runtime(now_ms=lambda: NOW_MS)


def snapshot_of(storage: Storage, version: int | None = None) -> Snapshot:
    return Snapshot(storage, find_log_segment(storage, version))


def only_the_checkpoint(storage: MemoryStorage, version: int) -> MemoryStorage:
    """A copy whose log has but one version: what it tells, its checkpoint tells."""
    copy = MemoryStorage(storage.uri)
    kept = (f"_delta_log/{version:020d}", "_delta_log/_sidecars/")
    copy.objects = {key: value for key, value in storage.objects.items() if key.startswith(kept)}
    assert snapshot_of(copy).commits_since_checkpoint == 0
    return copy


PROPERTIES = st.fixed_dictionaries(
    {},
    optional={
        "delta.checkpointPolicy": st.sampled_from(["classic", "v2"]),
        "delta.checkpoint.writeStatsAsJson": st.sampled_from(["true", "false"]),
        "delta.checkpoint.writeStatsAsStruct": st.sampled_from(["true", "false"]),
    },
)


@examples(15)
@given(properties=PROPERTIES, data=st.data())
def test_a_checkpoint_holds_what_the_snapshot_holds(properties: dict[str, str], data: st.DataObject) -> None:
    storage = MemoryStorage()
    write_commits(storage, data.draw(logs(properties)))
    version = data.draw(st.integers(0, list_log(storage).latest))
    before = snapshot_of(storage, version)
    result = write_checkpoint(storage, before, RUNTIME)
    assert (result.version, result.already_there) == (version, False)
    assert result.policy == properties.get("delta.checkpointPolicy", "classic")
    after = snapshot_of(only_the_checkpoint(storage, version))
    stats = "json" if "json" in result.stats_forms else "struct"
    assert state_of(after, NOW_MS, stats=stats) == state_of(before, NOW_MS, stats=stats)
    assert result.num_add_files == before.num_files
    assert result.size_bytes == sum(len(storage.read(key)) for key in result.keys)
    assert read_last_checkpoint(storage) == version
    pointer = json.loads(storage.read(LAST_CHECKPOINT))
    assert (pointer["size"], pointer["numOfAddFiles"]) == (result.actions, before.num_files)
    # A snapshot that rests on it is checkpointed again to the same state.
    again = only_the_checkpoint(storage, version)
    again.put(f"_delta_log/{version + 1:020d}.json", b'{"commitInfo":{}}\n')
    write_checkpoint(again, snapshot_of(again), RUNTIME)
    twice = only_the_checkpoint(again, version + 1)
    assert {**state_of(snapshot_of(twice), NOW_MS, stats=stats), "version": version} == state_of(
        before, NOW_MS, stats=stats
    )


@examples(10)
@given(properties=PROPERTIES, data=st.data())
def test_every_row_is_one_action_with_all_that_the_protocol_requires(
    properties: dict[str, str], data: st.DataObject
) -> None:
    storage = MemoryStorage()
    write_commits(storage, data.draw(logs(properties)))
    result = write_checkpoint(storage, snapshot_of(storage), RUNTIME)
    rows = list(actions_in(storage, result.keys))
    assert len(rows) == result.actions
    assert all(len(row) == 1 for row in rows)
    kinds = [next(iter(row)) for row in rows]
    assert kinds.count("protocol") == kinds.count("metaData") == 1
    assert {"commitInfo", "cdc"}.isdisjoint(kinds)
    assert kinds.count("add") == result.num_add_files
    for row in rows:
        if "add" in row:
            assert row["add"]["dataChange"] is False
            required = ("path", "partitionValues", "size", "modificationTime")
            assert all(row["add"][name] is not None for name in required)
        elif "remove" in row:
            assert row["remove"]["deletionTimestamp"] > NOW_MS - RETENTION_MS
            assert row["remove"]["dataChange"] is not None
            assert {"stats", "tags"}.isdisjoint(row["remove"])
        elif "domainMetadata" in row:
            assert row["domainMetadata"]["removed"] is False


def actions_in(storage: Storage, keys: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    """The rows of checkpoint files, read without our own reader."""
    for key in keys:
        data = storage.read(key)
        if key.endswith(".json"):
            yield from map(json.loads, data.splitlines())
            continue
        for row in pq.read_table(io.BytesIO(data)).to_pylist():
            yield {name: body for name, body in row.items() if body is not None}


# -- a small table ------------------------------------------------------------------------------------------------


def small_table(
    properties: dict[str, str] | None = None, features: tuple[str, ...] = ("v2Checkpoint",), commits: int = 3
) -> MemoryStorage:
    """One file a commit; ``a`` of the first is removed by the last."""
    storage = MemoryStorage()
    schema = {
        "type": "struct",
        "fields": [
            {"name": "day", "type": "date", "nullable": True, "metadata": {}},
            {"name": "x", "type": "long", "nullable": True, "metadata": {}},
        ],
    }
    protocol = {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": [f for f in features if f in ("v2Checkpoint", "deletionVectors", "brandNew")],
        "writerFeatures": list(features),
    }
    body = {"id": "t", "schemaString": json.dumps(schema), "partitionColumns": ["day"]}
    metadata = {**body, "configuration": properties or {}, "format": {"provider": "parquet", "options": {}}}
    log: list[list[dict[str, Any]]] = [[{"protocol": protocol}, {"metaData": metadata}]]
    log += [[] for _ in range(commits - 1)]
    for number, actions in enumerate(log):
        stats = {"numRecords": 5, "minValues": {"x": number}, "maxValues": {"x": 9}, "nullCount": {"x": 0}}
        add = {
            "path": f"f{number}",
            "partitionValues": {"day": "2024-01-01"},
            "size": 10,
            "modificationTime": 1,
        }
        actions.append({"add": {**add, "dataChange": True, "stats": json.dumps(stats)}})
    log[-1].append({"remove": {"path": "f0", "deletionTimestamp": NOW_MS, "dataChange": True}})
    write_commits(storage, log)
    return storage


POLICIES: list[CheckpointPolicy] = ["classic", "v2"]


@pytest.mark.parametrize("policy", POLICIES)
def test_a_checkpoint_that_is_there_is_left_alone(policy: CheckpointPolicy) -> None:
    storage = small_table()
    first = write_checkpoint(storage, snapshot_of(storage), RUNTIME, policy)
    objects = dict(storage.objects)
    second = write_checkpoint(storage, snapshot_of(storage, 2), RUNTIME)
    assert second == replace(first, already_there=True, stats_forms=())
    assert storage.objects == objects
    other: CheckpointPolicy = "v2" if policy == "classic" else "classic"
    third = write_checkpoint(storage, snapshot_of(storage), RUNTIME, other)
    assert (third.policy, third.already_there) == (other, False)
    assert len(list_log(storage).checkpoints) == 2


@pytest.mark.parametrize("policy", POLICIES)
def test_a_pointer_that_was_not_written_is_made_up_for(policy: CheckpointPolicy) -> None:
    storage = small_table()
    write_checkpoint(storage, snapshot_of(storage), RUNTIME, policy)
    written = json.loads(storage.read(LAST_CHECKPOINT))
    storage.delete([LAST_CHECKPOINT])
    assert write_checkpoint(storage, snapshot_of(storage), RUNTIME).already_there
    found = json.loads(storage.read(LAST_CHECKPOINT))
    for pointer in (written, found):
        del pointer["checksum"]
        for optional in ("nonFileActions", "sidecarFiles"):
            pointer.get("v2Checkpoint", {}).pop(optional, None)
    assert found == written
    assert read_last_checkpoint(storage) == 2


def test_the_pointer_never_moves_backwards_unless_what_it_names_is_gone() -> None:
    storage = small_table(commits=4)
    write_checkpoint(storage, snapshot_of(storage), RUNTIME)
    write_checkpoint(storage, snapshot_of(storage, 1), RUNTIME)
    assert read_last_checkpoint(storage) == 3
    assert [c.version for c in list_log(storage).checkpoints] == [1, 3]
    storage.put(LAST_CHECKPOINT, b'{"version":77,"size":1}')
    write_checkpoint(storage, snapshot_of(storage, 2), RUNTIME)
    assert read_last_checkpoint(storage) == 2


@pytest.mark.parametrize("policy", POLICIES)
def test_a_process_that_dies_at_any_call_leaves_the_old_state_or_the_new(policy: CheckpointPolicy) -> None:
    fresh = small_table(commits=4)
    write_checkpoint(fresh, snapshot_of(fresh, 1), RUNTIME)
    expected = state_of(snapshot_of(fresh), NOW_MS)
    for when in ("before", "after"):
        calls: list[str] = []
        note = {when: lambda name, key, calls=calls: calls.append(name)}
        counting = FaultyStorage(copy_of(fresh), **note)
        write_checkpoint(counting, snapshot_of(counting), RUNTIME, policy)
        assert {"put_if_absent", "put"} <= set(calls)
        for fatal in range(len(calls)):
            storage = copy_of(fresh)
            left = [fatal]

            def die(name: str, key: str, left: list[int] = left) -> None:
                left[0] -= 1
                if left[0] < 0:
                    raise Fault

            faulty = FaultyStorage(storage, **{when: die})
            with pytest.raises(Fault):
                write_checkpoint(faulty, snapshot_of(faulty), RUNTIME, policy)
            assert read_last_checkpoint(storage) in (1, 3)
            if read_last_checkpoint(storage) == 3:
                assert list_log(storage).checkpoints[-1].version == 3
            assert state_of(snapshot_of(storage), NOW_MS) == expected
            # The next run converges, whatever was left behind.
            write_checkpoint(storage, snapshot_of(storage), RUNTIME, policy)
            assert read_last_checkpoint(storage) == 3
            assert state_of(snapshot_of(only_the_checkpoint(storage, 3)), NOW_MS) == expected


def copy_of(storage: MemoryStorage) -> MemoryStorage:
    copy = MemoryStorage(storage.uri)
    copy.objects = dict(storage.objects)
    return copy


@pytest.mark.parametrize("policy", POLICIES)
def test_concurrent_checkpointers_of_one_version_agree(policy: CheckpointPolicy) -> None:
    storage = small_table(commits=30)
    expected = state_of(snapshot_of(storage), NOW_MS)
    snapshots = [snapshot_of(storage) for _ in range(8)]
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda s: write_checkpoint(storage, s, RUNTIME, policy), snapshots))
    written = [result for result in results if not result.already_there]
    assert written
    assert policy == "v2" or len(written) == 1
    assert len({result.actions for result in results}) == 1
    for checkpoint in list_log(storage).checkpoints:
        alone = copy_of(storage)
        others = [c.files[0].key for c in list_log(storage).checkpoints if c != checkpoint]
        alone.delete(others)
        assert state_of(snapshot_of(only_the_checkpoint(alone, 29)), NOW_MS) == expected


@pytest.mark.parametrize(
    ("line", "named"), [("f1", "add"), ("metaData", "metaData"), ("domainMetadata", "domainMetadata")]
)
def test_a_foreign_checkpoint_that_lost_something_is_named_and_not_pointed_to(line: str, named: str) -> None:
    storage = small_table(features=("v2Checkpoint", "domainMetadata"), commits=3)
    domain = {"domainMetadata": {"domain": "d", "configuration": "{}", "removed": False}}
    storage.put("_delta_log/00000000000000000003.json", json.dumps(domain).encode())
    before = snapshot_of(storage)
    result = write_checkpoint(storage, before, RUNTIME, "v2")
    storage.delete([LAST_CHECKPOINT])
    inline = [row for row in actions_in(storage, result.keys) if "sidecar" not in row]
    kept = [row for row in inline if line not in row and row.get("add", {}).get("path") != line]
    if line == "metaData":
        kept.append({"metaData": {"id": "other", "schemaString": before.metadata.schemaString}})
    assert len(kept) < len(inline) or line == "metaData"
    for row in kept:
        if "add" in row:
            row["add"] = {k: dict(v) if k == "partitionValues" else v for k, v in row["add"].items()}
            row["add"].pop("tags")
        if "remove" in row:
            row["remove"].pop("partitionValues")
    storage.put(result.keys[0], "".join(json.dumps(row) + "\n" for row in kept).encode())
    with pytest.raises(CheckpointMismatch, match=named) as caught:
        write_checkpoint(storage, before, RUNTIME)
    assert caught.value.differences == (named,)
    assert not caught.value.retryable
    assert storage.head(LAST_CHECKPOINT) is None


class LossyStorage(MemoryStorage):
    """A store that keeps something else than it is given, for sidecars of live files."""

    def __init__(self, instead: bytes) -> None:
        super().__init__()
        self.instead = instead

    def put_if_absent(self, key: str, data: bytes) -> bool:
        return super().put_if_absent(key, self.instead if "0000000001." in key else data)


@pytest.mark.parametrize(("broken", "named"), [(False, "add"), (True, "it cannot be read")])
def test_what_does_not_read_back_as_it_was_written_is_not_published(broken: bool, named: str) -> None:
    source = small_table()
    foreign = small_table(commits=5)
    result = write_checkpoint(foreign, snapshot_of(foreign), RUNTIME, "v2")
    storage = LossyStorage(b"PAR1 and no more" if broken else foreign.read(result.keys[1]))
    storage.objects = dict(source.objects)
    with pytest.raises(CheckpointMismatch, match=named) as caught:
        write_checkpoint(storage, snapshot_of(storage), RUNTIME, "v2")
    assert caught.value.published is False
    assert caught.value.retryable
    assert storage.objects == source.objects


def test_a_checksum_that_contradicts_the_log_stops_the_checkpoint_and_a_broken_one_does_not() -> None:
    storage = small_table()
    broken = copy_of(storage)
    broken.put(checksum_key(2), b"{")
    write_checkpoint(broken, snapshot_of(broken), RUNTIME)
    storage.put(checksum_key(2), b'{"tableSizeBytes":30,"numFiles":3,"numMetadata":1,"numProtocol":1}')
    objects = dict(storage.objects)
    for policy in POLICIES:
        with pytest.raises(CorruptLog, match=r"another numFiles, another tableSizeBytes"):
            write_checkpoint(storage, snapshot_of(storage), RUNTIME, policy)
        assert storage.objects == objects


@pytest.mark.parametrize("feature", ["brandNewWriterFeature", "redirectWriterOnly-preview"])
def test_the_gate_is_asked_before_the_first_write(feature: str) -> None:
    storage = small_table(features=(feature,))
    objects = dict(storage.objects)
    with pytest.raises(UnsupportedFeature, match=f"Cannot checkpoint.*{feature}"):
        write_checkpoint(storage, snapshot_of(storage), RUNTIME)
    assert storage.objects == objects


def test_the_policy_is_the_tables_where_its_protocol_has_the_feature() -> None:
    v2 = {"delta.checkpointPolicy": "v2"}
    with_feature, without = small_table(v2), small_table(v2, features=("appendOnly",))
    assert write_checkpoint(with_feature, snapshot_of(with_feature), RUNTIME).policy == "v2"
    assert write_checkpoint(without, snapshot_of(without), RUNTIME).policy == "classic"
    with pytest.raises(InvalidRequest, match="v2Checkpoint"):
        write_checkpoint(without, snapshot_of(without), RUNTIME, "v2")
    unknown = small_table({"delta.checkpointPolicy": "v3"})
    with pytest.raises(UnsupportedFeature, match="v3"):
        write_checkpoint(unknown, snapshot_of(unknown), RUNTIME)


@pytest.mark.parametrize(
    ("as_json", "as_struct", "features", "forms"),
    [
        (None, None, (), ("json",)),
        (None, "true", (), ("json", "struct")),
        ("true", "false", (), ("json",)),
        ("false", None, (), ("struct",)),
        ("false", "true", (), ("struct",)),
        ("false", "false", (), ()),
        ("false", "false", ("deletionVectors",), ("json",)),
        ("false", "true", ("deletionVectors",), ("struct",)),
        ("false", "true", ("collations",), ("json", "struct")),
    ],
)
def test_statistics_have_the_forms_that_the_properties_say_and_the_features_allow(
    as_json: str | None, as_struct: str | None, features: tuple[str, ...], forms: tuple[str, ...]
) -> None:
    stated = {"delta.checkpoint.writeStatsAsJson": as_json, "delta.checkpoint.writeStatsAsStruct": as_struct}
    storage = small_table({name: value for name, value in stated.items() if value is not None}, features)
    result = write_checkpoint(storage, snapshot_of(storage), RUNTIME)
    assert result.stats_forms == forms
    adds = [row["add"] for row in actions_in(storage, result.keys) if "add" in row]
    assert adds
    for add in adds:
        assert ("stats" in add) == ("json" in forms)
        assert ("stats_parsed" in add) == ("partitionValues_parsed" in add) == ("struct" in forms)
        if "struct" in forms:
            assert add["stats_parsed"]["maxValues"] == {"x": 9}
            assert str(add["partitionValues_parsed"]["day"]) == "2024-01-01"
    texts = snapshot_of(only_the_checkpoint(storage, 2)).files(["stats"]).column(0).to_pylist()
    assert [json.loads(text)["numRecords"] if text else None for text in texts] == [5 if forms else None] * 2


def test_expired_transactions_are_left_out_where_the_table_says_when_they_expire() -> None:
    storage = small_table({"delta.setTransactionRetentionDuration": "interval 1 day 12 hours"})
    ages = {"old": 36 * 3_600_000, "young": 36 * 3_600_000 - 1, "undated": None}
    actions = [
        {"txn": {"appId": name, "version": 1} | ({} if age is None else {"lastUpdated": NOW_MS - age})}
        for name, age in ages.items()
    ]
    storage.put("_delta_log/00000000000000000003.json", "\n".join(map(json.dumps, actions)).encode())
    write_checkpoint(storage, snapshot_of(storage), RUNTIME)
    assert set(snapshot_of(only_the_checkpoint(storage, 3)).transactions) == {"young"}


@pytest.mark.parametrize(
    ("properties", "retention_ms"),
    [({}, RETENTION_MS), ({"delta.deletedFileRetentionDuration": "interval 1 hour"}, 3_600_000)],
    ids=["default", "by property"],
)
def test_a_tombstone_expires_when_its_retention_is_over(
    properties: dict[str, str], retention_ms: int
) -> None:
    storage = small_table(properties)
    times = {"just": NOW_MS - retention_ms, "not yet": NOW_MS - retention_ms + 1, "undated": None}
    removes = [
        {"remove": {"path": name.replace(" ", "%20"), "dataChange": True, "deletionTimestamp": when}}
        for name, when in times.items()
    ]
    storage.put("_delta_log/00000000000000000003.json", "\n".join(map(json.dumps, removes)).encode())
    write_checkpoint(storage, snapshot_of(storage), RUNTIME)
    kept = snapshot_of(only_the_checkpoint(storage, 3)).tombstones(["key"]).column(0).to_pylist()
    assert sorted(kept) == ["f0", "not yet"]


@pytest.mark.parametrize("policy", POLICIES)
def test_a_deletion_vector_keeps_all_its_members_and_members_of_no_protocol_are_read_over(
    policy: CheckpointPolicy,
) -> None:
    storage = small_table(features=("v2Checkpoint", "deletionVectors"))
    vector = {"storageType": "i", "pathOrInlineDv": "x", "offset": 1, "sizeInBytes": 4, "cardinality": 2}
    vector["maxRowIndex"] = 17
    add = {
        "path": "f1",
        "partitionValues": {"day": None},
        "size": 10,
        "modificationTime": 1,
        "dataChange": True,
    }
    lines = [
        {"add": {**add, "deletionVector": {**vector, "unknownOfVector": 1}, "unknownOfAdd": [1]}},
        {"remove": {"path": "f1", "deletionTimestamp": NOW_MS, "dataChange": True}},
        {"remove": {"path": "f9", "deletionTimestamp": NOW_MS, "deletionVector": vector, "dataChange": True}},
    ]
    storage.put("_delta_log/00000000000000000003.json", "\n".join(map(json.dumps, lines)).encode())
    write_checkpoint(storage, snapshot_of(storage), RUNTIME, policy)
    after = snapshot_of(only_the_checkpoint(storage, 3))
    for files in (after.files(), after.tombstones()):
        found = {row["path"]: row["deletion_vector"] for row in files.to_pylist()}
        assert vector in found.values()


def test_a_table_without_files_has_a_checkpoint() -> None:
    for policy in POLICIES:
        storage = small_table(commits=1)
        first = storage.read("_delta_log/00000000000000000000.json").splitlines()
        storage.put("_delta_log/00000000000000000000.json", b"\n".join(first[:2]))
        result = write_checkpoint(storage, snapshot_of(storage), RUNTIME, policy)
        assert (result.num_add_files, len(result.keys)) == (0, 1)
        assert snapshot_of(only_the_checkpoint(storage, 0)).num_files == 0


@pytest.mark.parametrize("policy", POLICIES)
def test_many_files_are_cut_into_sidecars_or_row_groups(policy: CheckpointPolicy) -> None:
    storage = small_table()
    line = '{"add":{"path":"n%06d","partitionValues":{"day":"2024-01-01"},"size":3,"modificationTime":1,"dataChange":true}}\n'
    storage.put("_delta_log/00000000000000000003.json", "".join(line % n for n in range(50_010)).encode())
    before = snapshot_of(storage)
    result = write_checkpoint(storage, before, RUNTIME, policy)
    # 50,012 live files in two parts, and the tombstone apart.
    if policy == "v2":
        assert [key.rpartition("/")[0] for key in result.keys] == [
            "_delta_log",
            *["_delta_log/_sidecars"] * 3,
        ]
        parts = [pq.read_metadata(io.BytesIO(storage.read(key))).num_rows for key in result.keys[1:]]
    else:
        metadata = pq.read_metadata(io.BytesIO(storage.read(result.keys[0])))
        parts = [metadata.row_group(n).num_rows for n in range(1, metadata.num_row_groups)]
    assert parts == [50_000, 12, 1]
    assert state_of(snapshot_of(only_the_checkpoint(storage, 3)), NOW_MS) == state_of(before, NOW_MS)
