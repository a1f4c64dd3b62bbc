"""Many actions of a log's tail as columns: what few are as objects."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pyarrow as pa
import pytest

from delta_log.log import action_columns
from delta_log.log.action_columns import ActionColumns, deletion_vector_ids
from delta_log.log.actions import Add, DeletionVector, Remove
from delta_log.log.file_columns import action_batch
from delta_log.log.file_names import commit_key
from delta_log.log.log_segment import find_log_segment
from delta_log.snapshot.snapshot import Snapshot
from delta_log.testing import MemoryStorage

METADATA = {"id": "t", "schemaString": json.dumps({"type": "struct", "fields": []}), "partitionColumns": []}
FIRST: list[dict[str, object]] = [{"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["deletionVectors"],
                       "writerFeatures": ["deletionVectors"]}}, {"metaData": METADATA}]  # fmt: skip
VECTOR = {
    "storageType": "u",
    "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^",
    "offset": 4,
    "sizeInBytes": 9,
    "cardinality": 1,
}


def add(path: str, **more: object) -> dict[str, object]:
    file = {"path": path, "size": 7, "modificationTime": 5, "dataChange": True, "partitionValues": {"p": "1"}}
    return {"add": {**file, **more}}


def remove(path: str, **more: object) -> dict[str, object]:
    return {"remove": {"path": path, "deletionTimestamp": 9, "dataChange": True, **more}}


def commit(storage: MemoryStorage, version: int, actions: Sequence[dict[str, object]]) -> None:
    body = "".join(json.dumps(action) + "\n" for action in actions)
    storage.objects[commit_key(version)] = (body.encode(), 1)


def rows_of(snapshot: Snapshot) -> tuple[list[dict[str, object]], list[dict[str, object]]]:
    return snapshot.files().to_pylist(), snapshot.tombstones().to_pylist()


@pytest.mark.parametrize(("opening", "refreshing"), [(-1, -1), (-1, 1000), (1000, -1)])
def test_a_snapshot_is_the_same_whether_its_tail_is_columns_or_objects(
    opening: int, refreshing: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = MemoryStorage("memory://table")
    commit(
        storage,
        0,
        [*FIRST, *(add(f"p=1/f%20{number}") for number in range(6)), add("plain", tags={"a": "b"})],
    )
    commit(storage, 1, [remove("p=1/f%200"), remove("plain", deletionVector=None, size=7)])
    commit(storage, 2, [remove("p=1/f%201"), add("p=1/f%201", deletionVector=VECTOR)])
    monkeypatch.setattr(action_columns, "MANY_ACTIONS", opening)
    snapshot = Snapshot(storage, find_log_segment(storage))
    commit(storage, 3, [remove("p=1/f%201", deletionVector=VECTOR), remove("p=1/f%202"), add("p=1/f%200")])
    monkeypatch.setattr(action_columns, "MANY_ACTIONS", refreshing)
    refreshed = snapshot.refreshed()
    monkeypatch.setattr(action_columns, "MANY_ACTIONS", 1000)
    assert rows_of(refreshed) == rows_of(Snapshot(storage, find_log_segment(storage)))
    assert refreshed.num_files == 4
    assert [row["key"] for row in refreshed.tombstones(["key"]).to_pylist()][:2] == ["p=1/f 1", "p=1/f 2"]


def test_a_single_action_is_what_it_was() -> None:
    vector = DeletionVector("u", "x", 1, 2, offset=3)
    adds = {"a": Add("a", 1, 2, None, {"p": None}, "{}", {"t": "1"}, vector, 4, 5, "c"), "b": Add("b", 1)}
    removes = {"r": Remove("r", 3, True, False, {}, 6, None, None, vector)}
    identities = ["a\x00ux@3", "b\x00"]
    given = dict(zip(identities, adds.values(), strict=True))
    columns = ActionColumns.emptying("add", given)
    assert not given
    assert [*columns] == identities
    assert dict(columns) == dict(zip(identities, adds.values(), strict=True))
    assert "a\x00" not in columns
    of_removes = ActionColumns.emptying("remove", {"r\x00ux@3": removes["r"]})
    assert [*of_removes.values()] == [removes["r"]]


def test_the_ids_of_a_column_are_those_of_its_vectors() -> None:
    vectors = [DeletionVector("u", "ab", 1, 2, offset) for offset in (None, 0, 7)] + [None]
    column = action_batch(
        "add", [Add("f", 1, deletionVector=vector) for vector in vectors], ["deletion_vector"]
    )[0]
    expected = ["" if vector is None else vector.unique_id for vector in vectors]
    assert expected == ["uab", "uab@0", "uab@7", ""]
    assert deletion_vector_ids(column).to_pylist() == expected
    wide = deletion_vector_ids(pa.chunked_array([column]), pa.large_string())
    assert (wide.type, wide.to_pylist()) == (pa.large_string(), expected)
