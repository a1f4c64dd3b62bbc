"""Log cleanup: what is old goes, and every version that has to stay can still be read, whatever happens."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.checks.checkpoint_state import state_of
from tests.support.repetition import examples
from tests.support.tables.aged_logs import (
    PROPERTIES,
    RUNTIME,
    age,
    aged_logs,
    copy_of,
    readable_states,
    readable_versions,
    snapshot_of,
)
from tests.support.tables.random_log import DAY_MS, NOW_MS

from delta_log.checkpoint.writer import write_checkpoint
from delta_log.errors import CorruptLog, DeltaLogError, StorageError, TableReplaced, UnsupportedFeature
from delta_log.log.file_names import checksum_key, commit_key
from delta_log.log.log_segment import list_log
from delta_log.storage.storage import Storage
from delta_log.testing import Fault, FaultyStorage, MemoryStorage, TornListings
from delta_log.upkeep.checkpoint_audit import CheckpointAuditFailed
from delta_maintenance.errors import ConcurrentCleanup, LogCleanupIncomplete, LogCleanupRefused
from delta_maintenance.log_upkeep.log_cleanup import clean_up, plan_log_cleanup
from delta_maintenance.log_upkeep.plan.log_cleanup import LogCleanupPlan, LogRetention
from delta_maintenance.progress import SilentProgress

SILENT = SilentProgress()


def planned(storage: Storage, now_ms: int = NOW_MS) -> LogCleanupPlan:
    return plan_log_cleanup(storage, snapshot_of(storage), now_ms, SILENT)


def cleaned(storage: Storage, now_ms: int = NOW_MS) -> LogCleanupPlan:
    snapshot = snapshot_of(storage)
    plan = plan_log_cleanup(storage, snapshot, now_ms, SILENT)
    clean_up(storage, snapshot, plan, RUNTIME, SILENT)
    return plan


def states(storage: Storage, versions: set[int]) -> dict[int, dict[str, Any]]:
    return {version: state_of(snapshot_of(storage, version), NOW_MS, stats="none") for version in versions}


@examples(8)
@given(storage=aged_logs())
def test_every_version_from_the_anchor_on_stays_as_it_was(storage: MemoryStorage) -> None:
    before = copy_of(storage)
    could_be_read = readable_states(before)
    plan = cleaned(storage)
    anchor = plan.anchor.version if plan.anchor is not None else 0
    stays = {version: state for version, state in could_be_read.items() if version >= anchor}
    assert readable_states(storage) == stays
    if plan.anchor is not None:
        # The version that stood at the cutoff can be read.
        assert plan.expired_version is not None
        assert anchor <= plan.expired_version
    for version in could_be_read:
        if before.objects[commit_key(version)][1] > plan.retention.cutoff_ms:
            assert version in stays
    gone = set(before.objects) - set(storage.objects)
    assert gone == {file.key for file in plan.files}
    assert "_delta_log/of-another-program.file" not in gone
    assert planned(storage).is_empty, "a second run has nothing to do"


@examples(6)
@given(storage=aged_logs(max_versions=7), data=st.data())
def test_a_crash_at_any_call_loses_nothing_and_the_next_run_ends_in_the_same(
    storage: MemoryStorage, data: st.DataObject
) -> None:
    calls: list[str] = []
    finished = copy_of(storage)
    plan = cleaned(FaultyStorage(finished, before=lambda name, key: calls.append(name)))
    expected = readable_states(storage, plan.anchor.version if plan.anchor is not None else 0)
    writes = [number for number, name in enumerate(calls) if name in ("delete", "put_if_absent", "put")]
    if not writes:
        return
    for fatal in data.draw(st.lists(st.integers(writes[0], len(calls) - 1), max_size=5, unique=True)):
        crashed = copy_of(storage)
        left = [fatal]

        def die(name: str, key: str, left: list[int] = left) -> None:
            left[0] -= 1
            if left[0] < 0:
                raise Fault

        # Calls that find nothing do not end a run, so there are fewer of them.
        with suppress(Fault):
            cleaned(FaultyStorage(crashed, **{data.draw(st.sampled_from(["before", "after"])): die}))
        assert readable_states(crashed, min(expected)).items() >= expected.items()
        assert_no_false_entrance(crashed)
        cleaned(crashed)
        # What tells the time by the store's clock goes with other temporary files, a day later.
        assert {key for key in crashed.objects if ".clock." not in key} == set(finished.objects)


def assert_no_false_entrance(storage: Storage) -> None:
    """A reader that lists finds no version that it takes for readable and cannot read."""
    listing = list_log(storage)
    for version in range(listing.earliest, listing.latest + 1):
        snapshot_of(storage, version).files()


def test_at_each_step_a_reader_that_lists_finds_a_log_without_gaps() -> None:
    storage = table(versions=24, checkpoints=(5, 10, 15, 20))
    snapshot = snapshot_of(storage)
    plan = plan_log_cleanup(storage, snapshot, NOW_MS, SILENT)
    seen = []

    def look(name: str, key: str) -> None:
        if name == "delete" and ".clock." not in key:
            assert_no_false_entrance(storage)
            seen.append(key)

    clean_up(FaultyStorage(storage, after=look), snapshot, plan, RUNTIME, SILENT)
    assert [key.rpartition("/")[2] for key in seen[:4]] == [
        f"{0:020d}.json",
        f"{5:020d}.checkpoint.parquet",
        f"{10:020d}.checkpoint.parquet",
        f"{15:020d}.checkpoint.parquet",
    ]
    assert readable_versions(storage) == set(range(20, 24))


@pytest.mark.parametrize("fault", ["read", "list_from", "open_read", "head", "delete"])
def test_a_store_that_fails_at_any_call_leaves_everything_readable(fault: str) -> None:
    whole = table(versions=7, checkpoints=(1, 3), policy="v2")
    expected = states(whole, set(range(3, 7)))
    calls: list[str] = []
    cleaned(FaultyStorage(copy_of(whole), before=lambda name, key: calls.append(name)))
    count = calls.count(fault)
    for number in range(0, count, 1 if fault == "delete" else max(1, count // 8)):
        storage = copy_of(whole)
        left = [number]

        def fail(name: str, key: str, left: list[int] = left) -> None:
            if name == fault:
                left[0] -= 1
                if left[0] == -1:
                    raise StorageError("the store is down", key)

        gone_before = set(whole.objects)
        with pytest.raises((LogCleanupIncomplete, StorageError)) as caught:
            cleaned(FaultyStorage(storage, before=fail))
        gone = gone_before - set(storage.objects)
        assert isinstance(caught.value, LogCleanupIncomplete) is bool(gone)
        if isinstance(caught.value, LogCleanupIncomplete):
            assert caught.value.retryable
            assert caught.value.deleted_files == len(gone)
            assert "running again goes on" in str(caught.value)
        assert states(storage, set(range(3, 7))) == expected
        cleaned(storage)
        assert readable_versions(storage) == set(range(3, 7))


# -- a table of known shape ----------------------------------------------------------------------------------------


def table(
    versions: int = 12,
    checkpoints: tuple[int, ...] = (),
    policy: Any = "classic",
    properties: dict[str, str] | None = None,
    features: tuple[str, ...] = ("v2Checkpoint",),
) -> MemoryStorage:
    """A file a commit; the newest commit is a day old at noon, each earlier one a day older."""
    storage = MemoryStorage()
    protocol = {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": [name for name in features if name == "v2Checkpoint"],
        "writerFeatures": list(features),
    }
    schema = '{"type":"struct","fields":[{"name":"x","type":"long","nullable":true,"metadata":{}}]}'
    metadata = {
        "id": "t",
        "schemaString": schema,
        "partitionColumns": [],
        "configuration": {**PROPERTIES, **(properties or {})},
        "format": {"provider": "parquet", "options": {}},
    }
    for version in range(versions):
        add = {
            "path": f"f{version}",
            "partitionValues": {},
            "size": 1,
            "modificationTime": 1,
            "dataChange": True,
        }
        actions: list[dict[str, Any]] = [{"add": add}]
        if version == 0:
            actions += [{"protocol": protocol}, {"metaData": metadata}]
        elif version % 3 == 0:
            remove = {"path": f"f{version - 3}", "deletionTimestamp": NOW_MS, "dataChange": True}
            actions.append({"remove": remove})
        storage.put(commit_key(version), "\n".join(map(json.dumps, actions)).encode())
        age(storage, commit_key(version), versions - version)
    for version in checkpoints:
        result = write_checkpoint(storage, snapshot_of(storage, version), RUNTIME, policy)
        for key in result.keys:
            age(storage, key, versions - version)
    storage._clock_ms = NOW_MS
    return storage


def test_the_retention_ends_at_a_midnight_and_leftovers_stay_for_a_day() -> None:
    noon = NOW_MS - NOW_MS % DAY_MS + DAY_MS // 2
    retention = LogRetention.of({}, noon)
    assert retention.cutoff_ms == noon - DAY_MS // 2 - 30 * DAY_MS
    assert retention.leftover_cutoff_ms == noon - DAY_MS // 2 - DAY_MS
    assert retention.warnings == ()
    (warning,) = LogRetention.of({"delta.logRetentionDuration": "interval 1 hour"}, noon).warnings
    assert "1 hours" in warning
    assert "168" in warning


def test_the_plan_says_what_goes_by_kind_and_writes_nothing() -> None:
    storage = table(versions=12, checkpoints=(4, 8))
    storage.put(checksum_key(3), b"{}")
    storage.put("_delta_log/_sidecars/orphan.parquet", b"123")
    age(storage, "_delta_log/_sidecars/orphan.parquet", 3)
    objects = dict(storage.objects)
    plan = planned(storage)
    assert storage.objects == objects
    told = plan.to_dict()
    assert {reason: counts["numFiles"] for reason, counts in told["kinds"].items()} == {
        "expired_commit": 8,
        "expired_checkpoint": 1,
        "expired_checksum": 1,
        "orphan_sidecar": 1,
    }
    assert told["sizeOfDataToDelete"] == sum(len(objects[file.key][0]) for file in plan.files)
    assert (told["anchorVersion"], told["expiredVersion"], told["anchorComparedWith"]) == (8, 8, "checkpoint")
    assert json.loads(json.dumps(told)) == told


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"properties": {"delta.enableExpiredLogCleanup": "false"}}, "the table forbids it"),
        ({"properties": {"delta.logRetentionDuration": "interval 1000 days"}}, "no version is older"),
        ({"checkpoints": ()}, "no checkpoint that can be read is at or before version 8"),
        ({"checkpoints": (10,)}, "no checkpoint that can be read is at or before version 8"),
        ({"checkpoints": (0,)}, "nothing is left below version 0"),
    ],
)
def test_where_nothing_goes_the_plan_says_why(change: dict[str, Any], why: str) -> None:
    plan = planned(table(**{"versions": 12, "checkpoints": (4, 8), **change}))
    assert plan.is_empty
    assert why in plan.reasons[0]


def test_in_commit_timestamps_count_and_not_the_times_of_files() -> None:
    storage = table(versions=6, checkpoints=(1, 3), features=("v2Checkpoint", "inCommitTimestamp"))
    for version in range(6):
        lines = storage.read(commit_key(version)).decode().splitlines()
        if version == 0:
            metadata = json.loads(lines[2])
            metadata["metaData"]["configuration"]["delta.enableInCommitTimestamps"] = "true"
            lines[2] = json.dumps(metadata)
        when = NOW_MS - (20 - version if version < 4 else 6 - version) * DAY_MS
        info = {"commitInfo": {"inCommitTimestamp": when}}
        storage.put(commit_key(version), "\n".join([json.dumps(info), *lines]).encode())
        age(storage, commit_key(version), 0)
    for checkpoint in list_log(storage).checkpoints:
        storage.delete([checkpoint.files[0].key])
        write_checkpoint(storage, snapshot_of(storage, checkpoint.version), RUNTIME)
    plan = cleaned(storage)
    assert plan.expired_version == 3
    assert readable_versions(storage) == {3, 4, 5}


def test_times_of_files_that_go_backwards_are_made_to_go_forwards() -> None:
    storage = table(versions=12, checkpoints=(4, 8))
    age(storage, commit_key(2), 0)  # written anew by a copy, say: all later ones are at least as young
    plan = planned(storage)
    assert plan.expired_version == 1
    assert plan.is_empty


# -- the anchor ----------------------------------------------------------------------------------------------------


def test_a_checkpoint_that_cannot_be_read_is_no_anchor() -> None:
    storage = table(versions=12, checkpoints=(2, 4, 8))
    key = f"_delta_log/{8:020d}.checkpoint.parquet"
    storage.put(key, storage.read(key)[:-100] + bytes(100))
    plan = cleaned(storage)
    assert plan.anchor is not None
    assert plan.anchor.version == 4
    assert key in plan.warnings[-1]
    assert readable_versions(storage) == set(range(4, 12))


def test_a_checkpoint_whose_sidecar_is_gone_is_no_anchor() -> None:
    storage = table(versions=12, checkpoints=(2, 4, 8), policy="v2")
    sidecar = max(key for key in storage.objects if "/_sidecars/" in key and f"{8:020d}" in key)
    storage.delete([sidecar])
    plan = cleaned(storage)
    assert plan.anchor is not None
    assert plan.anchor.version == 4
    assert readable_versions(storage) == set(range(4, 12))


def test_where_a_checkpoint_does_not_tell_its_sidecars_none_goes() -> None:
    storage = table(versions=12, checkpoints=(2, 4, 10), policy="v2")
    top = next(key for key in storage.objects if f"{10:020d}.checkpoint." in key and "_sidecars" not in key)
    storage.put(top, b"not a checkpoint")
    sidecars = {key for key in storage.objects if "_sidecars" in key}
    plan = cleaned(storage)
    assert any("no sidecar goes" in reason for reason in plan.reasons)
    assert {key for key in storage.objects if "_sidecars" in key} == sidecars
    assert readable_versions(storage) == set(range(4, 12))


@pytest.mark.parametrize("oldest", [0, 4])
def test_a_checkpoint_that_lost_a_file_is_named_and_the_evidence_stays(oldest: int) -> None:
    storage = table(versions=12, checkpoints=(4,))
    other = table(versions=12)
    other.delete([commit_key(7)])
    other.put(commit_key(7), b'{"commitInfo":{}}')
    write_checkpoint(other, snapshot_of(other, 8), RUNTIME)
    key = f"_delta_log/{8:020d}.checkpoint.parquet"
    storage.put(key, other.read(key))
    storage.delete([commit_key(version) for version in range(oldest)])
    objects = dict(storage.objects)
    with pytest.raises(CheckpointAuditFailed, match="add") as caught:
        cleaned(storage)
    assert (caught.value.key, caught.value.differences) == (key, ("add",))
    assert storage.objects == objects


def test_a_checkpoint_that_contradicts_its_version_checksum_is_named() -> None:
    storage = table(versions=12, checkpoints=(8,))
    storage.put(checksum_key(8), b'{"tableSizeBytes":1,"numFiles":77,"numMetadata":1,"numProtocol":1}')
    objects = dict(storage.objects)
    with pytest.raises(CheckpointAuditFailed, match="numFiles"):
        cleaned(storage)
    assert storage.objects == objects


def test_a_missing_commit_after_the_anchor_stops_it() -> None:
    storage = table(versions=12, checkpoints=(4, 8, 11))
    storage.delete([commit_key(10)])
    objects = dict(storage.objects)
    with pytest.raises(CorruptLog, match="10.json.*missing between the checkpoint of version 8 and 11"):
        cleaned(storage)
    assert storage.objects == objects


def test_commits_that_come_while_the_log_is_listed_stop_nothing() -> None:
    quiet, busy = (table(versions=12, checkpoints=(4, 8, 11)) for _ in range(2))
    new = iter(range(12, 1_000))

    def two_commits() -> None:
        for _ in range(2):
            busy.put(commit_key(next(new)), b'{"commitInfo":{}}\n')

    snapshot = snapshot_of(busy)
    found = plan_log_cleanup(TornListings(busy, two_commits), snapshot, NOW_MS, SILENT)
    assert [file.key for file in found.files] == [file.key for file in planned(quiet).files] != []


@pytest.mark.parametrize("feature", ["brandNew", "catalogManaged"])
def test_a_feature_that_may_need_other_files_stops_it(feature: str) -> None:
    storage = table(versions=12, checkpoints=(8,))
    upgraded = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": [feature]}
    storage.put(commit_key(12), json.dumps({"protocol": upgraded}).encode())
    objects = dict(storage.objects)
    with pytest.raises(UnsupportedFeature, match=feature):
        cleaned(storage)
    assert storage.objects == objects


def test_a_v2_anchor_gets_a_copy_that_older_readers_find() -> None:
    storage = table(versions=12, checkpoints=(4, 8), policy="v2")
    expected = states(storage, set(range(8, 12)))
    plan = cleaned(storage)
    assert plan.compatible_copy_of == plan.anchor
    key = f"_delta_log/{8:020d}.checkpoint.parquet"
    unique = [key for key in storage.objects if f"{8:020d}.checkpoint." in key and "_sidecars" not in key]
    assert len(unique) == 2
    storage.delete([name for name in unique if name != key])
    assert states(storage, set(range(8, 12))) == expected
    assert planned(storage).compatible_copy_of is None


def test_sidecars_that_a_later_checkpoint_shares_stay() -> None:
    storage = table(versions=12, checkpoints=(4, 8), policy="v2")
    top = next(key for key in storage.objects if f"{8:020d}.checkpoint." in key and "_sidecars" not in key)
    shared = next(key for key in storage.objects if "_sidecars" in key and f"{4:020d}" in key)
    info = storage.head(shared)
    assert info is not None
    # No writer has published this checkpoint yet: that happens between plan and deletion.
    line = {"sidecar": {"path": info.name, "sizeInBytes": info.size, "modificationTime": 1}}
    snapshot = snapshot_of(storage)
    plan = plan_log_cleanup(storage, snapshot, NOW_MS, SILENT)
    assert shared in {file.key for file in plan.sidecars}
    lines = [line for line in storage.read(top).splitlines() if b'"sidecar"' not in line]
    late = f"_delta_log/{11:020d}.checkpoint.late.json"
    storage.put(late, b"\n".join([*lines, json.dumps(line).encode()]))
    facts, _ = clean_up(storage, snapshot, plan, RUNTIME, SILENT)
    assert storage.head(shared) is not None
    assert facts["numSparedFiles"] == 1


# -- protection of checkpoints -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "unknown", "goes"), [(8, True, True), (9, False, True), (9, True, False), (100, True, False)]
)
def test_protected_history_goes_as_a_whole_or_where_all_of_it_is_understood(
    before: int, unknown: bool, goes: bool
) -> None:
    storage = table(
        versions=12,
        properties={"delta.requireCheckpointProtectionBeforeVersion": str(before)},
        features=("v2Checkpoint", "checkpointProtection"),
    )
    if unknown:  # a feature that was dropped again
        for version, features in ((2, ["checkpointProtection", "brandNew"]), (3, ["checkpointProtection"])):
            protocol = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": features}
            body = storage.read(commit_key(version)) + b"\n" + json.dumps({"protocol": protocol}).encode()
            storage.put(commit_key(version), body)
            age(storage, commit_key(version), 12 - version)
    write_checkpoint(storage, snapshot_of(storage, 8), RUNTIME)
    plan = cleaned(storage)
    assert plan.is_empty is not goes
    assert readable_versions(storage) == set(range(8 if goes else 0, 12))
    if not goes:
        assert "brandNew" in plan.reasons[0]


# -- others at work ------------------------------------------------------------------------------------------------


def meanwhile(storage: MemoryStorage, change: Callable[[], object]) -> None:
    snapshot = snapshot_of(storage)
    plan = plan_log_cleanup(storage, snapshot, NOW_MS, SILENT)
    assert not plan.is_empty
    change()
    clean_up(storage, snapshot, plan, RUNTIME, SILENT)


def test_another_table_at_the_same_place_is_left_alone() -> None:
    storage = table(versions=12, checkpoints=(8,))

    def replace_table() -> None:
        fresh = table(versions=14)
        fresh.objects = {
            key: (data.replace(b'"id": "t"', b'"id": "u"'), 1) for key, (data, _) in fresh.objects.items()
        }
        storage.objects = fresh.objects

    with pytest.raises(TableReplaced, match="version 11 of its log is another one"):
        meanwhile(storage, replace_table)
    assert readable_versions(storage) == set(range(14))


def test_a_clock_that_is_ahead_of_the_store_deletes_nothing() -> None:
    storage = table(versions=12, checkpoints=(8,))
    before, later = dict(storage.objects), NOW_MS + 40 * DAY_MS
    # A dry run writes nothing, so that it cannot know; it says what the clock makes of the log.
    assert not planned(storage, later).is_empty
    with pytest.raises(DeltaLogError, match="57,600 minutes ahead of the store's"):
        cleaned(storage, later)
    assert storage.objects == before
    storage._clock_ms = later
    assert not cleaned(storage, later).is_empty
    assert set(storage.objects) < set(before)


def test_an_anchor_that_is_gone_stops_it() -> None:
    storage = table(versions=12, checkpoints=(8,))
    with pytest.raises(ConcurrentCleanup, match="not what it was"):
        meanwhile(storage, lambda: storage.delete([f"_delta_log/{8:020d}.checkpoint.parquet"]))
    assert readable_versions(storage) == set(range(12))


def test_a_table_that_forbids_it_meanwhile_is_obeyed() -> None:
    storage = table(versions=12, checkpoints=(8,))
    body = storage.read(commit_key(0)).decode().splitlines()[2]
    metadata = json.loads(body)
    metadata["metaData"]["configuration"]["delta.enableExpiredLogCleanup"] = "false"
    with pytest.raises(LogCleanupRefused, match="switched off"):
        meanwhile(storage, lambda: storage.put(commit_key(12), json.dumps(metadata).encode()))
    assert readable_versions(storage) == set(range(13))


def test_two_cleanups_at_once_do_each_other_no_harm() -> None:
    storage = table(versions=12, checkpoints=(4, 8))
    expected = states(storage, set(range(8, 12)))
    meanwhile(storage, lambda: cleaned(storage))
    assert states(storage, set(range(8, 12))) == expected
