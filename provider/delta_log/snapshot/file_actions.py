"""Rows of ``Snapshot.files`` as the actions that add or remove these files once more."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from delta_log.log.actions import Add, DeletionVector, Remove


def add_of(row: Mapping[str, Any], *, changes_rows: bool) -> Add:
    """Return the action that adds a file as it is, with its row ids.

    :param row: a row with all columns of ``Snapshot.files``.
    """
    return Add(
        path=row["path"],
        partitionValues=dict(row["partition_values"] or ()),
        size=row["size"],
        modificationTime=row["modification_time"],
        dataChange=changes_rows,
        stats=row["stats"],
        tags=dict(row["tags"]) if row["tags"] else None,
        deletionVector=_vector(row),
        baseRowId=row["base_row_id"],
        defaultRowCommitVersion=row["default_row_commit_version"],
        clusteringProvider=row["clustering_provider"],
    )


def remove_of(row: Mapping[str, Any], now_ms: int, *, changes_rows: bool) -> Remove:
    """Return the action that removes a file.

    :param row: a row with all columns of ``Snapshot.files``.
    """
    return Remove(
        path=row["path"],
        deletionTimestamp=now_ms,
        dataChange=changes_rows,
        extendedFileMetadata=True,
        partitionValues=dict(row["partition_values"] or ()),
        size=row["size"],
        tags=dict(row["tags"]) if row["tags"] else None,
        deletionVector=_vector(row),
        baseRowId=row["base_row_id"],
        defaultRowCommitVersion=row["default_row_commit_version"],
    )


def _vector(row: Mapping[str, Any]) -> DeletionVector | None:
    raw = row["deletion_vector"]
    return None if raw is None else DeletionVector.from_row(raw)
