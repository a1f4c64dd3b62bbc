"""Committing: conflicts, rebases, lost answers, and doing one piece of work once."""

from __future__ import annotations

import json
from typing import Any

import pytest

from delta_log.actions import Add, Remove
from delta_log.errors import (
    CommitContention,
    CommitFailed,
    ConcurrentDelete,
    MetadataChanged,
    ProtocolChanged,
    StorageError,
    UnsupportedFeature,
)
from delta_log.log_path import commit_key
from delta_log.log_segment import find_log_segment
from delta_log.runtime import Runtime
from delta_log.snapshot import Snapshot
from delta_log.storage import Storage
from delta_log.table_features import Operation
from delta_log.testing import FaultyStorage, MemoryStorage
from delta_log.transaction import Change, CommitResult, Transaction, find_transaction

SCHEMA = json.dumps(
    {"type": "struct", "fields": [{"name": "x", "type": "long", "nullable": True, "metadata": {}}]}
)
PROTOCOL = {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}
METADATA = {"metaData": {"id": "t", "schemaString": SCHEMA, "partitionColumns": [], "configuration": {}}}
NO_WAIT = Runtime(now_ms=lambda: 1_000, sleep=lambda seconds: None)


def add(path: str) -> dict[str, Any]:
    return {
        "add": {"path": path, "size": 1, "modificationTime": 1, "dataChange": True, "partitionValues": {}}
    }


def remove(path: str, vector: int = 0) -> dict[str, Any]:
    body: dict[str, Any] = {"path": path, "deletionTimestamp": 1, "dataChange": True}
    if vector:
        body["deletionVector"] = {
            "storageType": "i", "pathOrInlineDv": f"v{vector}", "sizeInBytes": 4, "cardinality": vector,
        }  # fmt: skip
    return {"remove": body}


def write(storage: Storage, version: int, *actions: dict[str, Any]) -> None:
    assert storage.put_if_absent(commit_key(version), "".join(json.dumps(a) + "\n" for a in actions).encode())


@pytest.fixture
def storage() -> MemoryStorage:
    storage = MemoryStorage()
    write(storage, 0, PROTOCOL, METADATA, add("a"), add("b"), add("c"))
    return storage


def snapshot_of(storage: Storage, version: int | None = None) -> Snapshot:
    return Snapshot(storage, find_log_segment(storage, version))


def compaction(transaction: tuple[str, int] | None = None) -> Change:
    """a and b become ab."""
    return Change(
        operation="OPTIMIZE",
        adds=[Add(path="ab", size=2, dataChange=False, partitionValues={})],
        removes=[Remove(path=path, deletionTimestamp=1, dataChange=False) for path in ("a", "b")],
        parameters={"predicate": ["x > 1"], "auto": False},
        metrics={"numAddedFiles": 1},
        transaction=transaction,
    )


def commit(storage: Storage, change: Change, read_version: int | None = 0) -> CommitResult:
    snapshot = snapshot_of(storage, read_version)
    return Transaction(storage, snapshot, Operation.OPTIMIZE, NO_WAIT).commit(change)


def live(storage: Storage) -> set[str]:
    return set(snapshot_of(storage).files(["key"]).column(0).to_pylist())


def actions_of(storage: Storage, version: int) -> list[dict[str, Any]]:
    return [json.loads(line) for line in storage.read(commit_key(version)).splitlines()]


def test_a_commit_says_what_was_done_in_the_protocols_words(storage: MemoryStorage) -> None:
    assert commit(storage, compaction(("app", 7))) == CommitResult(1)
    info, transaction, *files = actions_of(storage, 1)
    assert info["commitInfo"]["operation"] == "OPTIMIZE"
    assert info["commitInfo"]["operationParameters"] == {"predicate": '["x > 1"]', "auto": "false"}
    assert info["commitInfo"]["operationMetrics"] == {"numAddedFiles": "1"}
    assert info["commitInfo"]["readVersion"] == 0
    assert info["commitInfo"]["isBlindAppend"] is False
    assert transaction == {"txn": {"appId": "app", "version": 7, "lastUpdated": 1_000}}
    assert [next(iter(action)) for action in files] == ["remove", "remove", "add"]
    assert all(body["dataChange"] is False for action in files for body in action.values())
    assert live(storage) == {"ab", "c"}


def test_appends_and_changes_elsewhere_do_not_stop_a_compaction(storage: MemoryStorage) -> None:
    write(storage, 1, {"commitInfo": {}}, add("d"))
    write(storage, 2, remove("c"), add("e"), {"txn": {"appId": "other", "version": 1}})
    write(
        storage,
        3,
        PROTOCOL,
        METADATA,
        {"domainMetadata": {"domain": "d", "configuration": "", "removed": False}},
    )
    assert commit(storage, compaction()) == CommitResult(4)
    assert live(storage) == {"ab", "d", "e"}


@pytest.mark.parametrize(
    ("winner", "error"),
    [
        ([remove("a")], ConcurrentDelete),
        ([remove("./%61")], ConcurrentDelete),
        ([remove("b", vector=1), add("b2")], ConcurrentDelete),
        ([{"metaData": {**METADATA["metaData"], "configuration": {"delta.x": "1"}}}], MetadataChanged),
        ([{"protocol": {"minReaderVersion": 2, "minWriterVersion": 5}}], ProtocolChanged),
    ],
    ids=["removed source", "removed under another spelling", "new deletion vector", "metadata", "protocol"],
)
def test_a_winner_that_contradicts_us_stops_the_commit(
    storage: MemoryStorage, winner: list[dict[str, Any]], error: type[CommitFailed]
) -> None:
    write(storage, 1, add("d"))
    write(storage, 2, {"commitInfo": {"operation": "DELETE"}}, *winner)
    with pytest.raises(error, match="version 2 .DELETE") as caught:
        commit(storage, compaction())
    assert caught.value.winning_commits == (1, 2)
    assert caught.value.retryable
    assert storage.head(commit_key(3)) is None


