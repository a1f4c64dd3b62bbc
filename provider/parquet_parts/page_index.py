"""Reads the parts of a Parquet footer and page index that tell a reader which rows it may skip.

Both are structs of Thrift's compact protocol (:mod:`parquet_parts.thrift`). The numbers of their fields are the numbers in
``parquet.thrift``.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from parquet_parts.footer import END_BYTES, footer_start
from parquet_parts.thrift import CorruptThrift, Fields, Shape

# Fields in FileMetaData, RowGroup, ColumnChunk and ColumnMetaData, one line for each.
ROW_GROUPS = 4
COLUMNS, NUM_ROWS = 1, 3
META_DATA, OFFSET_INDEX, OFFSET_INDEX_LENGTH, COLUMN_INDEX, COLUMN_INDEX_LENGTH = 3, 4, 5, 6, 7
PHYSICAL_TYPE, NUM_VALUES, STATISTICS = 1, 5, 12
#: Fields in Statistics: lower and upper bound in the present and in the deprecated form.
BOUNDS, OLD_BOUNDS = (6, 5), (2, 1)
NULL_COUNT = 3
_FOOTER_SHAPE: Shape = {ROW_GROUPS: {COLUMNS: {META_DATA: {STATISTICS: {}}}}}


def split_footer(tail: bytes) -> tuple[bytes, Fields]:
    """Split the last bytes of a file into what precedes the footer, and the footer (``FileMetaData``).

    :raises CorruptThrift: the bytes do not end with a plain footer, or it begins before them.
    """
    start = footer_start(tail)
    return tail[:start], Fields.from_bytes(tail[start:-END_BYTES], _FOOTER_SHAPE)


def column_chunks(footer: Fields) -> Iterator[tuple[int, int, Fields]]:
    """Yield every column chunk with the numbers of its row group and of its leaf.

    :raises CorruptThrift: the footer is malformed.
    """
    for number, group in enumerate(footer.structs(ROW_GROUPS)):
        for leaf, chunk in enumerate(group.structs(COLUMNS)):
            yield number, leaf, chunk


def num_rows(footer: Fields, group: int) -> int:
    """Return the number of rows of a row group."""
    return footer.structs(ROW_GROUPS)[group].required_number(NUM_ROWS)


def chunk_meta(chunk: Fields) -> Fields:
    """Return the ``ColumnMetaData`` of a column chunk.

    :raises CorruptThrift: the chunk has none.
    """
    found = chunk.struct(META_DATA)
    if found is None:
        raise CorruptThrift(0, "a column chunk has no metadata")
    return found


def page_index_start(footer: Fields, end: int) -> int:
    """Return the offset at which the page index begins, or ``end`` if the file has none."""
    places = [
        chunk.required_number(place)
        for _, _, chunk in column_chunks(footer)
        for place in (OFFSET_INDEX, COLUMN_INDEX)
        if place in chunk
    ]
    return min([end, *places])


class ColumnIndex(Struct, frozen=True):
    """The bounds of each page of a column chunk. The bounds of a page of nulls have no meaning.

    :param boundary_order: order of the bounds: 0 none, 1 ascending, 2 descending.
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
        fields = Fields.from_bytes(data, {})
        null_pages, lows, highs = fields.booleans(1), fields.binaries(2), fields.binaries(3)
        null_counts = fields.numbers(5) if 5 in fields else None
        order = fields.required_number(4)
        lengths = {len(null_pages), len(lows), len(highs), len(lows if null_counts is None else null_counts)}
        if len(lengths) > 1 or order not in (0, 1, 2):
            raise CorruptThrift(0, "a column index does not fit together")
        return cls(null_pages, lows, highs, order, null_counts)


class PageLocation(Struct, frozen=True):
    """The place of a page: its bytes with their header, and the number of its first row in the row group."""

    offset: int
    size_bytes: int
    first_row: int


def offset_index(data: bytes) -> tuple[PageLocation, ...]:
    """Return the places of the data pages of a column chunk.

    :raises CorruptThrift: the bytes are no such index.
    """
    pages = Fields.from_bytes(data, {1: {}}).structs(1)
    return tuple(PageLocation(*(page.required_number(field) for field in (1, 2, 3))) for page in pages)
