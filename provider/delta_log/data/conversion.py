"""Columns of a data file as the table's schema has them.

Protocol sections "Column Mapping" and "Type Widening". A file may be older than the schema. The reader finds columns and
members of structs by name, physical name or field id, at every depth. It leaves out dropped ones, fills absent ones with nulls
and widens narrower types.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from delta_log.data.variant import assembled
from delta_log.errors import CorruptLog
from delta_log.table_config.schema import (
    PARQUET_FIELD_ID,
    VARIANT,
    ArrayType,
    DataType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
    arrow_field,
    is_variant,
    to_arrow_type,
)


class Conversion(Struct, frozen=True):
    """Finds and converts the columns of one file.

    :param key: the file, for errors.
    :param by_id: the table maps columns by field id.
    """

    key: str
    by_id: bool

    def find(self, there: Any, columns: Iterable[StructField]) -> list[pa.Field | None]:
        """Return the fields of a file's schema or struct type that hold some columns; ``None`` for one that is absent."""
        # The first field of a name or an id counts.
        fields = list(there)[::-1]
        exact, lower = {f.name: f for f in fields}, {f.name.lower(): f for f in fields}
        ids = {field_id_of(f): f for f in fields} if self.by_id else {}
        ids.pop(None, None)

        def find(column: StructField) -> pa.Field | None:
            # A file or struct without ids was written before the table had ids.
            if ids and column.field_id is not None:
                return ids.get(column.field_id)
            # Spark ignores the case of names, and some writers rely on that.
            return exact.get(column.physical_name) or lower.get(column.physical_name.lower())

        return [find(column) for column in columns]

    def convert(self, array: pa.Array, kind: DataType, physical: bool) -> pa.Array:
        """Convert an array of the file to the table's type.

        :raises CorruptLog: the file holds another sort of type.
        """
        if pa.types.is_dictionary(array.type):
            array = array.dictionary_decode()
        if pa.types.is_null(array.type):
            return nulls(len(array), to_arrow_type(kind, physical=physical))
        if not _fits(array.type, kind):
            raise CorruptLog(self.key, f"it holds {array.type} where the schema says {kind}")
        if isinstance(kind, PrimitiveType):
            if kind.name == "variant":
                return self._convert_variant(array)
            return convert_primitive(array, to_arrow_type(kind))
        if isinstance(kind, StructType):
            return self._convert_struct(array, kind, physical)
        if isinstance(kind, MapType):
            return self._convert_map(array, kind, physical)
        assert isinstance(kind, ArrayType)
        return self._convert_list(array, kind, physical)

    def _convert_variant(self, array: pa.StructArray) -> pa.Array:
        """Return the two parts of each variant; a shredded one is put together."""
        names = {member.name for member in array.type}
        if not names >= {"metadata", "value"} and not names >= {"metadata", "typed_value"}:
            raise CorruptLog(self.key, f"it holds {array.type} where the schema says variant")
        try:
            parts = [assembled(array)] if "typed_value" in names else [array.field("value")]
        except (ValueError, IndexError) as error:
            raise CorruptLog(self.key, f"a shredded variant cannot be put together: {error}") from error
        parts.append(array.field("metadata"))
        missing = pc.is_null(array)
        if any(pc.any(pc.and_not(pc.is_null(part), missing)).as_py() for part in parts):
            raise CorruptLog(self.key, "a variant lacks its value or its metadata")
        return _variants(parts, missing)

    def _convert_struct(self, array: pa.Array, kind: StructType, physical: bool) -> pa.Array:
        members = []
        for member, found in zip(kind, self.find(array.type, kind), strict=True):
            if found is None:
                members.append(nulls(len(array), arrow_field(member, physical=physical).type))
            else:
                child = array.field(array.type.get_field_index(found.name))
                members.append(self.convert(child, member.type, physical))
        fields = [arrow_field(member, physical=physical) for member in kind]
        if not fields:
            return pa.nulls(len(array), pa.struct([]))
        mask = pc.is_null(array) if array.null_count else None
        return pa.StructArray.from_arrays(members, fields=fields, mask=mask)

    def _convert_map(self, array: pa.Array, kind: MapType, physical: bool) -> pa.Array:
        keys = self.convert(array.keys, kind.key, physical)
        items = self.convert(array.items, kind.value, physical)
        target = pa.map_(
            pa.field("key", keys.type, False), pa.field("value", items.type, kind.value_contains_null)
        )
        entries = pa.StructArray.from_arrays([keys, items], fields=[target.key_field, target.item_field])
        return _same_lists(array, target, entries)

    def _convert_list(self, array: pa.Array, kind: ArrayType, physical: bool) -> pa.Array:
        if not pa.types.is_list(array.type):
            array = array.cast(pa.list_(array.type.value_field))
        values = self.convert(array.values, kind.element, physical)
        return _same_lists(array, pa.list_(pa.field("element", values.type, kind.contains_null)), values)


