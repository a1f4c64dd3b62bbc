"""Replay of random histories, from commits and from checkpoints of every form, against a naive model."""

from __future__ import annotations

import json
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given
from hypothesis import strategies as st
from tests.support.repetition import examples

from delta_log.log.log_segment import find_log_segment
from delta_log.snapshot.snapshot import Snapshot
from delta_log.testing import MemoryStorage

SCHEMA = json.dumps(
    {"type": "struct", "fields": [{"name": "x", "type": "long", "nullable": True, "metadata": {}}]}
)
PROTOCOL = {
    "protocol": {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": ["deletionVectors", "v2Checkpoint"],
        "writerFeatures": ["deletionVectors", "v2Checkpoint", "domainMetadata"],
    }
}
METADATA = {"metaData": {"id": "t", "schemaString": SCHEMA, "format": {"provider": "parquet", "options": {}}}}
# Two spellings of one file each, so that comparing the log's text instead of the key is found out.
FILES = {"a": ("a", "./a"), "b c": ("b%20c", "b%20c"), "p=1/d": ("p=1/d", "p%3D1/d"), "e": ("e", "%65")}


def vector(number: int) -> dict[str, Any]:
    return {"storageType": "i", "pathOrInlineDv": f"dv{number}", "sizeInBytes": 4, "cardinality": number}


@dataclass
class Model:
    """What the protocol says, in dictionaries: the key is (file, deletion vector)."""

    live: dict[tuple[str, int], int] = field(default_factory=dict)
    tombstones: dict[tuple[str, int], int] = field(default_factory=dict)
    transactions: dict[str, int] = field(default_factory=dict)
    domains: dict[str, str | None] = field(default_factory=dict)

    def add(self, key: tuple[str, int], size: int) -> None:
        self.tombstones.pop(key, None)
        self.live[key] = size

    def remove(self, key: tuple[str, int], when: int) -> None:
        self.live.pop(key, None)
        self.tombstones[key] = when


def add_action(key: tuple[str, int], size: int, spelling: int) -> dict[str, Any]:
    add: dict[str, Any] = {"path": FILES[key[0]][spelling], "partitionValues": {}, "size": size}
    add |= {"modificationTime": 1, "dataChange": True, "stats": json.dumps({"numRecords": size})}
    if key[1]:
        add["deletionVector"] = vector(key[1])
    return {"add": add}


def remove_action(key: tuple[str, int], when: int, spelling: int) -> dict[str, Any]:
    remove: dict[str, Any] = {"path": FILES[key[0]][spelling], "deletionTimestamp": when, "dataChange": True}
    if key[1]:
        remove["deletionVector"] = vector(key[1])
    return {"remove": remove}


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[list[dict[str, Any]]], list[Model]]:
    """Commits (as lists of actions in any order) and the model after each."""
    model = Model()
    commits: list[list[dict[str, Any]]] = []
    models: list[Model] = []
    for version in range(draw(st.integers(1, 8))):
        actions: list[dict[str, Any]] = [PROTOCOL, METADATA] if version == 0 else []
        for name in draw(st.lists(st.sampled_from(sorted(FILES)), unique=True, max_size=4)):
            live = [key for key in model.live if key[0] == name]
            number: int = draw(st.integers(0, 3))
            spelling = draw(st.integers(0, 1))
            size = draw(st.integers(1, 9))
            remove: bool = draw(st.booleans())
            if live and remove:
                model.remove(live[0], version)
                actions.append(remove_action(live[0], version, spelling))
                if number and (name, number) != live[0]:  # a new vector for the same file
                    model.add((name, number), size)
                    actions.append(add_action((name, number), size, spelling))
            elif not live or live[0] == (name, number):  # a new file, or one restored, or one added again
                model.add((name, number), size)
                actions.append(add_action((name, number), size, spelling))
        if draw(st.booleans()):
            model.transactions["app"] = version
            actions.append({"txn": {"appId": "app", "version": version}})
        if draw(st.booleans()):
            removed = draw(st.booleans())
            model.domains["d"] = None if removed else str(version)
            actions.append(
                {"domainMetadata": {"domain": "d", "configuration": str(version), "removed": removed}}
            )
        actions.append({"unknownAction": {"x": [1]}})
        commits.append(draw(st.permutations(actions)))
        models.append(deepcopy(model))
    return commits, models


def lines(actions: list[dict[str, Any]]) -> bytes:
    return "".join(json.dumps(action) + "\n" for action in actions).encode()


