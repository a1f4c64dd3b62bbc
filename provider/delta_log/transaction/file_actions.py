"""The ``add`` and ``remove`` actions of files that a snapshot knows, for commits that add or remove them again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from delta_log.log.actions import Add, DeletionVector, Remove

#: Columns of a snapshot's files that the actions need.
ROW_COLUMNS = (
    "path",
    "partition_values",
    "size",
    "modification_time",
    "stats",
    "tags",
    "deletion_vector",
    "base_row_id",
    "default_row_commit_version",
    "clustering_provider",
)


def add_of_row(row: Mapping[str, Any], *, data_change: bool) -> Add:
    """Make the ``add`` of a file, with its row ids.

    :param row: row of a snapshot's files with :data:`ROW_COLUMNS`.
    :param data_change: whether the commit changes rows.
    """
    return Add(
        path=row["path"],
        partitionValues=dict(row["partition_values"] or ()),
        size=row["size"],
        modificationTime=row["modification_time"],
        dataChange=data_change,
        stats=row["stats"],
        tags=dict(row["tags"]) if row["tags"] else None,
        deletionVector=_vector(row),
        baseRowId=row["base_row_id"],
        defaultRowCommitVersion=row["default_row_commit_version"],
        clusteringProvider=row["clustering_provider"],
    )


def remove_of_row(row: Mapping[str, Any], now_ms: int) -> Remove:
    """Make the ``remove`` of a file whose rows leave the table.

    :param row: row of a snapshot's files with :data:`ROW_COLUMNS`.
    """
    return Remove(
        path=row["path"],
        deletionTimestamp=now_ms,
        dataChange=True,
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
