"""What a NaN and the two zeros do to the bounds of float and double columns that are copied.

=========  ===========================================================  ======================================================
value      what writers do                                              what a new file says
=========  ===========================================================  ======================================================
NaN        most leave it out of bounds, readers sort it above all       no bounds, unless the pages hold no NaN
           numbers; parquet-java writes it as a bound                   (:func:`lacks_nan`)
0.0, -0.0  equal in queries; parquet-java writes the one that it met    -0.0 as a lower and 0.0 as an upper bound
                                                                        (:func:`widen_zeros`)
=========  ===========================================================  ======================================================

For rows that are encoded anew, :mod:`delta_maintenance.rewrite.encode.float_leaves` decides.

Pages are searched without decoding rows. Plain pages hold the values as they are. Of pages with a dictionary, the dictionary alone
is looked at. That takes a fifth of the time of reading the column, and no more memory than some pages.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from typing import Protocol

import numpy as np

from parquet_parts.chunk_template import DICTIONARIES, HIGH, LOW
from parquet_parts.footer import FLOAT_CODES, ColumnChunk
from parquet_parts.page import (
    HEADER_BYTES,
    PLAIN,
    Page,
    behind_levels,
    decompressed,
    dictionary_at,
    page_at,
)
from parquet_parts.schema_elements import Leaf
from parquet_parts.thrift import CorruptThrift

#: Bytes that are read at once. The pages of most files have one megabyte at most.
_PIECE_BYTES = 4 << 20


class Source(Protocol):
    """The bytes of a file."""

    def read(self, start: int, length: int) -> bytes:
        """Read bytes, fewer only at the end of the file."""


def has_nan_bound(chunk: ColumnChunk) -> bool:
    """Tell whether a bound is a NaN. parquet-java sorts it above all numbers, and takes no notice of such bounds when it reads."""
    code = FLOAT_CODES.get(chunk.form.physical_type)
    bounds = None if code is None else chunk.bounds
    if code is None or bounds is None:
        return False
    width = struct.calcsize(code)
    return any(len(raw) != width or math.isnan(struct.unpack(code, raw)[0]) for raw in bounds)


def widen_zeros(chunk: ColumnChunk) -> None:
    """Make a zero that is a bound -0.0 below and 0.0 above, since queries take them for one value.

    parquet-java writes the zero that it met, and widens the bounds when it reads them. Other readers do not.
    """
    code = FLOAT_CODES.get(chunk.form.physical_type)
    if code is None:
        return
    zero = bytes(struct.calcsize(code))
    negative = zero[:-1] + b"\x80"
    for path, inner, outer in ((LOW, zero, negative), (HIGH, negative, zero)):
        if chunk.get_bytes(path) == inner:
            chunk.put_bytes(path, outer)


def lacks_nan(source: Source, chunk: ColumnChunk, leaf: Leaf) -> bool:
    """Tell whether a chunk certainly has no NaN. ``False``: it has one, is broken, or has pages that are not read here.

    :param leaf: leaf of floats or doubles, outside of lists and maps.
    """
    # Reading the rows tells what is broken.
    try:
        return _lacks_nan(source, chunk, leaf)
    except CorruptThrift:
        return False


def has_nan(values: memoryview, physical_type: int) -> bool:
    """Tell whether plain values have a NaN, or may have one.

    :param physical_type: physical type of floats or doubles.
    """
    kind = np.dtype(FLOAT_CODES[physical_type])
    # There may be more bytes than a reader takes.
    return len(values) % kind.itemsize > 0 or bool(np.isnan(np.frombuffer(values, kind)).any())


def _lacks_nan(source: Source, chunk: ColumnChunk, leaf: Leaf) -> bool:
    codec, missing, has_dictionary = chunk.form.codec, chunk.num_values, False
    for page, is_dictionary in _pages_of(source, *chunk.place):
        if is_dictionary:
            values = decompressed(page, codec)
            has_dictionary = True
        else:
            missing -= page.num_values
            if page.encoding in DICTIONARIES and has_dictionary:
                continue
            if page.encoding != PLAIN:
                return False
            content = decompressed(page, codec)
            values = content[behind_levels(content, leaf) :]
        if has_nan(values, chunk.form.physical_type):
            return False
    # A reader looks for no further page when it has all values.
    return missing == 0


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
            except CorruptThrift:
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
