from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.repetition import examples

from delta_log.checkpoint.writer import write_checkpoint
from delta_log.errors import AccessDenied, ListingDenied, LogCleaned, LogReplaced, StorageError
from delta_log.log.file_names import commit_key
from delta_log.log.log_segment import find_log_segment
from delta_log.runtime import Runtime
from delta_log.snapshot.snapshot import Snapshot
from delta_log.tail import commit_follower
from delta_log.tail.commit_follower import CommitFollower, follow, start_position, wait_seconds
from delta_log.tail.commit_summary import CommitFilter, CommitSummary
from delta_log.tail.version_range import Awaited, Place, Progress
from delta_log.testing import FaultyStorage, MemoryStorage, TornListings

PROTOCOL = {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}
SCHEMA = {
    "type": "struct",
    "fields": [{"name": name, "type": "string", "nullable": True, "metadata": {}} for name in ("id", "day")],
}
METADATA = {
    "metaData": {
        "id": "t",
        "format": {"provider": "parquet"},
        "schemaString": json.dumps(SCHEMA),
        "partitionColumns": ["day"],
    }
}


def add(path: str, rows: int | None = 10, day: str = "1", **more: Any) -> dict[str, Any]:
    stats = {"stats": json.dumps({"numRecords": rows})} if rows is not None else {}
    action = {"path": path, "size": 1, "partitionValues": {"day": day}, "dataChange": True, **stats, **more}
    return {"add": action}


class Log:
    """A table's log in memory, with every request counted."""

    def __init__(self) -> None:
        self.inner = MemoryStorage()
        self.requests: list[tuple[str, str]] = []
        self.storage = FaultyStorage(self.inner, before=self._before)
        self.fault: Exception | None = None
        self.next = 0
        self.commit([PROTOCOL, METADATA])

    def _before(self, name: str, key: str) -> None:
        self.requests.append((name, key))
        if self.fault is not None:
            raise self.fault

    def commit(self, actions: list[dict[str, Any]], **info: Any) -> int:
        lines = [{"commitInfo": {"timestamp": 1000 + self.next, "operation": "WRITE", **info}}, *actions]
        self.inner.put(commit_key(self.next), "\n".join(map(json.dumps, lines)).encode())
        self.next += 1
        return self.next - 1

    def append(self, rows: int = 10, day: str = "1") -> int:
        return self.commit([add(f"f{self.next}", rows, day)])

    def compact(self) -> int:
        return self.commit([add(f"f{self.next}", dataChange=False)], operation="OPTIMIZE")

    def clean(self, before: int) -> None:
        self.inner.delete([commit_key(version) for version in range(before)])


@pytest.fixture
def log() -> Log:
    return Log()


def versions(commits: list[CommitSummary]) -> list[int]:
    return [commit.version for commit in commits]


def test_every_commit_is_given_once_and_in_order(log: Log) -> None:
    tail = CommitFollower(log.storage, -1)
    assert versions(tail.poll()) == [0]
    for burst in (1, 2, 3, 7):
        expected = [log.append() for _ in range(burst)]
        assert versions(tail.poll()) == expected
        assert tail.poll() == []


def test_a_quiet_poll_is_one_request(log: Log) -> None:
    tail = CommitFollower.at_latest(log.storage)
    log.requests.clear()
    for _ in range(commit_follower.POLLS_PER_LIST):
        assert tail.poll() == []
    assert log.requests == [("read", commit_key(1))] * commit_follower.POLLS_PER_LIST


def test_now_and_then_the_log_is_listed_all_the_same(log: Log) -> None:
    tail = CommitFollower.at_latest(log.storage)
    for _ in range(commit_follower.POLLS_PER_LIST):
        tail.poll()
    log.requests.clear()
    tail.poll()
    assert [name for name, _ in log.requests] == ["list_from"]


