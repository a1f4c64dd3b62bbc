"""File actions (``add`` and ``remove``) as Arrow columns: their names, their types, and how batches are brought to them.

Protocol sections "Add File and Remove File" and "Checkpoint Schema". Two sources give batches in these columns: a
checkpoint's Parquet files (:func:`canonical_batch`), whose writers differ in types and leave members out, and decoded
actions (:func:`action_batch`). Columns are named in snake case; ``path`` is verbatim, times are in ms since the epoch
and sizes in bytes. Numbers of an ``add`` that are out of range are refused.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import cache
from operator import attrgetter
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from delta_log.arrow.arrays import arrow_array
from delta_log.log.actions import MAX_ROW_ID, Add, Remove
from delta_log.log.struct_stats import stats_of_struct

STRING_MAP = pa.map_(pa.string(), pa.string())
DELETION_VECTOR = pa.struct(
    [
        ("storageType", pa.string()),
        ("pathOrInlineDv", pa.string()),
        ("offset", pa.int32()),
        ("sizeInBytes", pa.int32()),
        ("cardinality", pa.int64()),
        ("maxRowIndex", pa.int64()),
    ]
)

#: Our column, the protocol's member, its type.
_ADD_MEMBERS = (
    ("path", "path", pa.string()),
    ("partition_values", "partitionValues", STRING_MAP),
    ("size", "size", pa.int64()),
    ("modification_time", "modificationTime", pa.int64()),
    ("stats", "stats", pa.string()),
    ("tags", "tags", STRING_MAP),
    ("deletion_vector", "deletionVector", DELETION_VECTOR),
    ("base_row_id", "baseRowId", pa.int64()),
    ("default_row_commit_version", "defaultRowCommitVersion", pa.int64()),
    ("clustering_provider", "clusteringProvider", pa.string()),
)
_REMOVE_MEMBERS = (
    ("path", "path", pa.string()),
    ("deletion_timestamp", "deletionTimestamp", pa.int64()),
    ("data_change", "dataChange", pa.bool_()),
    ("extended_file_metadata", "extendedFileMetadata", pa.bool_()),
    ("partition_values", "partitionValues", STRING_MAP),
    ("size", "size", pa.int64()),
    ("tags", "tags", STRING_MAP),
    ("deletion_vector", "deletionVector", DELETION_VECTOR),
    ("base_row_id", "baseRowId", pa.int64()),
    ("default_row_commit_version", "defaultRowCommitVersion", pa.int64()),
)

ADD_SCHEMA = pa.schema([(name, kind) for name, _, kind in _ADD_MEMBERS])
REMOVE_SCHEMA = pa.schema([(name, kind) for name, _, kind in _REMOVE_MEMBERS])
_MEMBERS = {
    "add": {name: (member, kind) for name, member, kind in _ADD_MEMBERS},
    "remove": {name: (member, kind) for name, member, kind in _REMOVE_MEMBERS},
}
#: The lowest and the highest value of each number of an ``add``; :mod:`delta_log.log.actions` has the bounds for JSON actions.
_BOUNDS: dict[str, tuple[int, int]] = {
    "size": (0, (1 << 63) - 1),
    "base_row_id": (0, MAX_ROW_ID),
    "cardinality": (0, (1 << 63) - 1),
    "sizeInBytes": (0, (1 << 31) - 1),
    "offset": (0, (1 << 31) - 1),
}
#: The longest column of nulls that is shared.
_SHARED_NULLS = 1 << 17


def member_of(action: str, column: str) -> str:
    """The protocol's name of one of our columns."""
    return _MEMBERS[action][column][0]


def schema_of(action: str, columns: Sequence[str]) -> pa.Schema:
    return pa.schema([(name, _MEMBERS[action][name][1]) for name in columns])


