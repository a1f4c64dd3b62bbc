"""Committing: rebases, lost answers, lost groups, and doing one piece of work once."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.support.tables.three_files import (
    METADATA,
    NO_WAIT,
    actions_of,
    add,
    commit,
    compaction,
    live,
    metadata,
    new_file,
    old_file,
    remove,
    snapshot_of,
    table_of_three,
    write,
)

from delta_log.errors import (
    CommitContention,
    CommitUnknown,
    ConcurrentDelete,
    InvalidRequest,
    StorageError,
    UnsupportedFeature,
)
from delta_log.log.actions import Add, Remove
from delta_log.log.file_names import commit_key
from delta_log.storage.storage import Storage
from delta_log.table_config.features import Operation
from delta_log.testing import FaultyStorage, MemoryStorage, TornListings
from delta_log.transaction.commit_body import Change, FileGroup
from delta_log.transaction.transaction import CommitResult, Transaction, find_transaction


@pytest.fixture
def storage() -> MemoryStorage:
    return table_of_three()


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


def test_winners_that_come_while_the_log_is_listed_are_neither_missed_nor_missing(
    storage: MemoryStorage,
) -> None:
    write(storage, 1, {"commitInfo": {}}, add("d"))
    coming = [(2, remove("a")), (3, add("e"))]

    def meanwhile() -> None:
        while coming:
            version, action = coming.pop(0)
            write(storage, version, {"commitInfo": {}}, action)

    snapshot = snapshot_of(storage, 0)
    transaction = Transaction(TornListings(storage, meanwhile), snapshot, Operation.OPTIMIZE, NO_WAIT)
    with pytest.raises(ConcurrentDelete, match="version 2"):
        transaction.commit(compaction())


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
    newer = Change(
        "OPTIMIZE", [FileGroup(removes=[Remove(path="c", dataChange=False)])], transaction=("app", 20)
    )
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


def test_a_lost_answer_where_another_writer_won_is_a_lost_race(storage: MemoryStorage) -> None:
    def another_writer(name: str, key: str) -> None:
        if name == "put_if_absent" and key == commit_key(1):
            write(storage, 1, add("d"))
            raise StorageError("timed out", key)

    assert commit(FaultyStorage(storage, before=another_writer), compaction()) == CommitResult(2)
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
        "protocol": {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["collations", "new"]}
    }
    write(storage, 0, protocol, METADATA, add("a"), add("b"))
    with pytest.raises(UnsupportedFeature) as caught:
        commit(storage, compaction())
    assert caught.value.features == ("collations", "new")
    assert list(storage.objects) == [commit_key(0)]


@pytest.mark.parametrize("call", range(1, 6))
def test_another_writer_at_any_call_of_a_commit_leaves_a_serial_history(
    storage: MemoryStorage, call: int
) -> None:
    """Another writer rewrites a source before one of our storage calls: one of the two wins, never both."""
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


# -- groups that lose their sources ------------------------------------------------------------------------------


def two_groups(transaction: tuple[str, int] | None = None) -> Change:
    """a becomes a1, and independently b and c become bc."""
    return Change(
        operation="OPTIMIZE",
        groups=[
            FileGroup([new_file("a1")], [old_file("a")]),
            FileGroup([new_file("bc")], [old_file("b"), old_file("c")]),
        ],
        metrics=lambda kept: {"groups": len(kept)},
        transaction=transaction,
    )


def test_a_group_that_lost_its_sources_is_left_out_and_the_rest_is_committed(storage: MemoryStorage) -> None:
    write(storage, 1, {"commitInfo": {"operation": "DELETE"}}, remove("b"), add("b2"))
    result = commit(storage, two_groups(("app", 1)))
    assert result == CommitResult(2, dropped=result.dropped)
    assert {number: type(error) for number, error in result.dropped.items()} == {1: ConcurrentDelete}
    assert live(storage) == {"a1", "b2", "c"}
    assert actions_of(storage, 2)[0]["commitInfo"]["operationMetrics"] == {"groups": "1"}


def test_when_every_group_lost_its_sources_nothing_is_committed(storage: MemoryStorage) -> None:
    write(storage, 1, remove("b"))
    write(storage, 2, remove("a"))
    with pytest.raises(ConcurrentDelete) as caught:
        commit(storage, two_groups())
    assert caught.value.winning_commits == (1, 2)
    assert live(storage) == {"c"}


def test_two_groups_with_one_source_and_mixed_kinds_of_change_are_refused(storage: MemoryStorage) -> None:
    twice = Change("OPTIMIZE", [FileGroup(removes=[old_file("a")]), FileGroup(removes=[old_file("./a")])])
    mixed = Change("WRITE", [FileGroup([Add(path="d", size=1, dataChange=True)], [old_file("a")])])
    for change in (twice, mixed):
        with pytest.raises(InvalidRequest):
            commit(storage, change)
    assert storage.head(commit_key(1)) is None


# -- row tracking ------------------------------------------------------------------------------------------------

TRACKED = {
    "protocol": {
        "minReaderVersion": 1,
        "minWriterVersion": 7,
        "writerFeatures": ["rowTracking", "domainMetadata"],
    }
}


def mark(value: int) -> dict[str, Any]:
    return {
        "domainMetadata": {
            "domain": "delta.rowTracking",
            "configuration": json.dumps({"rowIdHighWaterMark": value}),
            "removed": False,
        }
    }


def tracked_add(path: str, base: int, version: int, rows: int = 10) -> dict[str, Any]:
    stats = json.dumps({"numRecords": rows})
    return {
        "add": {**add(path)["add"], "baseRowId": base, "defaultRowCommitVersion": version, "stats": stats}
    }


@pytest.fixture
def tracked() -> MemoryStorage:
    storage = MemoryStorage()
    write(storage, 0, TRACKED, METADATA, tracked_add("a", 0, 0), tracked_add("b", 10, 0), mark(19))
    return storage


def rewrite_of_a() -> Change:
    return Change(
        "OPTIMIZE",
        [
            FileGroup(
                [new_file("a1", stats='{"numRecords":4}'), new_file("a2", stats='{"numRecords":6}')],
                [old_file("a", size=1, baseRowId=0, defaultRowCommitVersion=0)],
            )
        ],
    )


def commit_tracked(storage: Storage, change: Change) -> CommitResult:
    # Reading is the only gate that such a table passes today.
    return Transaction(storage, snapshot_of(storage, 0), Operation.READ, NO_WAIT).commit(change)


def test_new_files_get_row_ids_above_those_of_every_winner(tracked: MemoryStorage) -> None:
    write(tracked, 1, tracked_add("d", 20, 1), mark(29))
    assert commit_tracked(tracked, rewrite_of_a()) == CommitResult(2)
    adds = [action["add"] for action in actions_of(tracked, 2) if "add" in action]
    assert [(a["baseRowId"], a["defaultRowCommitVersion"]) for a in adds] == [(30, 2), (34, 2)]
    assert mark(39)["domainMetadata"] in [action.get("domainMetadata") for action in actions_of(tracked, 2)]


def test_a_source_that_was_given_row_ids_meanwhile_is_removed_with_them(tracked: MemoryStorage) -> None:
    write(tracked, 1, tracked_add("a", 20, 1), mark(29))
    assert commit_tracked(tracked, rewrite_of_a()) == CommitResult(2)
    removed = next(action["remove"] for action in actions_of(tracked, 2) if "remove" in action)
    assert (removed["baseRowId"], removed["defaultRowCommitVersion"]) == (20, 1)


def test_a_source_whose_tracked_row_ids_changed_is_lost() -> None:
    storage = MemoryStorage()
    enabled = metadata(configuration={"delta.enableRowTracking": "true"})
    write(storage, 0, TRACKED, enabled, tracked_add("a", 0, 0), mark(9))
    write(storage, 1, tracked_add("a", 10, 1), mark(19))
    with pytest.raises(ConcurrentDelete, match="row ids"):
        commit_tracked(storage, rewrite_of_a())


def test_a_file_known_already_keeps_its_ids_and_one_without_a_count_is_refused(
    tracked: MemoryStorage,
) -> None:
    known = new_file("a", baseRowId=0, defaultRowCommitVersion=0, stats='{"numRecords":10}')
    assert commit_tracked(tracked, Change("X", [FileGroup([known], [old_file("b")])])) == CommitResult(1)
    assert not any("domainMetadata" in action for action in actions_of(tracked, 1))
    with pytest.raises(InvalidRequest, match="numRecords"):
        commit_tracked(tracked, Change("X", [FileGroup([new_file("n")])]))


# -- unknown outcomes --------------------------------------------------------------------------------------------


def test_a_put_that_takes_effect_after_the_answer_was_given_up_is_still_one_commit(
    storage: MemoryStorage,
) -> None:
    """The first request is on its way for so long that the second one meets it."""
    late: list[bytes] = []

    def in_flight(name: str, key: str) -> None:
        if name == "put_if_absent" and not late:
            late.append(b"")
            raise StorageError("timed out", key)

    class Repeats(FaultyStorage):
        def put_if_absent(self, key: str, data: bytes) -> bool:
            if late == [b""]:
                late.append(data)
                assert storage.put_if_absent(key, data)  # the lost request arrives
            return super().put_if_absent(key, data)

    assert commit(Repeats(storage, before=in_flight), compaction()) == CommitResult(1)
    assert storage.head(commit_key(2)) is None
    assert len(late) == 2


def test_a_client_that_repeats_behind_our_back_does_not_make_us_lose_to_ourselves(
    storage: MemoryStorage,
) -> None:
    class Repeats(FaultyStorage):
        def put_if_absent(self, key: str, data: bytes) -> bool:
            super().put_if_absent(key, data)
            return super().put_if_absent(key, data)

    assert commit(Repeats(storage), compaction()) == CommitResult(1)
    assert storage.head(commit_key(2)) is None


def test_a_store_that_never_answers_leaves_the_outcome_unknown(storage: MemoryStorage) -> None:
    def silent(name: str, key: str) -> None:
        if key == commit_key(1):
            raise StorageError("timed out", key)

    with pytest.raises(CommitUnknown, match="Run again"):
        commit(FaultyStorage(storage, before=silent), compaction())


def test_a_quiet_commit_costs_four_requests(storage: MemoryStorage) -> None:
    calls: list[tuple[str, str]] = []
    snapshot = snapshot_of(storage)
    counted = FaultyStorage(storage, before=lambda name, key: calls.append((name, key)))
    Transaction(counted, snapshot, Operation.OPTIMIZE, NO_WAIT).commit(compaction())
    assert [name for name, _ in calls] == ["list_from", "put_if_absent", "head", "put_if_absent"]


def test_many_commits_of_one_transaction_are_followed_by_a_checkpoint_for_each_interval(
    storage: MemoryStorage,
) -> None:
    transaction = Transaction(storage, snapshot_of(storage), Operation.VACUUM, NO_WAIT)
    for number in range(25):
        transaction.commit(Change(f"VACUUM START {number}"))
    names = [info.name for info in storage.list_from("_delta_log") if "checkpoint.parquet" in info.name]
    assert names == [f"{version:020d}.checkpoint.parquet" for version in (9, 19)]


def test_the_snapshot_after_a_commit_is_the_one_that_a_reader_finds(storage: MemoryStorage) -> None:
    write(storage, 1, {"commitInfo": {}}, add("d"))
    result = commit(storage, compaction())
    fresh = snapshot_of(storage)
    assert result.snapshot is not None
    assert result.snapshot.version == fresh.version == 2
    assert result.snapshot.files().sort_by("key").equals(fresh.files().sort_by("key"))
    assert result.snapshot.tombstones().sort_by("key").equals(fresh.tombstones().sort_by("key"))
    assert result.snapshot.num_files == 3
    assert result.snapshot.refreshed() is result.snapshot
    write(storage, 3, add("e"))
    assert result.snapshot.refreshed().num_files == 4


def test_a_verdict_that_cannot_be_read_leaves_the_outcome_unknown(storage: MemoryStorage) -> None:
    snapshot = snapshot_of(storage)

    def lose_the_answer(name: str, key: str) -> None:
        if name in ("put_if_absent", "read") and key == commit_key(1):
            raise StorageError("timed out", key)

    faulty = FaultyStorage(storage, after=lose_the_answer)
    with pytest.raises(CommitUnknown, match="Run again"):
        Transaction(faulty, snapshot, Operation.OPTIMIZE, NO_WAIT).commit(compaction())
    assert live(storage) == {"ab", "c"}