def checkpoint_actions(model: Model, spelling: int = 0) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The non-file actions and the file actions of a checkpoint."""
    other: list[dict[str, Any]] = [PROTOCOL, METADATA]
    other += [{"txn": {"appId": app, "version": version}} for app, version in model.transactions.items()]
    other += [
        {"domainMetadata": {"domain": name, "configuration": value, "removed": False}}
        for name, value in model.domains.items()
        if value is not None
    ]
    files = [add_action(key, size, spelling) for key, size in model.live.items()]
    files += [remove_action(key, when, spelling) for key, when in model.tombstones.items()]
    return other, files


def parquet(actions: list[dict[str, Any]]) -> bytes:
    strings = pa.map_(pa.string(), pa.string())
    dv = pa.struct(
        [
            ("storageType", pa.string()),
            ("pathOrInlineDv", pa.string()),
            ("offset", pa.int32()),
            ("sizeInBytes", pa.int32()),
            ("cardinality", pa.int64()),
        ]
    )
    features = pa.list_(pa.string())
    protocol = pa.struct(
        [
            ("minReaderVersion", pa.int32()),
            ("minWriterVersion", pa.int32()),
            ("readerFeatures", features),
            ("writerFeatures", features),
        ]
    )
    schema = pa.schema(
        [
            ("protocol", protocol),
            (
                "metaData",
                pa.struct([("id", pa.string()), ("schemaString", pa.string()), ("configuration", strings)]),
            ),
            ("txn", pa.struct([("appId", pa.string()), ("version", pa.int64())])),
            (
                "domainMetadata",
                pa.struct([("domain", pa.string()), ("configuration", pa.string()), ("removed", pa.bool_())]),
            ),
            (
                "add",
                pa.struct(
                    [
                        ("path", pa.string()),
                        ("partitionValues", strings),
                        ("size", pa.int64()),
                        ("modificationTime", pa.int64()),
                        ("dataChange", pa.bool_()),
                        ("stats", pa.string()),
                        ("deletionVector", dv),
                    ]
                ),
            ),
            (
                "remove",
                pa.struct([("path", pa.string()), ("deletionTimestamp", pa.int64()), ("deletionVector", dv)]),
            ),
            ("sidecar", pa.struct([("path", pa.string()), ("sizeInBytes", pa.int64())])),
        ]
    )
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(actions, schema), sink, row_group_size=2)
    return bytes(sink.getvalue())


def write_checkpoint(storage: MemoryStorage, version: int, model: Model, form: str) -> None:
    other, files = checkpoint_actions(model)
    stem = f"_delta_log/{version:020d}.checkpoint"
    if form == "classic":
        storage.put(f"{stem}.parquet", parquet(files + other))
    elif form == "multi-part":
        for part in range(3):
            storage.put(f"{stem}.{part + 1:010d}.0000000003.parquet", parquet((other + files)[part::3]))
    else:
        top = [{"checkpointMetadata": {"version": version}}, *other]
        if "sidecars" in form:
            for number, half in enumerate((files[::2], files[1::2])):
                storage.put(f"_delta_log/_sidecars/s{number}.parquet", parquet(half))
                top.append({"sidecar": {"path": f"s{number}.parquet", "sizeInBytes": 1}})
        else:
            top += files
        if form.startswith("json"):
            storage.put(f"{stem}.abc-def.json", lines(top))
        else:
            storage.put(f"{stem}.abc-def.parquet", parquet([a for a in top if "checkpointMetadata" not in a]))


def compare(snapshot: Snapshot, model: Model) -> None:
    live = snapshot.files(["key", "deletion_vector", "size", "stats"]).to_pylist()
    found = {(row["key"], (row["deletion_vector"] or {}).get("cardinality", 0)): row["size"] for row in live}
    assert len(found) == len(live)
    assert found == model.live
    assert all(json.loads(row["stats"]) == {"numRecords": row["size"]} for row in live)
    gone = snapshot.tombstones(["key", "deletion_vector", "deletion_timestamp"]).to_pylist()
    dead = {
        (r["key"], (r["deletion_vector"] or {}).get("cardinality", 0)): r["deletion_timestamp"] for r in gone
    }
    assert len(dead) == len(gone)
    assert dead == model.tombstones
    assert snapshot.transactions == model.transactions
    assert snapshot.domain_metadata == {k: v for k, v in model.domains.items() if v is not None}
    assert snapshot.files(["key", "size"]).num_rows == len(model.live)
    assert sorted(snapshot.files(["path"]).column(0).to_pylist()) == sorted(
        path for path in snapshot.files(["key", "path"]).column(1).to_pylist()
    )
    assert snapshot.num_files == len(model.live)
    assert snapshot.size_bytes == sum(model.live.values())


FORMS = ["classic", "multi-part", "json", "json with sidecars", "parquet", "parquet with sidecars"]


@examples(80)
@given(history=histories(), data=st.data())
def test_replay_agrees_with_the_model_at_every_version(
    history: tuple[list[list[dict[str, Any]]], list[Model]], data: st.DataObject
) -> None:
    commits, models = history
    storage = MemoryStorage()
    for version, actions in enumerate(commits):
        storage.put(f"_delta_log/{version:020d}.json", lines(actions))
    at = data.draw(st.none() | st.integers(0, len(commits) - 1))
    if at is not None:
        write_checkpoint(storage, at, models[at], data.draw(st.sampled_from(FORMS)))
        hint = data.draw(st.sampled_from([None, b"", b"{", b'{"version": "x"}', at, at + 100]))
        if hint is not None:
            body = hint if isinstance(hint, bytes) else json.dumps({"version": hint, "size": -1}).encode()
            storage.put("_delta_log/_last_checkpoint", body)
        if data.draw(st.booleans()):  # what the checkpoint holds is no longer needed
            storage.delete([f"_delta_log/{version:020d}.json" for version in range(at)])
    cleaned = storage.head("_delta_log/00000000000000000000.json") is None
    for version in range(at if cleaned and at is not None else 0, len(commits)):
        compare(Snapshot(storage, find_log_segment(storage, version)), models[version])
    compare(Snapshot(storage, find_log_segment(storage)), models[-1])


@examples(60)
@given(history=histories(), data=st.data())
def test_a_snapshot_refreshed_commit_by_commit_agrees_with_the_model(
    history: tuple[list[list[dict[str, Any]]], list[Model]], data: st.DataObject
) -> None:
    commits, models = history
    storage = MemoryStorage()
    snapshot: Snapshot | None = None
    for version, actions in enumerate(commits):
        storage.put(f"_delta_log/{version:020d}.json", lines(actions))
        if snapshot is None:
            write_checkpoint(storage, version, models[version], data.draw(st.sampled_from(FORMS)))
            snapshot = Snapshot(storage, find_log_segment(storage))
        elif data.draw(st.booleans()):  # some refreshes find several commits
            snapshot = snapshot.refreshed()
            assert snapshot.version == version
            if data.draw(st.booleans()):  # before its files are known one by one
                counted = sum(bool(vector) for _, vector in models[version].live)
                assert snapshot.num_files == len(models[version].live)
                assert snapshot.size_bytes == sum(models[version].live.values())
                assert snapshot.num_deletion_vectors == counted
            added, removed = snapshot.changes_since(version - 1)
            touched = {name for action in actions for name in action if name in ("add", "remove")}
            assert bool(added.num_rows) == ("add" in touched)
            assert bool(removed.num_rows) == ("remove" in touched)
        if data.draw(st.booleans()) and snapshot.version == version:  # what was collected may be kept, or not
            compare(snapshot, models[version])
    assert snapshot is not None
    compare(snapshot.refreshed(), models[-1])
    assert snapshot.refreshed().refreshed().version == len(commits) - 1


def test_a_table_made_anew_is_not_mistaken_for_the_old_one() -> None:
    storage = MemoryStorage()
    for version in range(3):
        storage.put(
            f"_delta_log/{version:020d}.json", lines([PROTOCOL, METADATA, add_action(("a", 0), 1, 0)])
        )
    snapshot = Snapshot(storage, find_log_segment(storage))
    storage.delete([f"_delta_log/{version:020d}.json" for version in range(3)])
    storage.put(
        "_delta_log/00000000000000000000.json", lines([PROTOCOL, METADATA, add_action(("e", 0), 5, 0)])
    )
    assert snapshot.refreshed().files(["key"]).column(0).to_pylist() == ["e"]


@examples(40)
@given(history=histories(), data=st.data())
def test_a_compaction_in_place_of_commits_changes_nothing(
    history: tuple[list[list[dict[str, Any]]], list[Model]], data: st.DataObject
) -> None:
    commits, models = history
    storage = MemoryStorage()
    for version, actions in enumerate(commits):
        storage.put(f"_delta_log/{version:020d}.json", lines(actions))
    if len(commits) < 2:
        return
    first = data.draw(st.integers(0, len(commits) - 2))
    last = data.draw(st.integers(first + 1, len(commits) - 1))
    merged: dict[str, dict[str, Any]] = {}
    for actions in commits[first : last + 1]:
        for action in actions:
            (kind, body), *_ = action.items()
            name = body.get("path") or body.get("appId") or body.get("domain") or ""
            resolved = next((n for n, spellings in FILES.items() if name in spellings), name)
            dv = (body.get("deletionVector") or {}).get("pathOrInlineDv")
            merged[f"{'file' if kind in ('add', 'remove') else kind}/{resolved}/{dv}"] = action
    storage.put(f"_delta_log/{first:020d}.{last:020d}.compacted.json", lines(list(merged.values())))
    segment = find_log_segment(storage)
    assert len(segment.tail) == len(commits) - (last - first)
    compare(Snapshot(storage, segment), models[-1])
