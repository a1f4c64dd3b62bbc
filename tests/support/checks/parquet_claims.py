"""Reads what a Parquet file states about its values: null counts, bounds, page index, dictionaries and Bloom filters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from parquet_parts.page_index import ColumnIndex
from tests.support.checks import parquet_structs as parquet
from tests.support.checks.parquet_edits import edited, footer_bytes
from tests.support.checks.thrift_struct import ThriftStruct

#: Fields in ColumnMetaData.
_ENCODING_STATS, _BLOOM_FILTER = 13, 14


@dataclass(frozen=True)
class Claims:
    """What the file states about one leaf column in one row group.

    :param pages: bounds by page, ``None`` for a page of nulls; ``None``: there is no column index.
    :param membership: whether a reader may conclude from the dictionary, or the Bloom filter, that a value is absent.
    """

    bounds: tuple[bytes | None, bytes | None]
    null_count: int | None
    pages: tuple[tuple[bytes, bytes] | None, ...] | None
    first_rows: tuple[int, ...]
    membership: tuple[bool, bool]


def claims(content: bytes, path: str) -> list[Claims]:
    """Returns the claims about the leaf at ``path`` in every row group."""
    _, footer = parquet.split_footer(content)
    found = []
    for _, _, chunk in parquet.column_chunks(footer):
        meta = parquet.chunk_meta(chunk)
        if b".".join(meta.get(3).items).decode() != path:
            continue
        statistics = parquet.statistics(meta)
        assert statistics is not None
        for new, old in zip(parquet.BOUNDS, parquet.OLD_BOUNDS, strict=True):
            assert statistics.get(old) in (None, statistics.get(new))
        start, size = (chunk.get(n) for n in (parquet.COLUMN_INDEX, parquet.COLUMN_INDEX_LENGTH))
        assert (start is None) == (size is None)
        pages = None
        if start is not None:
            index = ColumnIndex.from_bytes(content[start : start + size])
            pages = tuple(
                None if null else (low, high)
                for null, low, high in zip(index.null_pages, index.min_values, index.max_values, strict=True)
            )
        start, size = (chunk.get(n) for n in (parquet.OFFSET_INDEX, parquet.OFFSET_INDEX_LENGTH))
        places = parquet.offset_index(content[start : start + size])
        low, high = (statistics.get(field) for field in parquet.BOUNDS)
        found.append(
            Claims(
                (low, high),
                statistics.get(parquet.NULL_COUNT),
                pages,
                tuple(place.first_row for place in places),
                (_ENCODING_STATS in meta.fields, _BLOOM_FILTER in meta.fields),
            )
        )
    return found


def with_footer(content: bytes, edit: Callable[[int, int, ThriftStruct], ThriftStruct]) -> bytes:
    """A file with other column chunks in its footer."""
    before, footer = parquet.split_footer(content)
    return before + footer_bytes(edited(footer, edit))
