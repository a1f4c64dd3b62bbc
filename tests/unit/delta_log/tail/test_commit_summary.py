from __future__ import annotations

import json
from typing import Any

import pytest

from delta_log.log.actions import decode_actions
from delta_log.tail.commit_summary import CommitSummary, summarise

VECTOR = {"storageType": "i", "pathOrInlineDv": "x", "sizeInBytes": 1}


def of(*actions: dict[str, Any], **more: Any) -> CommitSummary:
    body = "\n".join(map(json.dumps, actions)).encode()
    return summarise(7, decode_actions(body, "commit"), 42, **more)


def add(path: str = "a", rows: int | None = 10, hidden: int = 0, **more: Any) -> dict[str, Any]:
    return {"add": _file(path, rows, hidden, size=1, **more)}


def remove(path: str = "a", rows: int | None = None, hidden: int = 0, **more: Any) -> dict[str, Any]:
    return {"remove": _file(path, rows, hidden, **more)}


def _file(path: str, rows: int | None, hidden: int, **more: Any) -> dict[str, Any]:
    stats = {} if rows is None else {"stats": json.dumps({"numRecords": rows})}
    vector = {"deletionVector": {**VECTOR, "cardinality": hidden}} if hidden else {}
    return {"path": path, "dataChange": True, **stats, **vector, **more}


def info(**members: Any) -> dict[str, Any]:
    return {"commitInfo": members}


@pytest.mark.parametrize(
    ("actions", "added", "deleted"),
    [
        ([add("a"), add("b", 5, hidden=2)], 13, 0),
        ([remove("a", 10)], 0, 10),
        # Another deletion vector for the same file.
        ([remove("a", hidden=2), add("a", 10, hidden=5)], 0, 3),
        ([remove("a"), add("a", None, hidden=5)], 0, 5),
        # Unknown is not none.
        ([add("a", None)], None, 0),
        ([remove("a")], 0, None),
        ([add("a"), remove("b")], 10, None),
        # What its writer says counts where the files do not tell.
        ([info(operationMetrics={"numOutputRows": "12"}), add("a", None)], 12, 0),
        ([info(operationMetrics={"num_added_rows": 12}), add("a", None)], 12, 0),
        ([info(operationMetrics={"numDeletedRows": "4"}), remove("a")], 0, 4),
        ([info(operationMetrics={"numOutputRows": "many"}), add("a", None)], None, 0),
        ([add("a", stats="[1]")], None, 0),
        ([add("a", stats="{")], None, 0),
        # Maintenance.
        ([add("a", dataChange=False), remove("b", dataChange=False)], 0, 0),
    ],
)
def test_rows_are_counted_from_files_else_from_what_the_writer_says(
    actions: list[dict[str, Any]], added: int | None, deleted: int | None
) -> None:
    found = of(*actions)
    assert (found.num_added_rows, found.num_deleted_rows) == (added, deleted)
    assert found.num_rows == (None if added is None or deleted is None else added + deleted)


@pytest.mark.parametrize(
    ("actions", "changes"),
    [
        ([add()], True),
        ([add(dataChange=None)], True),
        ([add(dataChange=False), remove("b", dataChange=False)], False),
        ([add(dataChange=False), remove("b")], True),
        ([info(operation="SET TBLPROPERTIES")], False),
    ],
)
def test_a_commit_changes_data_if_one_of_its_files_says_so(
    actions: list[dict[str, Any]], changes: bool
) -> None:
    assert of(*actions).data_change is changes


def test_partitions_are_named_once_by_their_logical_names_and_the_empty_text_is_null() -> None:
    values = [{"col-1": "x", "n": "1"}, {"n": "1", "col-1": "x"}, {"col-1": "", "n": None}]
    found = of(
        *(add(str(n), partitionValues=v) for n, v in enumerate(values)), logical_names={"col-1": "day"}
    )
    assert found.partitions == ({"day": "x", "n": "1"}, {"day": None, "n": None})


@pytest.mark.parametrize(
    ("members", "timestamp"),
    [
        ({"inCommitTimestamp": 5, "timestamp": 6}, 5),
        ({"timestamp": 6}, 6),
        ({"timestamp": "soon"}, 42),
        ({}, 42),
    ],
)
def test_a_commit_has_the_time_that_it_says_else_its_files(members: dict[str, Any], timestamp: int) -> None:
    assert of(info(**members)).timestamp_ms == timestamp


def test_a_description_is_json_and_its_partitions_may_be_cut_off() -> None:
    commit = of(
        info(operation="WRITE", timestamp=1),
        {"txn": {"appId": "app", "version": 3}},
        *(add(str(n), partitionValues={"n": str(n)}) for n in range(5)),
    )
    described = json.loads(json.dumps(commit.to_dict(max_partitions=2)))
    assert described["transactions"] == {"app": 3}
    assert (described["numPartitions"], len(described["partitions"])) == (5, 2)
