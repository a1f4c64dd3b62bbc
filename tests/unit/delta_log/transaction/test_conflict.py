"""The conflict rules: which winners stop a rewrite, or a part of it, and which do not."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec.structs import replace
from tests.support.tables.three_files import (
    METADATA,
    PROTOCOL,
    SCHEMA,
    actions_of,
    add,
    commit,
    compaction,
    live,
    metadata,
    new_file,
    old_file,
    remove,
    table_of_three,
    write,
)

from delta_log.errors import (
    CommitFailed,
    ConcurrentAppend,
    ConcurrentDelete,
    DeltaLogError,
    MetadataChanged,
    ProtocolChanged,
    UnsupportedFeature,
)
from delta_log.log.actions import Action, Remove, decode_actions
from delta_log.log.file_names import commit_key
from delta_log.table_config.features import Operation
from delta_log.testing import MemoryStorage
from delta_log.transaction.commit_body import Change, FileGroup
from delta_log.transaction.conflict import Basis, Head, WinningCommit, conflicts_of, refreshed_row_ids
from delta_log.transaction.transaction import CommitResult


@pytest.fixture
def storage() -> MemoryStorage:
    return table_of_three()


def identity_schema(mark: int) -> str:
    schema = json.loads(SCHEMA)
    schema["fields"][0]["metadata"] = {"delta.identity.highWaterMark": mark}
    return json.dumps(schema)


@pytest.mark.parametrize(
    ("tags", "by"),
    [
        ({"airflow.dag_id": "nightly", "airflow.task_id": "compact"}, "task compact of DAG nightly"),
        ({"delta-maintenance.run": "cli-1"}, "run cli-1"),
        ({"delta-maintenance.run": 7}, None),
        ("no tags", None),
        (None, None),
    ],
)
def test_a_conflict_with_a_run_of_this_project_names_its_task(
    storage: MemoryStorage, tags: Any, by: str | None
) -> None:
    info = {"operation": "OPTIMIZE", "engineInfo": "ours", "tags": tags}
    write(storage, 1, {"commitInfo": info}, remove("a"))
    with pytest.raises(ConcurrentDelete) as caught:
        commit(storage, compaction())
    assert caught.value.facts()["maintained_by"] == by
    named = f"version 1 (OPTIMIZE, ours, {by})" if by else "version 1 (OPTIMIZE, ours)"
    assert named in str(caught.value)
    assert ("let one begin after the other" in str(caught.value)) == (by is not None)


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


@pytest.mark.parametrize(
    "winner",
    [
        metadata(schemaString=identity_schema(7)),
        metadata(configuration={"delta.enableDeletionVectors": "true"}),
        metadata(configuration={"delta.checkpointPolicy": "v2"}, name="renamed", description="new"),
        {"protocol": {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": [
            "appendOnly", "invariants", "inCommitTimestamp"]}},
        {"domainMetadata": {"domain": "theirs", "configuration": "{}", "removed": False}},
        {"txn": {"appId": "theirs", "version": 4}},
        {"cdc": {"path": "_change_data/x", "size": 1, "partitionValues": {}, "dataChange": False}},
        {"unheard": {"of": 1}},
    ],
    ids=["identity", "vectors on", "v2 policy", "feature added", "domain", "txn", "cdc", "unknown"],
)  # fmt: skip
def test_winners_that_do_not_concern_a_rewrite(storage: MemoryStorage, winner: dict[str, Any]) -> None:
    write(storage, 1, {"commitInfo": {}}, winner)
    assert commit(storage, compaction()) == CommitResult(2)
    assert live(storage) == {"ab", "c"}


def test_in_commit_timestamps_that_a_winner_enabled_are_obeyed(storage: MemoryStorage) -> None:
    protocol = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["inCommitTimestamp"]}
    listed = {"protocol": {**protocol, "writerFeatures": ["appendOnly", "invariants", "inCommitTimestamp"]}}
    enabled = metadata(configuration={"delta.enableInCommitTimestamps": "true"})
    write(storage, 1, {"commitInfo": {"inCommitTimestamp": 7_000}}, listed, enabled)
    assert commit(storage, compaction()) == CommitResult(2)
    assert actions_of(storage, 2)[0]["commitInfo"]["inCommitTimestamp"] == 7_001


@pytest.mark.parametrize(
    ("winner", "error"),
    [
        (metadata(id="another"), MetadataChanged),
        (metadata(schemaString=SCHEMA.replace('"x"', '"y"')), MetadataChanged),
        (metadata(partitionColumns=["x"]), MetadataChanged),
        (metadata(configuration={"delta.columnMapping.mode": "name"}), MetadataChanged),
        ({"protocol": {"minReaderVersion": 1, "minWriterVersion": 1}}, ProtocolChanged),
        ({"protocol": {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": [
            "appendOnly", "invariants", "columnMappingUsageTracking"]}}, ProtocolChanged),
        ({"protocol": {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": [
            "appendOnly", "invariants", "unheardOf"]}}, UnsupportedFeature),
        ({"add": {**add("a")["add"], "size": 9}}, ConcurrentDelete),
        ({"add": {**add("a")["add"], "deletionVector": {
            "storageType": "i", "pathOrInlineDv": "v", "sizeInBytes": 4, "cardinality": 1}}}, ConcurrentDelete),
    ],
    ids=["identity", "schema", "partitioning", "mapping", "feature removed", "feature of writing", "unknown feature",
         "another file", "another vector"],
)  # fmt: skip
def test_winners_that_stop_a_rewrite(
    storage: MemoryStorage, winner: dict[str, Any], error: type[DeltaLogError]
) -> None:
    write(storage, 1, {"commitInfo": {}}, winner)
    sized = Change("OPTIMIZE", [FileGroup([new_file("ab")], [old_file("a", size=1), old_file("b", size=1)])])
    with pytest.raises(error):
        commit(storage, sized)
    assert storage.head(commit_key(2)) is None


def test_commits_without_files_pass_everything_but_the_gate(storage: MemoryStorage) -> None:
    write(storage, 1, metadata(schemaString=SCHEMA.replace('"x"', '"y"')), remove("a"), add("d"))
    assert commit(storage, Change("VACUUM START")) == CommitResult(2)
    write(
        storage,
        3,
        {"protocol": {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["unheardOf"]}},
    )
    with pytest.raises(UnsupportedFeature):
        commit(storage, Change("VACUUM END"))


def test_a_commit_that_rests_on_the_whole_table_suffers_no_change_of_rows(storage: MemoryStorage) -> None:
    restore = Change(
        "RESTORE",
        [FileGroup(removes=[Remove(path="a", dataChange=True)])],
        whole_table=True,
        rests_on_domains=frozenset({"mine"}),
    )
    rearranged = {"add": {**add("d")["add"], "dataChange": False}}
    write(storage, 1, rearranged)
    assert commit(storage, restore) == CommitResult(2)
    write(storage, 3, add("e"))
    with pytest.raises(ConcurrentAppend):
        commit(storage, restore, read_version=2)
    write(storage, 4, {"domainMetadata": {"domain": "mine", "configuration": "", "removed": False}})
    with pytest.raises(MetadataChanged):
        commit(storage, restore, read_version=3)


# -- the rules alone ---------------------------------------------------------------------------------------------

BASIS = Basis(
    "memory://table",
    Operation.OPTIMIZE,
    {"a": (0, old_file("a", size=1, baseRowId=5)), "b": (1, old_file("b", size=1))},
)


def parsed(*actions: dict[str, Any]) -> list[Action]:
    return decode_actions("".join(json.dumps(action) + "\n" for action in actions).encode(), commit_key(1))


def conflicts(*actions: dict[str, Any]) -> dict[int | None, type[CommitFailed]]:
    protocol, read = parsed(PROTOCOL, METADATA)
    assert protocol.protocol is not None
    assert read.metaData is not None
    head = Head(0, protocol.protocol, read.metaData)
    found = conflicts_of(WinningCommit(1, parsed(*actions)), head, BASIS)
    return {conflict.group: type(conflict.error) for conflict in found}


def row_ids(*actions: dict[str, Any]) -> dict[str, int | None]:
    found = refreshed_row_ids(WinningCommit(1, parsed(*actions)), BASIS)
    return {key: file.baseRowId for key, file in found.items()}


def test_a_lost_source_concerns_its_group_and_changed_metadata_the_whole_commit() -> None:
    assert conflicts(remove("b")) == {1: ConcurrentDelete}
    assert conflicts(remove("./a"), remove("b")) == {0: ConcurrentDelete, 1: ConcurrentDelete}
    assert conflicts(metadata(id="another"), remove("b")) == {None: MetadataChanged, 1: ConcurrentDelete}
    assert conflicts(add("d"), remove("c")) == {}


def test_only_a_source_added_again_as_the_same_file_gives_row_ids() -> None:
    again = {"add": {**add("a")["add"], "baseRowId": 20}}
    assert conflicts(again) == {}
    assert row_ids(again, add("d")) == {"a": 20}
    other = {"add": {**add("a")["add"], "size": 9}}
    assert conflicts(other) == {0: ConcurrentDelete}
    assert row_ids(other) == {}


def test_a_delete_by_vectors_does_not_follow_a_commit_that_forbids_them() -> None:
    features = ["deletionVectors"]
    protocol = {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": features,
        "writerFeatures": features,
    }
    allowing, forbidding = (
        {"metaData": {**METADATA["metaData"], "configuration": {"delta.enableDeletionVectors": text}}}
        for text in ("true", "false")
    )
    first, read = parsed({"protocol": protocol}, allowing)
    assert first.protocol is not None
    assert read.metaData is not None
    head = Head(0, first.protocol, read.metaData)
    winner, deleting = WinningCommit(1, parsed(forbidding)), replace(BASIS, writes_vectors=True)
    assert conflicts_of(winner, head, BASIS) == []
    assert [type(one.error) for one in conflicts_of(winner, head, deleting)] == [MetadataChanged]
    assert conflicts_of(WinningCommit(1, parsed(allowing)), head, deleting) == []
