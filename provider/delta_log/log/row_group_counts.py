"""What a row group of a checkpoint holds, told by the counts of nulls in its Parquet footer.

A reader that wants a few actions, or a few members of an action, passes over row groups and columns that hold none. It
trusts the counts of a row group only where they add up to one action in each row (:func:`is_counted`): counts that are
wrong, and actions that this package does not know, must not hide an action.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from parquet_parts.footer import ColumnChunk, RowGroup

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


def is_counted(group: RowGroup) -> bool:
    """Whether the counts of nulls of a row group show one known action in each row."""
    actions = 0
    for chunk in group.chunks:
        if chunk.dotted_path in _REQUIRED_LEAVES:
            nulls = chunk.null_count
            if nulls is None:
                return False
            actions += chunk.num_values - nulls
    return actions == group.num_rows


def may_hold(group: RowGroup, actions: Container[str]) -> bool:
    """Whether a row group may hold one of these kinds of actions."""
    return any(path[0] in actions for path in _paths_with_values(group))


def members_with_values(groups: Iterable[RowGroup], action: pa.Field) -> set[str]:
    """The members of an action that some row groups may hold.

    Most tables leave several members unused, and decoding an unused column takes as long as any other.

    :param action: the column of the action.
    """
    found = {
        path[1]
        for group in groups
        for path in _paths_with_values(group)
        if path[0] == action.name and len(path) > 1
    }
    return {
        member.name
        for member in action.type
        if member.name in found or member.name == "path" or not _shows_in_leaves(member.type)
    }


def count_values(group: RowGroup, names: Sequence[str], schema: pq.ParquetSchema) -> int | None:
    """The number of values in all leaves of some columns, without nulls and repeated leaves.

    ``None``: the footer does not say. Every action has a leaf that is not repeated.

    :param schema: of the file.
    """
    total = 0
    for index, chunk in enumerate(group.chunks):
        if _path(chunk)[0] not in names or schema.column(index).max_repetition_level:
            continue
        nulls = chunk.null_count
        if nulls is None:
            return None
        total += chunk.num_values - nulls
    return total


def count_values_of(array: pa.Array) -> int:
    """What :func:`count_values` gives, for a column that was read."""
    if array.null_count == len(array) or pa.types.is_map(array.type) or pa.types.is_list(array.type):
        return 0
    if pa.types.is_struct(array.type):
        return sum(map(count_values_of, array.flatten()))
    found: int = len(array) - array.null_count
    return found


def _paths_with_values(group: RowGroup) -> Iterator[list[str]]:
    """The leaves of a row group that may hold a value."""
    return (_path(chunk) for chunk in group.chunks if not chunk.is_null)


def _path(chunk: ColumnChunk) -> list[str]:
    return chunk.dotted_path.split(".")


def _shows_in_leaves(kind: pa.DataType) -> bool:
    """Whether a member without values in its leaves is null. An empty map is not null and has no leaves."""
    return (pa.types.is_struct(kind) and kind.names[:1] == ["storageType"]) or not pa.types.is_nested(kind)
