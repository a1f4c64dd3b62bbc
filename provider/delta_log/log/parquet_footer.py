"""What a row group of a checkpoint holds, told by the counts of nulls in its Parquet footer.

A reader that wants a few actions, or a few members of an action, passes over row groups and columns that hold none. It
trusts the counts of a row group only where they add up to one action in each row (:func:`is_counted`): counts that are
wrong, and actions that this package does not know, must not hide an action.

Arrow ends the process when it reads statistics whose physical type is not that of the column, which a damaged footer
may have. Such a column has no statistics here.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    import pyarrow.parquet as pq

#: A member that is present wherever its action is, for each action.
_REQUIRED_LEAVES = frozenset(
    {
        "add.path",
        "remove.path",
        "metaData.id",
        "protocol.minReaderVersion",
        "txn.appId",
        "domainMetadata.domain",
        "checkpointMetadata.version",
        "sidecar.path",
    }
)


def is_counted(parquet: pq.ParquetFile, group: int) -> bool:
    """Whether the counts of nulls of a row group show one known action in each row."""
    meta, actions = parquet.metadata.row_group(group), 0
    for index in range(meta.num_columns):
        column = meta.column(index)
        if column.path_in_schema in _REQUIRED_LEAVES:
            nulls = _null_count(parquet, column, index)
            if nulls is None:
                return False
            actions += column.num_values - nulls
    return bool(actions == meta.num_rows)


def may_hold(parquet: pq.ParquetFile, group: int, actions: Container[str]) -> bool:
    """Whether a row group may hold one of these kinds of actions."""
    return any(path[0] in actions for path in _paths_with_values(parquet, group))


def members_with_values(parquet: pq.ParquetFile, groups: Iterable[int], action: str) -> set[str]:
    """The members of an action that some row groups may hold.

    Most tables leave several members unused, and decoding an unused column takes as long as any other.
    """
    found = {
        path[1]
        for group in groups
        for path in _paths_with_values(parquet, group)
        if path[0] == action and len(path) > 1
    }
    return {
        member.name
        for member in parquet.schema_arrow.field(action).type
        if member.name in found or member.name == "path" or not _shows_in_leaves(member.type)
    }


def count_values(parquet: pq.ParquetFile, group: int, names: Sequence[str]) -> int | None:
    """The number of values in all leaves of some columns, without nulls and repeated leaves.

    ``None``: the footer does not say. Every action has a leaf that is not repeated.
    """
    meta, total = parquet.metadata.row_group(group), 0
    for index in range(meta.num_columns):
        column = meta.column(index)
        if column.path_in_schema.split(".")[0] not in names:
            continue
        if parquet.schema.column(index).max_repetition_level:
            continue
        nulls = _null_count(parquet, column, index)
        if nulls is None:
            return None
        total += column.num_values - nulls
    return total


def count_values_of(array: pa.Array) -> int:
    """What :func:`count_values` gives, for a column that was read."""
    if array.null_count == len(array) or pa.types.is_map(array.type) or pa.types.is_list(array.type):
        return 0
    if pa.types.is_struct(array.type):
        return sum(map(count_values_of, array.flatten()))
    found: int = len(array) - array.null_count
    return found


def _paths_with_values(parquet: pq.ParquetFile, group: int) -> Iterator[list[str]]:
    """The leaves of a row group that may hold a value."""
    meta = parquet.metadata.row_group(group)
    for index in range(meta.num_columns):
        column = meta.column(index)
        nulls = _null_count(parquet, column, index)
        if nulls is None or nulls < column.num_values:
            yield column.path_in_schema.split(".")


def _null_count(parquet: pq.ParquetFile, column: Any, index: int) -> int | None:
    sound = column.physical_type == parquet.schema.column(index).physical_type
    stats = column.statistics if sound else None
    return stats.null_count if stats is not None and stats.has_null_count else None


def _shows_in_leaves(kind: pa.DataType) -> bool:
    """Whether a member without values in its leaves is null. An empty map is not null and has no leaves."""
    return (pa.types.is_struct(kind) and kind.names[:1] == ["storageType"]) or not pa.types.is_nested(kind)
