"""The footer and the page index of a Parquet file, as far as they say which rows a reader may skip.

Both are structs of Thrift's compact protocol (:mod:`delta_log.parquet.thrift_compact`), and the numbers of their fields are those of
``parquet.thrift``. What is not named here is kept as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from delta_log.parquet.thrift_compact import STRUCT, CorruptThrift, ThriftList, ThriftStruct

_T = TypeVar("_T")

MAGIC = b"PAR1"
#: The footer's length and the magic number behind it.
END_BYTES = 8

# Of FileMetaData, RowGroup, ColumnChunk and ColumnMetaData.
ROW_GROUPS = 4
COLUMNS, NUM_ROWS = 1, 3
META_DATA, OFFSET_INDEX, OFFSET_INDEX_LENGTH, COLUMN_INDEX, COLUMN_INDEX_LENGTH = 3, 4, 5, 6, 7
PHYSICAL_TYPE, NUM_VALUES, STATISTICS, ENCODING_STATS, BLOOM_FILTER, BLOOM_FILTER_LENGTH = (
    1,
    5,
    12,
    13,
    14,
    15,
)
#: Of Statistics: the lower and the upper bound, as they are written now and as they once were; whether they are exact.
BOUNDS, OLD_BOUNDS, _EXACT = (6, 5), (2, 1), (7, 8)
NULL_COUNT = 3


def split_footer(tail: bytes) -> tuple[bytes, ThriftStruct]:
    """What stands before the footer in the last bytes of a file, and the footer (``FileMetaData``).

    :raises CorruptThrift: the bytes do not end with a footer.
    """
    length = int.from_bytes(tail[-END_BYTES:-4], "little")
    start = len(tail) - END_BYTES - length
    if tail[-4:] != MAGIC or start < 0:
        raise CorruptThrift(len(tail), "the file does not end with a footer")
    return tail[:start], ThriftStruct.from_bytes(tail[start:-END_BYTES])


def footer_bytes(footer: ThriftStruct) -> bytes:
    """A footer, its length and the magic number: the end of a file."""
    content = footer.to_bytes()
    return content + len(content).to_bytes(4, "little") + MAGIC


def column_chunks(footer: ThriftStruct) -> Iterator[tuple[int, int, ThriftStruct]]:
    """Every column chunk, with the numbers of its row group and of its leaf.

    :raises CorruptThrift: the footer has another form.
    """
    for number, group in enumerate(_structs(footer, ROW_GROUPS)):
        for leaf, chunk in enumerate(_structs(group, COLUMNS)):
            yield number, leaf, chunk


def num_rows(footer: ThriftStruct, group: int) -> int:
    """Of a row group."""
    return number_of(_structs(footer, ROW_GROUPS)[group], NUM_ROWS)


def chunk_meta(chunk: ThriftStruct) -> ThriftStruct:
    """The ``ColumnMetaData`` of a column chunk.

    :raises CorruptThrift: it is not there.
    """
    return _struct(chunk, META_DATA)


def statistics(meta: ThriftStruct) -> ThriftStruct | None:
    """The ``Statistics`` of a column chunk's metadata; ``None``: there are none."""
    return _struct(meta, STATISTICS) if STATISTICS in meta.fields else None


def page_index_start(footer: ThriftStruct, end: int) -> int:
    """Where in the file the page index begins; ``end`` where there is none."""
    places = [
        number_of(chunk, place)
        for _, _, chunk in column_chunks(footer)
        for place in (OFFSET_INDEX, COLUMN_INDEX)
        if place in chunk.fields
    ]
    return min([end, *places])


def edited(footer: ThriftStruct, edit: Callable[[int, int, ThriftStruct], ThriftStruct]) -> ThriftStruct:
    """The footer with other column chunks.

    :param edit: gives a chunk for the numbers of a row group and of a leaf, and the chunk that is there.
    :raises CorruptThrift: the footer has another form.
    """
    groups = []
    for number, group in enumerate(_structs(footer, ROW_GROUPS)):
        chunks = [edit(number, leaf, chunk) for leaf, chunk in enumerate(_structs(group, COLUMNS))]
        groups.append(group.replacing(COLUMNS, ThriftList(STRUCT, tuple(chunks))))
    return footer.replacing(ROW_GROUPS, ThriftList(STRUCT, tuple(groups)))


def without_bounds(chunk: ThriftStruct) -> ThriftStruct:
    """A column chunk of which no reader can tell which values it does not hold.

    The count of nulls and the places of the pages stay. The column index stays in the file, where nothing names it.
    """
    meta = chunk_meta(chunk)
    there = statistics(meta)
    if there is not None:
        meta = meta.replacing(STATISTICS, there.without(*BOUNDS, *OLD_BOUNDS, *_EXACT))
    return chunk.replacing(META_DATA, meta).without(COLUMN_INDEX, COLUMN_INDEX_LENGTH)


def without_membership(chunk: ThriftStruct) -> ThriftStruct:
    """A column chunk of which no reader takes its dictionary or its Bloom filter for the set of its values.

    parquet-java looks for a value in the dictionary where ``encoding_stats`` promises that all pages use it.
    """
    meta = chunk_meta(chunk).without(ENCODING_STATS, BLOOM_FILTER, BLOOM_FILTER_LENGTH)
    return chunk.replacing(META_DATA, meta)


@dataclass(frozen=True, slots=True)
class ColumnIndex:
    """What the page index says of the values in each page of a column chunk; a bound of a page of nulls means nothing.

    :param boundary_order: 0 none, 1 ascending, 2 descending.
    :param null_counts: ``None``: it does not say.
    """

    null_pages: tuple[bool, ...]
    min_values: tuple[bytes, ...]
    max_values: tuple[bytes, ...]
    boundary_order: int
    null_counts: tuple[int, ...] | None

    @classmethod
    def from_bytes(cls, data: bytes) -> ColumnIndex:
        """
        :raises CorruptThrift: the bytes are something else.
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


@dataclass(frozen=True, slots=True)
class PageLocation:
    """Where a page is: its bytes with their header, and the number of its first row in the row group."""

    offset: int
    size_bytes: int
    first_row: int


def offset_index(data: bytes) -> tuple[PageLocation, ...]:
    """The data pages of a column chunk.

    :raises CorruptThrift: the bytes are something else.
    """
    pages = _structs(ThriftStruct.from_bytes(data), 1)
    return tuple(PageLocation(*(number_of(page, field) for field in (1, 2, 3))) for page in pages)


def number_of(struct: ThriftStruct, field: int) -> int:
    """A field that holds an integer.

    :raises CorruptThrift: it does not.
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