def test_the_catching_up_of_many_commits_is_bounded(log: Log) -> None:
    expected = [0, *(log.append() for _ in range(25))]
    tail = CommitFollower(log.storage, -1)
    batches = [versions(tail.poll(10)) for _ in range(4)]
    assert [len(batch) for batch in batches] == [10, 10, 6, 0]
    assert [version for batch in batches for version in batch] == expected


def test_commits_that_come_while_the_log_is_listed_were_not_cleaned(log: Log) -> None:
    coming = [2]  # commits, in the course of each listing

    def meanwhile() -> None:
        for _ in range(coming.pop(0) if coming else 0):
            log.append()

    tail = CommitFollower(TornListings(log.inner, meanwhile), 0)
    assert versions(tail.poll()) == [1, 2]
    tail.skip_to(2)
    # The first of two is hidden, and no third listing tells of it.
    coming[:] = [2, 2]
    assert versions(tail.poll()) == [3, 4]
    assert versions(tail.poll()) == [5, 6]


def test_the_earliest_version_is_not_passed_over_though_the_next_one_hides_it() -> None:
    inner = MemoryStorage()
    coming = [0, 1]

    def meanwhile() -> None:
        while coming:
            inner.put(commit_key(coming.pop(0)), b"{}")

    assert start_position(TornListings(inner, meanwhile), "earliest") == -1


def test_a_commit_that_comes_right_after_a_cleaned_place_was_not_cleaned(log: Log) -> None:
    for _ in range(2):
        log.append()
    snapshot = Snapshot(log.inner, find_log_segment(log.inner))
    write_checkpoint(log.inner, snapshot, Runtime())
    log.clean(3)
    # Between the tail's own listing and the one that asks where the log ends.
    coming = [0, 1]

    def meanwhile() -> None:
        if coming and coming.pop(0):
            log.append()

    tail = CommitFollower(TornListings(log.inner, meanwhile), 2)
    assert versions(tail.poll()) == [3]
    assert not coming


def test_a_log_that_was_cleaned_past_the_place_says_so_with_the_facts(log: Log) -> None:
    for _ in range(9):
        log.append()
    log.clean(before=6)
    with pytest.raises(LogCleaned, match="versions? 2; the commits 3 to 5 are gone") as caught:
        CommitFollower(log.storage, 2).poll()
    assert (caught.value.baseline, caught.value.earliest) == (2, 6)


def test_a_tail_that_was_quiet_notices_that_the_log_was_cleaned_past_it(log: Log) -> None:
    tail = CommitFollower.at_latest(log.storage)
    assert tail.poll() == []
    for _ in range(5):
        log.append()
    log.clean(before=4)
    for _ in range(commit_follower.POLLS_PER_LIST - 1):
        assert tail.poll() == []
    with pytest.raises(LogCleaned):
        tail.poll()


def test_cleaning_what_was_read_already_changes_nothing(log: Log) -> None:
    for _ in range(8):
        log.append()
    log.commit([PROTOCOL, METADATA, add("f9")])
    log.clean(before=9)
    assert versions(CommitFollower(log.storage, 8).poll()) == [9]
    assert CommitFollower(log.storage, 9).poll() == []


def test_a_table_that_was_made_anew_is_not_taken_for_a_quiet_one(log: Log) -> None:
    with pytest.raises(LogReplaced) as caught:
        CommitFollower(log.storage, 7).poll()
    assert (caught.value.baseline, caught.value.latest) == (7, 0)
    assert "made anew" in str(caught.value)


def test_a_table_that_was_dropped_is_not_taken_for_a_quiet_one(log: Log) -> None:
    tail = CommitFollower(log.storage, 0)
    assert tail.poll() == []
    log.inner.objects.clear()
    with pytest.raises(LogReplaced, match="there is no log any more, .*dropped or moved"):
        [tail.poll() for _ in range(commit_follower.POLLS_PER_LIST + 1)]