def nulls(count: int, kind: pa.DataType) -> pa.Array:
    """Return nulls of a type. The parts of a variant are not null in them: Arrow would not write these."""
    everywhere = pa.repeat(pa.scalar(True), count)
    if is_variant(kind):
        return _variants([pa.nulls(count, pa.binary())] * len(VARIANT), everywhere)
    if not (pa.types.is_struct(kind) and holds_variant(kind)):
        return pa.nulls(count, kind)
    return pa.StructArray.from_arrays(
        [nulls(count, member.type) for member in kind], fields=list(kind), mask=everywhere
    )


def holds_variant(kind: pa.DataType) -> bool:
    """Tell whether a type is a variant, or has one within it."""
    if is_variant(kind):
        return True
    return any(holds_variant(kind.field(number).type) for number in range(kind.num_fields))


def _variants(parts: Sequence[pa.Array], missing: pa.BooleanArray) -> pa.StructArray:
    """Make variants of their parts, which are empty where the variant is null."""
    filled = [pc.if_else(missing, b"", part) for part in parts]
    return pa.StructArray.from_arrays(filled, fields=list(VARIANT), mask=missing)


def convert_primitive(array: pa.Array, target: pa.DataType) -> pa.Array:
    """Widen a primitive array or change its unit; nanoseconds are rounded down to microseconds."""
    if array.type == target:
        return array
    if pa.types.is_timestamp(array.type) and pa.types.is_timestamp(target) and target.unit == "us":
        if array.type.unit == "ns":
            array = pc.floor_temporal(array, unit="microsecond")
        return array.cast(pa.timestamp("us", tz=array.type.tz)).cast(target)
    return array.cast(target)


def _fits(there: pa.DataType, kind: DataType) -> bool:
    """Tell whether a type of a file is of the sort that the table's type needs. Widening does the rest."""
    if isinstance(kind, MapType):
        return bool(pa.types.is_map(there))
    if isinstance(kind, StructType) or kind == PrimitiveType("variant"):
        return bool(pa.types.is_struct(there))
    if isinstance(kind, ArrayType):
        lists = (
            pa.types.is_list,
            pa.types.is_large_list,
            pa.types.is_fixed_size_list,
            pa.types.is_list_view,
            pa.types.is_large_list_view,
        )
        return any(is_list(there) for is_list in lists)
    return not pa.types.is_nested(there)


def _same_lists(array: pa.Array, target: pa.DataType, values: pa.Array) -> pa.Array:
    """Make an array with the lists (or maps) of another array over new values."""
    validity, offsets = array.buffers()[:2]
    return pa.Array.from_buffers(
        target,
        len(array),
        [validity, offsets],
        null_count=array.null_count,
        offset=array.offset,
        children=[values],
    )


def field_id_of(field: pa.Field) -> int | None:
    """Return a Parquet field's id; ``None`` if it has none."""
    value = (field.metadata or {}).get(PARQUET_FIELD_ID)
    return None if value is None else int(value)
