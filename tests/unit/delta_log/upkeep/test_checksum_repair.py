"""A version checksum is written or replaced where it can be proved what it should say, and nowhere else."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.repetition import examples
from tests.support.tables.random_log import NOW_MS, logs, write_commits

from delta_log.checkpoint.writer import write_checkpoint
from delta_log.errors import UnsupportedFeature
from delta_log.log.file_names import checksum_key, commit_key
from delta_log.log.log_segment import find_log_segment
from delta_log.runtime import Runtime
from delta_log.snapshot.snapshot import Snapshot
from delta_log.snapshot.version_checksum import write_version_checksum
from delta_log.storage.storage import Storage
from delta_log.testing import Fault, FaultyStorage, MemoryStorage
from delta_log.upkeep.checksum_repair import examine, repair

RUNTIME = Runtime(now_ms=lambda: NOW_MS)


def snapshot_of(storage: Storage, version: int | None = None) -> Snapshot:
    return Snapshot(storage, find_log_segment(storage, version))


@examples(30)
@given(log=logs({}, max_versions=6), data=st.data())
def test_whatever_was_stated_the_right_statement_stands_in_the_end(
    log: list[list[dict[str, Any]]], data: st.DataObject
) -> None:
    storage = MemoryStorage()
    write_commits(storage, log)
    snapshot = snapshot_of(storage)
    key = checksum_key(snapshot.version)
    write_version_checksum(storage, snapshot, None)
    right = storage.read(key)
    assert examine(storage, snapshot).state == "right"
    raw = json.loads(right)
    kind = data.draw(st.sampled_from(["missing", "broken", *[n for n in raw if n != "txnId"]]))
    if kind == "missing":
        storage.delete([key])
    elif kind == "broken":
        storage.put(key, right[: len(right) // 2])
    else:
        raw[kind] = other_than(kind, raw[kind])
        storage.put(key, json.dumps(raw).encode())
    verdict = examine(storage, snapshot)
    assert verdict.state in ("missing", "broken", "wrong")
    assert verdict.proof == "commits"
    assert repair(storage, snapshot, verdict)
    assert storage.read(key) == right
    assert not repair(storage, snapshot, examine(storage, snapshot))


def other_than(name: str, value: Any) -> Any:
    if name == "fileSizeHistogram":
        counts = value["fileCounts"]
        return {**value, "fileCounts": [counts[0] + 1, *counts[1:]]}
    if name == "deletedRecordCountsHistogramOpt":
        counts = value["deletedRecordCounts"]
        return {"deletedRecordCounts": [counts[0] + 1, *counts[1:]]}
    if name == "metadata":
        return {**value, "configuration": {"other": "x"}}
    if name == "protocol":
        return {**value, "minWriterVersion": 8}
    if name == "setTransactions":
        return [*value, {"appId": "unknown", "version": 7}]
    if name == "domainMetadata":
        return [*value, {"domain": "unknown", "configuration": "", "removed": False}]
    return value + 1


def small(versions: int = 4, protocol: dict[str, Any] | None = None) -> MemoryStorage:
    storage = MemoryStorage()
    protocol = protocol or {"minReaderVersion": 1, "minWriterVersion": 2}
    metadata = {"id": "t", "schemaString": '{"type":"struct","fields":[]}', "partitionColumns": []}
    for version in range(versions):
        add = {
            "path": f"f{version}",
            "size": 5,
            "partitionValues": {},
            "modificationTime": 1,
            "dataChange": True,
        }
        actions: list[dict[str, Any]] = [{"commitInfo": {"txnId": f"transaction {version}"}}, {"add": add}]
        if version == 0:
            actions += [{"protocol": protocol}, {"metaData": metadata}]
        storage.put(commit_key(version), "\n".join(map(json.dumps, actions)).encode())
    return storage


EMPTY_LISTS: dict[str, Any] = {"readerFeatures": [], "writerFeatures": []}


@pytest.mark.parametrize(
    "in_log", [{}, EMPTY_LISTS, {"readerFeatures": []}], ids=["absent", "empty", "one empty"]
)
@pytest.mark.parametrize("in_checksum", [{}, EMPTY_LISTS], ids=["absent", "empty"])
@pytest.mark.parametrize("versions", [(1, 2), (1, 7), (3, 7)], ids=str)
def test_empty_lists_of_features_below_reader_3_and_writer_7_are_absent_ones(
    in_log: dict[str, Any], in_checksum: dict[str, Any], versions: tuple[int, int]
) -> None:
    # delta-rs 0.16.1 states such lists. Earlier releases wrote checksums without them, and took those for wrong.
    protocol = dict(zip(("minReaderVersion", "minWriterVersion"), versions, strict=True))
    storage = small(protocol={**protocol, **in_log})
    snapshot = snapshot_of(storage)
    write_version_checksum(storage, snapshot, None)
    key = checksum_key(snapshot.version)
    raw = json.loads(storage.read(key))
    assert ("readerFeatures" in raw["protocol"], "writerFeatures" in raw["protocol"]) == (
        versions[0] == 3,
        versions[1] == 7,
    )
    storage.put(key, json.dumps({**raw, "protocol": {**protocol, **in_checksum}}).encode())
    assert examine(storage, snapshot).state == "right"
    result = write_checkpoint(storage, snapshot, RUNTIME)
    assert write_checkpoint(storage, snapshot, RUNTIME).keys == result.keys
    storage.put(key, b"broken")
    assert repair(storage, snapshot, examine(storage, snapshot))
    assert json.loads(storage.read(key)) == {**raw, "txnId": "transaction 3"}


def without_beginning(storage: MemoryStorage, checkpoint: int) -> Snapshot:
    write_checkpoint(storage, snapshot_of(storage, checkpoint), RUNTIME)
    storage.delete([commit_key(version) for version in range(checkpoint)])
    return snapshot_of(storage)


def test_a_checkpoint_alone_proves_nothing() -> None:
    storage = small()
    snapshot = without_beginning(storage, 2)
    objects = dict(storage.objects)
    verdict = examine(storage, snapshot)
    assert (verdict.state, verdict.proof, verdict.can_be_repaired) == ("missing", None, False)
    assert not repair(storage, snapshot, verdict)
    assert storage.objects == objects


def test_an_older_checksum_and_the_commits_since_do() -> None:
    storage = small()
    write_version_checksum(storage, snapshot_of(storage, 2), None)
    snapshot = without_beginning(storage, 2)
    verdict = examine(storage, snapshot)
    assert (verdict.state, verdict.proof) == ("missing", "checksum")
    assert repair(storage, snapshot, verdict)
    assert json.loads(storage.read(checksum_key(3)))["txnId"] == "transaction 3"


def test_an_older_checksum_that_is_wrong_itself_does_not() -> None:
    storage = small()
    snapshot = without_beginning(storage, 2)
    storage.put(checksum_key(2), b'{"tableSizeBytes":1,"numFiles":1,"numMetadata":1,"numProtocol":1}')
    assert examine(storage, snapshot).proof is None


def test_a_checkpoint_that_lost_a_file_is_found_out_by_the_commits() -> None:
    storage, other = small(), small()
    other.put(commit_key(1), b'{"commitInfo":{}}')
    result = write_checkpoint(other, snapshot_of(other, 2), RUNTIME)
    storage.put(result.keys[0], other.read(result.keys[0]))
    snapshot = snapshot_of(storage)
    assert snapshot.num_files == 3
    assert examine(storage, snapshot).proof is None


def test_a_list_of_files_that_is_not_the_table_s_is_wrong() -> None:
    storage = small()
    snapshot = snapshot_of(storage)
    write_version_checksum(storage, snapshot, None)
    raw = json.loads(storage.read(checksum_key(3)))
    files = [{"path": f"f{n}", "size": 5} for n in range(4)]
    for listed, state in (
        (files, "right"),
        (files[1:], "wrong"),
        ([{**files[0], "size": 6}, *files[1:]], "wrong"),
    ):
        storage.put(checksum_key(3), json.dumps({**raw, "allFiles": listed}).encode())
        assert examine(storage, snapshot).state == state


def test_a_process_that_dies_at_any_call_leaves_none_or_the_right_one() -> None:
    for when in ("before", "after"):
        for fatal in range(40):
            storage = small()
            storage.put(checksum_key(3), b"broken")
            left = [fatal]

            def die(name: str, key: str, left: list[int] = left) -> None:
                left[0] -= 1
                if left[0] < 0:
                    raise Fault

            faulty = FaultyStorage(storage, **{when: die})
            try:
                snapshot = snapshot_of(faulty)
                repair(faulty, snapshot, examine(faulty, snapshot))
            except Fault:
                pass
            if storage.head(checksum_key(3)) is not None and storage.read(checksum_key(3)) != b"broken":
                assert examine(storage, snapshot_of(storage)).state == "right"


def test_the_gate_stands_before_it() -> None:
    storage = small()
    protocol = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["brandNew"]}
    storage.put(commit_key(4), json.dumps({"protocol": protocol}).encode())
    objects = dict(storage.objects)
    with pytest.raises(UnsupportedFeature, match="brandNew"):
        examine(storage, snapshot_of(storage))
    assert storage.objects == objects
