"""Looks for a NaN in a column chunk of floats outside of lists and maps, in its pages, without decoding rows.

Plain pages hold the values as they are. Of pages with a dictionary, the dictionary alone is looked at. That takes a fifth of the
time of reading the column, and no more memory than some pages. Where there is no NaN, the bounds of each writer are true.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import numpy as np

from delta_log.parquet.chunk_form import DICTIONARIES
from delta_log.parquet.footer import FLOAT_CODES, ColumnChunk
from delta_log.parquet.page import HEADER_BYTES, Page, decompressed, dictionary_at, page_at
from delta_log.parquet.schema_elements import Leaf
from delta_log.parquet.thrift_compact import CorruptThrift

#: Bytes that are read at once. The pages of most files have one megabyte at most.
_PIECE_BYTES = 4 << 20
#: A number of ``Encoding``.
_PLAIN = 0
#: The length in front of the levels.
_LENGTH_BYTES = 4


class Source(Protocol):
    """The bytes of a file."""

    def read(self, start: int, length: int) -> bytes:
        """Read bytes, fewer only at the end of the file."""


def lacks_nan(source: Source, chunk: ColumnChunk, leaf: Leaf) -> bool:
    """Tell whether a chunk certainly has no NaN. ``False``: it has one, is broken, or has pages that are not read here.

    :param leaf: of floats or doubles, outside of lists and maps.
    """
    # Reading the rows tells what is broken.
    try:
        return _lacks_nan(source, chunk, leaf)
    except (CorruptThrift, IndexError):
        return False


def _lacks_nan(source: Source, chunk: ColumnChunk, leaf: Leaf) -> bool:
    codec, kind = chunk.form.codec, np.dtype(FLOAT_CODES[chunk.form.physical_type])
    missing, has_dictionary = chunk.num_values, False
    for page, is_dictionary in _pages_of(source, *chunk.place):
        if is_dictionary:
            values = decompressed(page, codec)
            has_dictionary = True
        else:
            missing -= page.num_values
            if page.encoding in DICTIONARIES and has_dictionary:
                continue
            if page.encoding != _PLAIN:
                return False
            values = _behind_levels(decompressed(page, codec), leaf)
        # There may be more than the reader takes.
        if len(values) % kind.itemsize or np.isnan(np.frombuffer(values, kind)).any():
            return False
    # A reader looks for no further page when it has all values.
    return missing == 0


def _behind_levels(content: memoryview, leaf: Leaf) -> memoryview:
    """Return the values of a plain page, of which the levels tell which rows are null."""
    if not leaf.is_optional:
        return content
    start = _LENGTH_BYTES + int.from_bytes(content[:_LENGTH_BYTES], "little")
    if start > len(content):
        raise CorruptThrift(start, "the levels of a page are longer than the page")
    return content[start:]


def _pages_of(source: Source, start: int, size: int) -> Iterator[tuple[Page, bool]]:
    """Yield the pages of a chunk, and of each whether it is the dictionary.

    :raises CorruptThrift: a page is of no kind that is read here, or the pages end elsewhere.
    """
    stop, is_first, wanted = start + size, True, _PIECE_BYTES
    while start < stop:
        piece, at = memoryview(source.read(start, min(wanted, stop - start))), 0
        if len(piece) < min(wanted, stop - start):
            raise CorruptThrift(start, "the file ends within a column chunk")
        # A header that is cut comes whole with a longer piece.
        wanted *= 4
        while at < len(piece):
            try:
                dictionary = dictionary_at(piece, at) if is_first else None
                page = dictionary or page_at(piece, at)
            except (CorruptThrift, IndexError):
                if start + len(piece) == stop or len(piece) - at >= HEADER_BYTES:
                    raise
                break
            if start + page.stop > stop:
                raise CorruptThrift(start, "a page claims more bytes than its column chunk has")
            if page.stop > len(piece):
                wanted = max(_PIECE_BYTES, page.stop - at)
                break
            yield page, dictionary is not None
            is_first, at, wanted = False, page.stop, _PIECE_BYTES
        start += at
