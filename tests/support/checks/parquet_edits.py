"""Edits the footers of Parquet files, to make files that no writer here makes."""

from __future__ import annotations

from collections.abc import Callable

from parquet_parts.footer import MAGIC
from parquet_parts.thrift import STRUCT
from tests.support.checks import parquet_structs as metadata
from tests.support.checks.thrift_struct import ThriftList, ThriftStruct

#: Fields in Statistics: whether the bounds are exact.
_EXACT = (7, 8)


def footer_bytes(footer: ThriftStruct) -> bytes:
    """Return the end of a file: the footer, its length and the magic number."""
    content = footer.to_bytes()
    return content + len(content).to_bytes(4, "little") + MAGIC


def edited(footer: ThriftStruct, edit: Callable[[int, int, ThriftStruct], ThriftStruct]) -> ThriftStruct:
    """Return the footer with edited column chunks.

    :param edit: takes the number of a row group, the number of a leaf and the chunk, and returns the new chunk.
    """
    groups = []
    for number, group in enumerate(footer.get(metadata.ROW_GROUPS).items):
        chunks = [edit(number, leaf, chunk) for leaf, chunk in enumerate(group.get(metadata.COLUMNS).items)]
        groups.append(group.replacing(metadata.COLUMNS, ThriftList(STRUCT, tuple(chunks))))
    return footer.replacing(metadata.ROW_GROUPS, ThriftList(STRUCT, tuple(groups)))


def without_bounds(chunk: ThriftStruct) -> ThriftStruct:
    """Remove the bounds from a column chunk, so that no reader skips it for its values.

    The count of nulls and the offset index stay. The bytes of the column index stay in the file, but the footer no longer
    names them.
    """
    meta = metadata.chunk_meta(chunk)
    there = metadata.statistics(meta)
    if there is not None:
        meta = meta.replacing(
            metadata.STATISTICS, there.without(*metadata.BOUNDS, *metadata.OLD_BOUNDS, *_EXACT)
        )
    return chunk.replacing(metadata.META_DATA, meta).without(
        metadata.COLUMN_INDEX, metadata.COLUMN_INDEX_LENGTH
    )