def test_the_same_transaction_is_committed_once(storage: MemoryStorage) -> None:
    assert commit(storage, compaction(("app", 7))) == CommitResult(1)
    snapshot = snapshot_of(storage)
    assert find_transaction(snapshot, storage, "app", 7) == 1
    # A concurrent try that had read version 0 as well finds its own work done, and does not see a conflict.
    assert commit(storage, compaction(("app", 7)), read_version=0) == CommitResult(1, already_done=True)
    assert storage.head(commit_key(2)) is None


def test_an_older_transaction_is_not_taken_for_done_and_never_lowers_the_version(
    storage: MemoryStorage,
) -> None:
    newer = Change("OPTIMIZE", removes=[Remove(path="c", dataChange=False)], transaction=("app", 20))
    assert commit(storage, newer) == CommitResult(1)
    assert find_transaction(snapshot_of(storage), storage, "app", 10) is None
    assert commit(storage, compaction(("app", 10)), read_version=1) == CommitResult(2)
    snapshot = snapshot_of(storage)
    assert snapshot.transactions == {"app": 20}
    assert find_transaction(snapshot, storage, "app", 10) == 2
    assert find_transaction(snapshot, storage, "app", 20) == 1
    assert find_transaction(snapshot, storage, "app", 15) is None
    assert find_transaction(snapshot, storage, "app", 30) is None
    assert find_transaction(snapshot, storage, "else", 10) is None


def test_in_commit_timestamps_rise_through_a_rebase(storage: MemoryStorage) -> None:
    storage = MemoryStorage()
    protocol = {
        "protocol": {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["inCommitTimestamp"]}
    }
    configured = {
        "metaData": {**METADATA["metaData"], "configuration": {"delta.enableInCommitTimestamps": "true"}}
    }
    write(storage, 0, {"commitInfo": {"inCommitTimestamp": 5_000}}, protocol, configured, add("a"), add("b"))
    write(storage, 1, {"commitInfo": {"inCommitTimestamp": 9_000}}, add("d"))
    assert commit(storage, compaction()) == CommitResult(2)
    assert actions_of(storage, 2)[0]["commitInfo"]["inCommitTimestamp"] == 9_001
    assert snapshot_of(storage).timestamp_ms == 9_001


def test_a_commit_whose_answer_was_lost_is_recognised_as_ours(storage: MemoryStorage) -> None:
    def lose_the_answer(name: str, key: str) -> None:
        if name == "put_if_absent":
            raise StorageError("timed out", key)

    assert commit(FaultyStorage(storage, after=lose_the_answer), compaction()) == CommitResult(1)
    assert storage.head(commit_key(2)) is None


def test_a_put_that_failed_without_effect_is_an_error_and_not_a_commit(storage: MemoryStorage) -> None:
    def refuse(name: str, key: str) -> None:
        if name == "put_if_absent":
            raise StorageError("no", key)

    with pytest.raises(StorageError):
        commit(FaultyStorage(storage, before=refuse), compaction())
    assert storage.head(commit_key(1)) is None


def test_a_lost_answer_where_somebody_else_won_is_a_lost_race(storage: MemoryStorage) -> None:
    def somebody_else(name: str, key: str) -> None:
        if name == "put_if_absent" and key == commit_key(1):
            write(storage, 1, add("d"))
            raise StorageError("timed out", key)

    assert commit(FaultyStorage(storage, before=somebody_else), compaction()) == CommitResult(2)
    assert live(storage) == {"ab", "c", "d"}


def test_endless_contention_ends_with_the_winners_named(storage: MemoryStorage) -> None:
    def always_faster(name: str, key: str) -> None:
        if name == "put_if_absent":
            storage.put_if_absent(key, json.dumps(add(key)).encode())

    with pytest.raises(CommitContention, match="Nothing was committed") as caught:
        commit(FaultyStorage(storage, before=always_faster), compaction())
    assert caught.value.winning_commits[:3] == (1, 2, 3)


def test_the_gate_refuses_before_anything_is_written() -> None:
    storage = MemoryStorage()
    protocol = {
        "protocol": {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["rowTracking", "new"]}
    }
    write(storage, 0, protocol, METADATA, add("a"), add("b"))
    with pytest.raises(UnsupportedFeature) as caught:
        commit(storage, compaction())
    assert caught.value.features == ("new", "rowTracking")
    assert list(storage.objects) == [commit_key(0)]


@pytest.mark.parametrize("call", range(1, 6))
def test_another_writer_at_any_call_of_a_commit_leaves_a_serial_history(
    storage: MemoryStorage, call: int
) -> None:
    """Somebody rewrites a source before a storage call of ours: one of the two wins, never both."""
    calls = 0

    def intervene(name: str, key: str) -> None:
        nonlocal calls
        calls += 1
        if calls == call:
            latest = snapshot_of(storage)
            if "a" in live(storage):
                write(storage, latest.version + 1, remove("a"), add("a2"))

    snapshot = snapshot_of(storage)
    faulty = FaultyStorage(storage, before=intervene, after=None)
    try:
        Transaction(faulty, snapshot, Operation.OPTIMIZE, NO_WAIT).commit(compaction())
    except ConcurrentDelete:
        assert live(storage) == {"a2", "b", "c"}
    else:
        assert live(storage) == {"ab", "c"}
