"""Finds the data files that still hold columns that the table has dropped.

``DROP COLUMN`` changes only the schema: the values stay in the files until a REORG PURGE rewrites them. The log does not tell
which files hold them, so the footer of each file is read, and nothing else of it.

Columns are matched as :class:`delta_log.data.data_file.DataFile` finds them, at every depth of structs, lists and maps.
Partition columns, columns of row tracking and the mark of the change feed do not count: files may hold them beside the schema's
columns, and a purge that counted them would never end.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from delta_log.arrow.prefetch import map_ordered
from delta_log.data.conversion import field_id_of
from delta_log.data.data_file import DataFile
from delta_log.errors import TableError
from delta_log.snapshot.snapshot import Snapshot
from delta_log.storage.storage import Storage
from delta_log.table_config.schema import ArrayType, DataType, MapType, StructType

#: Properties that name the columns in which row ids and commit versions are materialised.
_ROW_TRACKING = (
    "delta.rowTracking.materializedRowIdColumnName",
    "delta.rowTracking.materializedRowCommitVersionColumnName",
)
_CHANGE_TYPE = "_change_type"


def files_with_dropped_columns(storage: Storage, snapshot: Snapshot, keys: Sequence[str]) -> Iterator[str]:
    """Yield the files that hold more than the schema and the tolerated columns.

    An unreadable file is among them, so that the rewriter reads it and reports what is wrong with it.
    """
    tolerated = tolerated_columns(snapshot)
    by_id = snapshot.mapping_mode == "id"

    def holds_more(key: str) -> bool:
        try:
            there = DataFile(storage, key, snapshot.mapping_mode).arrow_schema
        except TableError:
            return True
        return has_dropped_columns(there, snapshot.schema, tolerated, by_id=by_id)

    found = map_ordered(holds_more, keys, min(storage.concurrency, len(keys)))
    yield from (key for key, more in zip(keys, found, strict=True) if more)


def tolerated_columns(snapshot: Snapshot) -> frozenset[str]:
    """Return the columns that data files may hold beside the columns of the schema."""
    partition = [name for column in snapshot.partition_schema for name in (column.name, column.physical_name)]
    row_tracking = [snapshot.properties[name] for name in _ROW_TRACKING if name in snapshot.properties]
    return frozenset([*partition, *row_tracking, _CHANGE_TYPE])


def has_dropped_columns(
    there: pa.Schema, schema: StructType, tolerated: frozenset[str], *, by_id: bool
) -> bool:
    """Tell whether a file holds a column, at any depth, that the schema does not have.

    :param tolerated: top-level names that do not count.
    :param by_id: ``True``: match columns by their field ids, where the file has any.
    """
    fields = [field for field in there if field.name not in tolerated]
    return _any_unknown(fields, schema, by_id)


def _any_unknown(fields: Sequence[pa.Field], struct: StructType, by_id: bool) -> bool:
    ids = [field_id_of(field) for field in fields]
    members = tuple(struct)
    if by_id and any(number is not None for number in ids):
        by_number = {member.field_id: member for member in members}
        pairs = [
            (field, None if number is None else by_number.get(number))
            for field, number in zip(fields, ids, strict=True)
        ]
    else:
        by_name = {member.physical_name.lower(): member for member in members}
        pairs = [(field, by_name.get(field.name.lower())) for field in fields]
    return any(member is None or _unknown_inside(field.type, member.type, by_id) for field, member in pairs)


def _unknown_inside(there: pa.DataType, kind: DataType, by_id: bool) -> bool:
    # A type that contradicts the schema makes the file a broken one, which the rewriter reports.
    if isinstance(kind, StructType):
        return bool(pa.types.is_struct(there)) and _any_unknown(list(there), kind, by_id)
    if isinstance(kind, MapType):
        return bool(pa.types.is_map(there)) and (
            _unknown_inside(there.key_type, kind.key, by_id)
            or _unknown_inside(there.item_type, kind.value, by_id)
        )
    if isinstance(kind, ArrayType):
        is_list = pa.types.is_list(there) or pa.types.is_large_list(there)
        return bool(is_list) and _unknown_inside(there.value_type, kind.element, by_id)
    return False
