"""Reads the parts of a Parquet footer and page index that tell a reader which rows it may skip.

Both are structs of Thrift's compact protocol (:mod:`parquet_parts.thrift_compact`). The numbers of their fields are those
of ``parquet.thrift``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

from msgspec import Struct

from parquet_parts.footer import END_BYTES, footer_start
from parquet_parts.thrift_compact import CorruptThrift, ThriftList, ThriftStruct

_T = TypeVar("_T")

# Fields in FileMetaData, RowGroup, ColumnChunk and ColumnMetaData, one line for each.
ROW_GROUPS = 4
COLUMNS, NUM_ROWS = 1, 3
META_DATA, OFFSET_INDEX, OFFSET_INDEX_LENGTH, COLUMN_INDEX, COLUMN_INDEX_LENGTH = 3, 4, 5, 6, 7
PHYSICAL_TYPE, NUM_VALUES, STATISTICS = 1, 5, 12
#: Fields in Statistics: lower and upper bound in the present and in the deprecated form.
BOUNDS, OLD_BOUNDS = (6, 5), (2, 1)
NULL_COUNT = 3


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


class ColumnIndex(Struct, frozen=True):
    """The bounds of each page of a column chunk. The bounds of a page of nulls have no meaning.

    :param boundary_order: 0 none, 1 ascending, 2 descending.
    :param null_counts: ``None``: the index has none.
    """

    null_pages: tuple[bool, ...]
    min_values: tuple[bytes, ...]
    max_values: tuple[bytes, ...]
    boundary_order: int
    null_counts: tuple[int, ...] | None

    @classmethod
    def from_bytes(cls, data: bytes) -> ColumnIndex:
        """
        :raises CorruptThrift: the bytes are no such index.
        """
        struct = ThriftStruct.from_bytes(data)
        order = struct.get(4)
        found = cls(
            _items(struct, 1, bool),
            _items(struct, 2, bytes),
            _items(struct, 3, bytes),
            order if isinstance(order, int) else -1,
            _items(struct, 5, int) if 5 in struct.fields else None,
        )
        counts = [
            found.min_values,
            found.max_values,
            *([] if found.null_counts is None else [found.null_counts]),
        ]
        if any(len(items) != len(found.null_pages) for items in counts) or found.boundary_order not in (
            0,
            1,
            2,
        ):
            raise CorruptThrift(0, "a column index does not fit together")
        return found


class PageLocation(Struct, frozen=True):
    """The place of a page: its bytes with their header, and the number of its first row in the row group."""

    offset: int
    size_bytes: int
    first_row: int


def offset_index(data: bytes) -> tuple[PageLocation, ...]:
    """Return the places of the data pages of a column chunk.

    :raises CorruptThrift: the bytes are no such index.
    """
    pages = _structs(ThriftStruct.from_bytes(data), 1)
    return tuple(PageLocation(*(number_of(page, field) for field in (1, 2, 3))) for page in pages)


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
