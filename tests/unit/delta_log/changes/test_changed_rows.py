from __future__ import annotations

from typing import Any

import pytest

from delta_log.changes.changed_rows import DELETE, INSERT, ChangedRows, changed_rows
from delta_log.log.actions import Action, Add, Cdc, DeletionVector, Remove

_FEW = DeletionVector("i", "few", 4, 1)
_MORE = DeletionVector("i", "more", 4, 2)


def _add(path: str = "a", vector: DeletionVector | None = None, *, data_change: bool | None = True) -> Action:
    return Action(add=Add(path, 1, dataChange=data_change, partitionValues={}, deletionVector=vector))


def _remove(
    path: str = "a", vector: DeletionVector | None = None, *, data_change: bool | None = True
) -> Action:
    return Action(remove=Remove(path, dataChange=data_change, partitionValues={}, deletionVector=vector))


def _rows(*actions: Action) -> list[ChangedRows]:
    return changed_rows(actions, "/table")


def _facts(*actions: Action) -> list[tuple[Any, ...]]:
    return [(rows.change_type, rows.path, rows.hidden, rows.chosen) for rows in _rows(*actions)]


def test_rows_of_an_added_file_were_inserted_and_rows_of_a_removed_file_were_deleted_before() -> None:
    assert _facts(_add("new", _FEW), _remove("old", _MORE)) == [
        (DELETE, "old", _MORE, None),
        (INSERT, "new", _FEW, None),
    ]


@pytest.mark.parametrize(
    ("before", "after", "found"),
    [
        (None, _FEW, [(DELETE, "a", None, _FEW)]),
        (_FEW, None, [(INSERT, "a", None, _FEW)]),
        # A vector may hide other rows than the vector before it, as after a RESTORE.
        (_FEW, _MORE, [(DELETE, "a", _FEW, _MORE), (INSERT, "a", _MORE, _FEW)]),
    ],
)
def test_two_vectors_of_one_file_are_compared(
    before: DeletionVector | None, after: DeletionVector | None, found: list[Any]
) -> None:
    assert _facts(_remove(vector=before), _add(vector=after)) == found
    assert _facts(_add(vector=after), _remove(vector=before)) == found


def test_two_spellings_of_a_path_are_one_file() -> None:
    assert _facts(_remove("a%2Db"), _add("a-b", _FEW)) == [(DELETE, "a%2Db", None, _FEW)]


def test_rows_that_were_moved_have_not_changed() -> None:
    assert _rows(_remove("old", data_change=False), _add("new", data_change=False)) == []


def test_an_absent_data_change_counts_as_true() -> None:
    assert _facts(_add("new", data_change=None)) == [(INSERT, "new", None, None)]


def test_change_data_files_say_all() -> None:
    cdc = Action(cdc=Cdc("_change_data/c", 5, {"day": "1"}))
    assert _rows(_remove("old"), _add("new"), cdc) == [
        ChangedRows("_change_data/c", "_change_data/c", 5, None, {"day": "1"})
    ]


def test_a_merge_that_changed_no_row_has_only_moved_rows() -> None:
    metrics = {
        "numTargetRowsInserted": "0",
        "numTargetRowsUpdated": "0",
        "numTargetRowsDeleted": "0",
        "numTargetRowsCopied": "5",
    }
    info = Action(commitInfo={"operation": "MERGE", "operationMetrics": metrics})
    assert _rows(info, _remove("old"), _add("new")) == []
    told = Action(
        commitInfo={"operation": "MERGE", "operationMetrics": {**metrics, "numTargetRowsDeleted": "1"}}
    )
    assert len(_rows(told, _remove("old"), _add("new"))) == 2
