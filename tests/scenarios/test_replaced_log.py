"""A table that is deleted or made anew while a writer works on it: nothing of the old one gets into the new one's log."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from delta_log import errors
from delta_log.checkpoint.writer import write_checkpoint
from delta_log.errors import CommitUnknown, StorageError
from delta_log.log.file_names import commit_key
from delta_log.log.log_segment import find_log_segment
from delta_log.runtime import Runtime
from delta_log.snapshot.snapshot import Snapshot
from delta_log.storage.lock.locked import LockedStorage
from delta_log.storage.storage import Storage
from delta_log.table_config.features import Operation
from delta_log.testing import FaultyStorage, MemoryStorage
from delta_log.testing.lock_table import FaultyLockTable, MemoryLockTable
from delta_log.transaction.commit_body import Change
from delta_log.transaction.transaction import Transaction
from delta_log.upkeep.log_compaction import write_log_compaction

SCHEMA = json.dumps({"type": "struct", "fields": []})
NO_WAIT = Runtime(now_ms=lambda: 1_000, sleep=lambda seconds: None)
READ = 5
#: How many versions the table has that takes the place of the one whose version 5 was read.
NEW = (0, 1, 4, 6, 7, 12)


def commit_body(version: int, writer: str) -> bytes:
    actions: list[dict[str, object]] = [
        {"commitInfo": {"timestamp": 1_000 + version, "txnId": f"{writer}-{version}"}}
    ]
    if version == 0:
        actions.append({"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}})
        table = {"id": "t", "schemaString": SCHEMA, "partitionColumns": [], "configuration": {}}
        actions.append({"metaData": table})
    path = {"path": f"{writer}{version}", "size": 1, "modificationTime": 1, "dataChange": True}
    actions.append({"add": {**path, "partitionValues": {}}})
    return "".join(json.dumps(action) + "\n" for action in actions).encode()


def make(storage: MemoryStorage, versions: int, writer: str) -> None:
    """Every table has the same id, and commits of the same sizes."""
    for version in range(versions):
        storage.put(commit_key(version), commit_body(version, writer))


@pytest.fixture
def storage() -> MemoryStorage:
    storage = MemoryStorage()
    make(storage, READ + 1, "a")
    return storage


def replaces(storage: MemoryStorage, versions: int) -> Callable[[], None]:
    def replace() -> None:
        storage.objects.clear()
        make(storage, versions, "b")

    return replace


def once(at: Callable[[str, str], bool], then: Callable[[], None]) -> Callable[[str, str], None]:
    left = [then]

    def hook(name: str, key: str) -> None:
        if left and at(name, key):
            left.pop()()

    return hook


def is_commit(name: str, key: str) -> bool:
    return name == "put_if_absent" and key == commit_key(READ + 1)


def snapshot_of(storage: Storage, version: int | None = None) -> Snapshot:
    return Snapshot(storage, find_log_segment(storage, version))


def commit(storage: Storage, snapshot: Snapshot) -> int:
    change = Change("VACUUM END", parameters={"status": "COMPLETED"})
    return Transaction(storage, snapshot, Operation.VACUUM, NO_WAIT).commit(change).version


def log_of(storage: MemoryStorage) -> dict[str, bytes]:
    return {key: body for key, (body, _) in storage.objects.items()}


def new_log(versions: int) -> dict[str, bytes]:
    return {commit_key(version): commit_body(version, "b") for version in range(versions)}


# -- commits ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("versions", NEW)
def test_a_commit_for_a_table_that_was_replaced_before_it_is_not_sent(
    storage: MemoryStorage, versions: int
) -> None:
    snapshot = snapshot_of(storage)
    replaces(storage, versions)()
    with pytest.raises(errors.TableReplaced, match="version 5") as caught:
        commit(storage, snapshot)
    assert (caught.value.retryable, caught.value.left) == (True, None)
    assert log_of(storage) == new_log(versions)


@pytest.mark.parametrize("versions", NEW)
def test_a_commit_that_falls_into_another_tables_log_is_taken_back(
    storage: MemoryStorage, versions: int
) -> None:
    hook = once(is_commit, replaces(storage, versions))
    with pytest.raises(errors.TableReplaced):
        commit(FaultyStorage(storage, before=hook), snapshot_of(storage))
    assert log_of(storage) == new_log(versions)


@pytest.mark.parametrize("versions", NEW)
def test_a_commit_that_went_with_its_table_is_not_reported(storage: MemoryStorage, versions: int) -> None:
    hook = once(is_commit, replaces(storage, versions))
    with pytest.raises(errors.TableReplaced):
        commit(FaultyStorage(storage, after=hook), snapshot_of(storage))
    assert log_of(storage) == new_log(versions)


def test_an_answer_that_is_lost_in_another_tables_log_is_no_commit(storage: MemoryStorage) -> None:
    lost = [True]

    def lose(name: str, key: str) -> None:
        if is_commit(name, key) and lost:
            lost.pop()
            raise StorageError("timed out", key)

    before = once(is_commit, replaces(storage, READ))
    with pytest.raises(errors.TableReplaced):
        commit(FaultyStorage(storage, before=before, after=lose), snapshot_of(storage))
    assert log_of(storage) == new_log(READ)


def test_winners_of_another_table_are_not_followed(storage: MemoryStorage) -> None:
    """The race was lost to a writer of the old table, and then that one went."""

    def lose() -> None:
        storage.put(commit_key(READ + 1), commit_body(READ + 1, "a"))

    lost, replaced = once(is_commit, lose), replaces(storage, READ + 3)
    hook = once(lambda name, key: name == "read" and key == commit_key(READ + 1), replaced)
    with pytest.raises(errors.TableReplaced):
        commit(FaultyStorage(FaultyStorage(storage, before=hook), before=lost), snapshot_of(storage))
    assert log_of(storage) == new_log(READ + 3)


def test_a_second_commit_of_one_run_rests_on_the_same_table(storage: MemoryStorage) -> None:
    transaction = Transaction(storage, snapshot_of(storage), Operation.VACUUM, NO_WAIT)
    first = transaction.commit(Change("VACUUM START"))
    assert first.snapshot is not None
    assert commit(storage, first.snapshot) == READ + 2
    replaces(storage, READ + 2)()
    # It has the size of the commit that is taken for the one of the run.
    storage.put(commit_key(READ + 1), b" " * first.snapshot.bytes_since_checkpoint)
    for write in (lambda: transaction.commit(Change("MORE")), lambda: commit(storage, first.snapshot)):
        with pytest.raises(errors.TableReplaced):
            write()
    assert commit_key(READ + 2) not in storage.objects


def test_a_commit_that_others_have_built_on_is_left_and_named(storage: MemoryStorage) -> None:
    follow = once(is_commit, lambda: storage.put(commit_key(READ + 2), commit_body(READ + 2, "b")))
    before = once(is_commit, replaces(storage, READ + 1))
    with pytest.raises(errors.TableReplaced, match="others have followed, restore") as caught:
        commit(FaultyStorage(storage, before=before, after=follow), snapshot_of(storage))
    assert (caught.value.retryable, caught.value.left) == (False, commit_key(READ + 1))


def test_a_store_that_fails_the_second_look_is_asked_again(storage: MemoryStorage) -> None:
    failures = [2]

    def fail(name: str, key: str) -> None:
        if name == "head" and failures[0]:
            failures[0] -= 1
            raise StorageError("busy", key)

    assert commit(FaultyStorage(storage, before=fail), snapshot_of(storage)) == READ + 1
    failures[0] = 100
    with pytest.raises(CommitUnknown, match="Run again"):
        commit(FaultyStorage(storage, before=fail), snapshot_of(storage))


# -- the same table all the same -------------------------------------------------------------------------------------


def test_a_commit_that_was_put_in_its_place_twice_is_the_same(storage: MemoryStorage) -> None:
    snapshot = snapshot_of(storage)
    storage.put(commit_key(READ), commit_body(READ, "a"))
    assert commit(storage, snapshot) == READ + 1


def test_a_commit_that_was_cleaned_leaves_a_checkpoint_that_stands_for_it(storage: MemoryStorage) -> None:
    snapshot = snapshot_of(storage)
    write_checkpoint(storage, snapshot, NO_WAIT)
    storage.delete([commit_key(version) for version in range(READ + 1)])
    assert commit(storage, snapshot) == READ + 1
    # And one that was never seen.
    storage.delete([commit_key(READ + 1)])
    assert commit(storage, snapshot_of(storage)) == READ + 1


def test_a_checkpoint_of_another_table_stands_for_nothing(storage: MemoryStorage) -> None:
    snapshot = snapshot_of(storage)
    replaces(storage, READ + 2)()
    body, written = storage.objects[commit_key(0)]
    storage.objects[commit_key(0)] = body.replace(b'"id": "t"', b'"id": "u"'), written
    write_checkpoint(storage, snapshot_of(storage), NO_WAIT)
    storage.delete([commit_key(version) for version in range(READ + 1)])
    with pytest.raises(errors.TableReplaced):
        commit(storage, snapshot)


# -- what else is written to a log -----------------------------------------------------------------------------------


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("versions", NEW)
def test_a_checkpoint_of_a_table_that_is_gone_is_not_left_in_the_new_ones_log(
    storage: MemoryStorage, versions: int, moment: str
) -> None:
    def is_published(name: str, key: str) -> bool:
        return name == "put_if_absent" and "checkpoint" in key

    hook = once(is_published, replaces(storage, versions))
    with pytest.raises(errors.TableReplaced):
        write_checkpoint(FaultyStorage(storage, **{moment: hook}), snapshot_of(storage), NO_WAIT)
    assert log_of(storage) == new_log(versions)


def test_a_checkpoint_that_cannot_be_taken_back_is_named(storage: MemoryStorage) -> None:
    def fail(name: str, key: str) -> None:
        if name == "delete" and "checkpoint" in key:
            raise StorageError("forbidden", key)

    replaced = once(lambda name, key: name == "put_if_absent" and "checkpoint" in key, replaces(storage, 3))
    faulty = FaultyStorage(FaultyStorage(storage, before=fail), before=replaced)
    with pytest.raises(errors.TableReplaced, match="Remove that file") as caught:
        write_checkpoint(faulty, snapshot_of(storage), NO_WAIT)
    assert caught.value.left is not None
    assert caught.value.left in storage.objects


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("versions", NEW)
def test_a_log_compaction_of_a_table_that_is_gone_is_not_left_in_the_new_ones_log(
    storage: MemoryStorage, versions: int, moment: str
) -> None:
    def is_published(name: str, key: str) -> bool:
        return name == "put_if_absent" and "compacted" in key

    hook = once(is_published, replaces(storage, versions))
    with pytest.raises(errors.TableReplaced):
        write_log_compaction(FaultyStorage(storage, **{moment: hook}), snapshot_of(storage), 1, 4)
    assert log_of(storage) == new_log(versions)


# -- with a lock table -----------------------------------------------------------------------------------------------


def locked(store: MemoryStorage, lock: MemoryLockTable | FaultyLockTable, **hooks: object) -> LockedStorage:
    return LockedStorage(FaultyStorage(store, **hooks), lock, sleep=lambda seconds: None)  # type: ignore[arg-type]


def test_no_writer_completes_a_commit_that_was_taken_back(storage: MemoryStorage) -> None:
    lock, failures = MemoryLockTable(), [1]

    def fail(name: str, key: str) -> None:
        if name == "lock.complete" and failures[0]:
            failures[0] -= 1
            raise StorageError("busy", key)

    hook = once(is_commit, replaces(storage, READ))
    with pytest.raises(errors.TableReplaced):
        commit(locked(storage, FaultyLockTable(lock, before=fail), before=hook), snapshot_of(storage))
    again = locked(storage, lock)
    assert snapshot_of(again).version == READ - 1
    left = {key for key in storage.objects if "/.tmp/" not in key}
    assert left == new_log(READ).keys()


def test_an_entry_that_a_table_before_left_in_the_lock_table_is_named(storage: MemoryStorage) -> None:
    lock = MemoryLockTable()
    hook = once(is_commit, replaces(storage, READ))
    with pytest.raises(errors.TableReplaced):
        commit(locked(storage, lock, before=hook), snapshot_of(storage))
    # The new table's next version is before the one that the lock table knows.
    with pytest.raises(errors.CorruptLog, match="delete its old entries from the lock table"):
        commit(locked(storage, lock), snapshot_of(storage))
