"""The structs of a Parquet footer, fully decoded, for tests that look at them or change them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

from parquet_parts.footer import END_BYTES, footer_start
from parquet_parts.page_index import (
    BOUNDS,
    COLUMN_INDEX,
    COLUMN_INDEX_LENGTH,
    COLUMNS,
    META_DATA,
    NULL_COUNT,
    NUM_ROWS,
    OFFSET_INDEX,
    OFFSET_INDEX_LENGTH,
    OLD_BOUNDS,
    PHYSICAL_TYPE,
    ROW_GROUPS,
    STATISTICS,
    ColumnIndex,
    offset_index,
)
from parquet_parts.thrift import CorruptThrift
from tests.support.checks.thrift_struct import ThriftList, ThriftStruct

__all__ = [
    "BOUNDS",
    "COLUMNS",
    "COLUMN_INDEX",
    "COLUMN_INDEX_LENGTH",
    "META_DATA",
    "NULL_COUNT",
    "OFFSET_INDEX",
    "OFFSET_INDEX_LENGTH",
    "OLD_BOUNDS",
    "PHYSICAL_TYPE",
    "ROW_GROUPS",
    "STATISTICS",
    "ColumnIndex",
    "offset_index",
]

_T = TypeVar("_T")


def split_footer(tail: bytes) -> tuple[bytes, ThriftStruct]:
    """Split the last bytes of a file into what precedes the footer, and the footer (``FileMetaData``).

    :raises CorruptThrift: the bytes do not end with a plain footer, or it begins before them.
    """
    start = footer_start(tail)
    return tail[:start], ThriftStruct.from_bytes(tail[start:-END_BYTES])


def column_chunks(footer: ThriftStruct) -> Iterator[tuple[int, int, ThriftStruct]]:
    """Yield every column chunk with the numbers of its row group and of its leaf.

    :raises CorruptThrift: the footer is malformed.
    """
    for number, group in enumerate(_structs(footer, ROW_GROUPS)):
        for leaf, chunk in enumerate(_structs(group, COLUMNS)):
            yield number, leaf, chunk


def num_rows(footer: ThriftStruct, group: int) -> int:
    """Return the number of rows of a row group."""
    return number_of(_structs(footer, ROW_GROUPS)[group], NUM_ROWS)


def chunk_meta(chunk: ThriftStruct) -> ThriftStruct:
    """Return the ``ColumnMetaData`` of a column chunk.

    :raises CorruptThrift: the chunk has none.
    """
    return _struct(chunk, META_DATA)


def statistics(meta: ThriftStruct) -> ThriftStruct | None:
    """Return the ``Statistics`` of a column chunk's metadata, or ``None`` if there are none."""
    return _struct(meta, STATISTICS) if STATISTICS in meta.fields else None


def page_index_start(footer: ThriftStruct, end: int) -> int:
    """Return the offset at which the page index begins, or ``end`` if the file has none."""
    places = [
        number_of(chunk, place)
        for _, _, chunk in column_chunks(footer)
        for place in (OFFSET_INDEX, COLUMN_INDEX)
        if place in chunk.fields
    ]
    return min([end, *places])


def number_of(struct: ThriftStruct, field: int) -> int:
    """Return the value of an integer field.

    :raises CorruptThrift: the field is absent or holds something else.
    """
    value = struct.get(field)
    if not isinstance(value, int):
        raise CorruptThrift(0, f"field {field} holds no number")
    return value


def _struct(struct: ThriftStruct, field: int) -> ThriftStruct:
    value = struct.get(field)
    if not isinstance(value, ThriftStruct):
        raise CorruptThrift(0, f"field {field} holds no struct")
    return value


def _structs(struct: ThriftStruct, field: int) -> tuple[ThriftStruct, ...]:
    return _items(struct, field, ThriftStruct)


def _items(struct: ThriftStruct, field: int, kind: type[_T]) -> tuple[_T, ...]:
    value = struct.get(field)
    if not isinstance(value, ThriftList) or not all(isinstance(item, kind) for item in value.items):
        raise CorruptThrift(0, f"field {field} holds no list of {kind.__name__}")
    return value.items