def canonical_batch(
    actions: pa.StructArray, action: str, columns: Sequence[str], members: Collection[str]
) -> pa.RecordBatch:
    """Rows of a checkpoint as a batch; rows that hold another kind of action are dropped.

    :param actions: the column ``add`` or ``remove`` of the checkpoint.
    :param members: the members of ``actions`` that were read and may hold values.
    :raises ValueError: a number is out of range.
    """
    path = pc.struct_field(actions, "path")
    if path.null_count:
        actions = actions.filter(pc.is_valid(path))
    arrays = []
    for name in columns:
        member, kind = _MEMBERS[action][name]
        if member in members:
            array = _cast_member(pc.struct_field(actions, member), kind, f"{action}.{member}")
            if array.null_count == len(array):
                array = shared_nulls(len(array), kind)
        else:
            array = shared_nulls(len(actions), kind)
        if action == "add":
            _check_numbers(name, array)
        if member == "stats" and "stats_parsed" in members and array.null_count:
            array = pc.coalesce(array, stats_of_struct(pc.struct_field(actions, "stats_parsed")))
        arrays.append(array)
    return pa.record_batch(arrays, schema=schema_of(action, columns))


def action_batch(
    action: str, items: Sequence[Add] | Sequence[Remove], columns: Sequence[str]
) -> pa.RecordBatch:
    """Decoded actions as a batch."""
    arrays = []
    for name in columns:
        member, kind = _MEMBERS[action][name]
        values = list(map(attrgetter(member), items))
        if kind == STRING_MAP:
            arrays.append(_map_array(values))
        elif kind == DELETION_VECTOR:
            vectors = [None if vector is None else msgspec.structs.asdict(vector) for vector in values]
            arrays.append(pa.array(vectors, kind))
        else:
            arrays.append(pa.array(values, kind))
    return pa.record_batch(arrays, schema=schema_of(action, columns))


def shared_nulls(count: int, kind: pa.DataType) -> pa.Array:
    """A column of nulls that shares its memory with others: a table leaves many columns unused, and they are long."""
    return _nulls(kind).slice(0, count) if count <= _SHARED_NULLS else pa.nulls(count, kind)


@cache
def _nulls(kind: pa.DataType) -> pa.Array:
    return pa.nulls(_SHARED_NULLS, kind)


def _cast_member(array: pa.Array, kind: pa.DataType, name: str) -> pa.Array:
    """
    :raises pyarrow.ArrowInvalid: a value does not fit its column. The message names the column.
    """
    try:
        found = _cast(array, kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise pa.ArrowInvalid(f"{name} ({array.type}): {error}") from error
    if kind == DELETION_VECTOR and found.null_count < len(found):
        # Some writers have empty members where there is no vector.
        storage_type = pc.struct_field(found, "storageType")
        found = pc.if_else(pc.equal(storage_type, ""), pa.scalar(None, kind), found)
    return found


def _cast(array: pa.Array, kind: pa.DataType) -> pa.Array:
    if array.type == kind:
        return array
    if pa.types.is_struct(kind):
        names = {f.name for f in array.type}
        members = [
            _cast(pc.struct_field(array, f.name), f.type) if f.name in names else pa.nulls(len(array), f.type)
            for f in kind
        ]
        return pa.StructArray.from_arrays(members, fields=list(kind), mask=pc.is_null(members[0]))
    return array.cast(kind)


def _check_numbers(name: str, array: pa.Array) -> None:
    """:raises ValueError: a number of the column is out of range."""
    if name == "deletion_vector" and array.null_count < len(array):
        for member in ("cardinality", "sizeInBytes", "offset"):
            _check_numbers(member, pc.struct_field(array, member))
    if name in _BOUNDS:
        found, (lowest, highest) = pc.min_max(array).as_py(), _BOUNDS[name]
        wrong = [v for v in found.values() if v is not None and not lowest <= v <= highest]
        if wrong:
            raise ValueError(f"the {name} of a file is {wrong[0]}")


def _map_array(maps: Sequence[dict[str, Any] | None]) -> pa.MapArray:
    """Dictionaries as a column of maps. Values that are not text (some writers put numbers into tags) become text."""
    if not any(maps):
        return pa.array([None if entries is None else [] for entries in maps], STRING_MAP)
    keys = [key for entries in maps if entries for key in entries]
    values = [value for entries in maps if entries for value in entries.values()]
    texts = [value if value is None or isinstance(value, str) else str(value) for value in values]
    ends = np.cumsum([0, *(len(entries) if entries else 0 for entries in maps)], dtype=np.int32)
    missing = np.array([entries is None for entries in maps])
    nulls = arrow_array(missing) if missing.any() else None
    return pa.MapArray.from_arrays(
        arrow_array(ends), pa.array(keys, pa.string()), pa.array(texts, pa.string()), mask=nulls
    )
