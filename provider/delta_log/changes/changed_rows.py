"""Decides which rows of which files a commit has changed, from its actions alone.

Protocol sections "Change Data Files" and "Deletion Vectors". Rules, in this order:

1. A commit with ``cdc`` actions has changed what these files say, and nothing else.
2. Files with ``dataChange`` false hold rows that were only moved. An absent ``dataChange`` counts as true.
3. A MERGE that says that it changed no row has only moved rows, whatever it says of its files.
4. A file that the commit both removes and adds has another deletion vector: rows that only the new vector hides were deleted, rows
   that only the old vector hides were inserted again.
5. The rows of any other removed file were deleted, the rows of any other added file were inserted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from delta_log.log.actions import Action, Add, DeletionVector, Remove
from delta_log.log.data_path import address_of

CHANGE_TYPE = "_change_type"
INSERT, DELETE = "insert", "delete"
UPDATE_PREIMAGE, UPDATE_POSTIMAGE = "update_preimage", "update_postimage"
CHANGE_TYPES = (INSERT, DELETE, UPDATE_PREIMAGE, UPDATE_POSTIMAGE)

#: Members of a MERGE's ``operationMetrics`` that count changed rows. A commit without them says nothing of its rows.
_MERGE_METRICS = ("numTargetRowsInserted", "numTargetRowsUpdated", "numTargetRowsDeleted")


class ChangedRows(Struct, frozen=True):
    """Rows of one file that a commit has changed in one way.

    :param path: path as the log has it.
    :param key: key below the table's root, or the address of a file elsewhere.
    :param size_bytes: size of the file; ``None``: the log does not say.
    :param change_type: ``insert`` or ``delete``; ``None``: the file has a column :data:`CHANGE_TYPE`.
    :param partition_values: texts by physical name; ``None``: the log does not say.
    :param hidden: deletion vector whose rows are left out.
    :param chosen: deletion vector of the rows to read; ``None``: all rows that are not hidden.
    """

    path: str
    key: str
    size_bytes: int | None
    change_type: str | None
    partition_values: Mapping[str, str | None] | None
    hidden: DeletionVector | None = None
    chosen: DeletionVector | None = None


def changed_rows(actions: Sequence[Action], table_uri: str) -> list[ChangedRows]:
    """Return what a commit has changed: deleted rows before inserted rows, each in the order of the commit."""
    recorded = [action.cdc for action in actions if action.cdc is not None]
    if recorded:
        return [
            ChangedRows(file.path, address_of(file.path, table_uri), file.size, None, file.partitionValues)
            for file in recorded
        ]
    if any(action.commitInfo is not None and _changes_no_row(action.commitInfo) for action in actions):
        return []
    adds = _by_key([action.add for action in actions if action.add is not None], table_uri)
    removes = _by_key([action.remove for action in actions if action.remove is not None], table_uri)
    deleted, inserted = [], []
    for key, file in removes.items():
        deleted += _difference(DELETE, key, file, adds.get(key))
    for key, file in adds.items():
        inserted += _difference(INSERT, key, file, removes.get(key))
    return deleted + inserted


def _by_key(files: Sequence[Add | Remove], table_uri: str) -> dict[str, Add | Remove]:
    return {address_of(file.path, table_uri): file for file in files if file.dataChange is not False}


def _difference(
    change_type: str, key: str, file: Add | Remove, other: Add | Remove | None
) -> list[ChangedRows]:
    """Return the rows that are live in one state of a file and not in its other state.

    :param other: the other state; ``None``: the file is in the table in one of the two versions only.
    """
    chosen = None if other is None else other.deletionVector
    if other is not None and chosen is None:
        return []  # all rows are live in the other state
    rows = ChangedRows(
        file.path, key, file.size, change_type, file.partitionValues, file.deletionVector, chosen
    )
    return [rows]


def _changes_no_row(commit_info: Mapping[str, Any]) -> bool:
    metrics = commit_info.get("operationMetrics")
    if commit_info.get("operation") != "MERGE" or not isinstance(metrics, Mapping):
        return False
    return all(str(metrics.get(name)) == "0" for name in _MERGE_METRICS)