def test_an_empty_commit_is_waited_for_until_it_is_filled_or_another_one_follows(log: Log) -> None:
    tail = CommitFollower.at_latest(log.storage)
    log.inner.put(commit_key(1), b"")
    for _ in range(2 * commit_follower.POLLS_PER_LIST):
        assert tail.poll() == []
    assert sum(name == "list_from" for name, _ in log.requests) <= 6
    log.append()
    assert [(one.version, one.num_added_files) for one in tail.poll()] == [(1, 1)]
    log.inner.put(commit_key(2), b"")
    log.next = 3
    log.append()
    found: list[CommitSummary] = []
    while len(found) < 2:
        found += tail.poll()
    assert [(one.version, one.num_added_files) for one in found] == [(2, 0), (3, 1)]


def test_a_table_that_is_not_there_yet_is_waited_for() -> None:
    storage = MemoryStorage()
    tail = CommitFollower.at_latest(storage)
    assert tail.poll() == []
    log = Log()
    storage.objects.update(log.inner.objects)
    assert versions(tail.poll()) == [0]


def test_an_error_in_the_middle_leaves_the_place_as_it_was(log: Log) -> None:
    tail = CommitFollower.at_latest(log.storage)
    for _ in range(3):
        log.append()
    calls = iter([None, StorageError("down", "x")])

    def fail_second(name: str, key: str) -> None:
        error = next(calls, None)
        if error is not None:
            raise error

    tail.storage = FaultyStorage(log.inner, before=fail_second)
    with pytest.raises(StorageError):
        tail.poll()
    assert versions(tail.poll()) == [1, 2, 3]


def test_without_the_right_to_list_a_missing_commit_is_reported_as_the_missing_permission(log: Log) -> None:
    there = set(log.inner.objects)

    def deny(name: str, key: str) -> None:
        if name == "list_from" or key not in there:
            raise AccessDenied("403", key)

    denied = FaultyStorage(log.inner, before=deny)
    tail = CommitFollower(denied, 0)
    with pytest.raises(ListingDenied, match="s3:ListBucket"):
        tail.poll()
    quiet = CommitFollower(denied, 0, _sure=True)
    with pytest.raises(ListingDenied, match="s3:ListBucket"):
        quiet.poll()


def test_credentials_that_open_nothing_are_not_taken_for_a_missing_right_to_list(log: Log) -> None:
    log.fault = AccessDenied("403", "x")
    with pytest.raises(AccessDenied) as caught:
        CommitFollower(log.storage, 0).poll()
    assert not isinstance(caught.value, ListingDenied)


@pytest.mark.parametrize(("start", "position"), [("latest", 3), ("earliest", -1), (2, 1)])
def test_a_start_is_a_place(log: Log, start: Any, position: int) -> None:
    for _ in range(3):
        log.append()
    assert start_position(log.storage, start) == position


def test_earliest_is_the_first_commit_that_is_still_there(log: Log) -> None:
    for _ in range(5):
        log.append()
    log.clean(before=3)
    assert start_position(log.storage, "earliest") == 2


def test_following_survives_an_outage_and_waits_longer_and_longer(log: Log) -> None:
    waits: list[float] = []

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        log.fault = StorageError("down", "x") if len(waits) < 5 else None
        if len(waits) == 6:
            log.append()

    runtime = Runtime(jitter=lambda: 1.0, sleep=sleep)
    commits = follow(log.storage, "latest", poll_interval_seconds=5, runtime=runtime)
    assert next(commits).version == 1
    assert waits == [5, 10, 20, 40, 60, 5]


def test_a_denied_access_ends_the_following(log: Log) -> None:
    log.fault = AccessDenied("403", "x")
    with pytest.raises(AccessDenied):
        next(follow(log.storage, "earliest", runtime=Runtime(sleep=lambda _: None)))


def told(log: Log, **chosen: Any) -> list[int]:
    found: Iterator[CommitSummary] = follow(
        log.storage, "earliest", CommitFilter.of(**chosen), poll_interval_seconds=None
    )
    return versions(list(found))


