"""Whether files of an earlier version can be read by a later version's schema.

Protocol sections "Column Mapping" and "Type Widening". Columns are the same by their physical name. A column that only one of the
two versions has does not matter: its values are left out, or null. A type may become wider.
"""

from __future__ import annotations

from collections.abc import Iterator

from delta_log.table_config.schema import (
    ArrayType,
    DataType,
    MapType,
    PrimitiveType,
    StructType,
    is_widening,
    to_arrow_type,
)


def incompatible_columns(old: StructType, new: StructType) -> list[str]:
    """Return the columns of a later schema, by logical name, that rows of an earlier version cannot be shown in."""
    return [name for name, readable in _columns(old, new) if not readable]


def _columns(old: StructType, new: StructType) -> Iterator[tuple[str, bool]]:
    before = {column.physical_name.lower(): column for column in old}
    for column in new:
        earlier = before.get(column.physical_name.lower())
        if earlier is not None:
            yield column.name, _is_readable_as(earlier.type, column.type)


def _is_readable_as(old: DataType, new: DataType) -> bool:
    if isinstance(old, StructType) and isinstance(new, StructType):
        return not incompatible_columns(old, new)
    if isinstance(old, ArrayType) and isinstance(new, ArrayType):
        return _is_readable_as(old.element, new.element)
    if isinstance(old, MapType) and isinstance(new, MapType):
        return _is_readable_as(old.key, new.key) and _is_readable_as(old.value, new.value)
    if isinstance(old, PrimitiveType) and isinstance(new, PrimitiveType):
        return (
            old.name == "void"
            or to_arrow_type(old) == to_arrow_type(new)  # text of a bounded length is text
            or is_widening(old.name, new.name)
        )
    return False