def test_maintenance_is_left_out_unless_it_is_asked_for(log: Log) -> None:
    log.append()
    log.compact()
    log.append()
    assert told(log) == [1, 3]
    assert told(log, data_change_only=False) == [0, 1, 2, 3]


def test_operations_and_partitions_choose(log: Log) -> None:
    log.append(day="1")
    log.append(day="2")
    log.commit([add("m", day="2")], operation="MERGE")
    assert told(log, operations=["merge"]) == [3]
    assert told(log, partitions={"day": 2}) == [2, 3]
    assert told(log, partitions={"day": ["1", "3"]}) == [1]
    assert told(log, partitions={"other": "1"}) == []


def test_commits_are_held_back_until_there_are_rows_enough(log: Log) -> None:
    log.append(rows=40)
    log.append(rows=40)
    assert told(log, min_rows=100) == []
    log.append(rows=40)
    assert told(log, min_rows=100) == [1, 2, 3]


def test_a_commit_of_unknown_size_is_never_held_back(log: Log) -> None:
    log.commit([add("a", rows=None)])
    assert told(log, min_rows=1000) == [1]


def test_each_failure_doubles_the_wait_up_to_a_minute() -> None:
    assert [wait_seconds(5, n, 1.0) for n in (0, 1, 2, 3, 4, 100)] == [5, 10, 20, 40, 60, 60]
    assert wait_seconds(300, 3, 1.0) == 300


def commit(version: int, *, data_change: bool = True, rows: int = 1) -> CommitSummary:
    return CommitSummary(version, 0, "WRITE", data_change, num_added_rows=rows)


@examples(100)
@given(st.lists(st.booleans(), max_size=40), st.lists(st.integers(1, 5), min_size=1), st.integers(0, 4))
def test_ranges_join_without_a_gap_and_hold_every_commit_that_counts(
    changes: list[bool], batch_sizes: list[int], min_rows: int
) -> None:
    """However the commits come in, and though the watcher is made anew from its place after every batch."""
    commits = [commit(version, data_change=change) for version, change in enumerate(changes)]
    place, ranges, position, turn = Place.after(-1), [], 0, 0
    while position < len(commits):
        # A follower that starts from the place reads again what was held.
        start = place.seen + 1
        position = min(len(commits), max(position, start) + batch_sizes[turn % len(batch_sizes)])
        turn += 1
        progress, found = Progress(place).with_commits(
            commits[start:position], CommitFilter(min_rows=min_rows)
        )
        place = progress.place
        if found is not None:
            ranges.append(found)
    assert [r.first for r in ranges] == [0, *(r.last + 1 for r in ranges[:-1])][: len(ranges)]
    counted = [c.version for r in ranges for c in r.commits]
    changing = [c.version for c in commits if c.data_change]
    assert counted == changing[: len(counted)]
    assert len(changing) - len(counted) < max(1, min_rows)


def test_what_was_cleaned_is_told_at_once_and_named() -> None:
    progress = Progress(Place.after(4)).without(5, 9)
    progress, found = progress.with_commits([commit(10, data_change=False)], CommitFilter())
    assert found is not None
    described = found.to_dict("t")
    assert (described["firstVersion"], described["lastVersion"], described["cleaned"]) == (5, 10, [5, 9])
    assert described["numCommits"] + described["numSkipped"] == 1


@pytest.mark.parametrize(
    ("awaited", "met"),
    [
        (Awaited(), True),
        (Awaited(version=3), True),
        (Awaited(version=4), False),
        (Awaited(newer_than_ms=7), True),
        (Awaited(newer_than_ms=8), False),
        (Awaited(transaction=("app", 5)), True),
        (Awaited(transaction=("app", 6)), False),
        (Awaited(transaction=("other", 1)), False),
        (Awaited(version=3, newer_than_ms=8), False),
    ],
)
def test_what_is_awaited_has_to_be_in_one_commit(awaited: Awaited, met: bool) -> None:
    assert awaited.is_met([CommitSummary(3, 7, "WRITE", True, transactions={"app": 5})]) is met
