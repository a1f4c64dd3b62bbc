"""Finds which of many keys may be among a few others, without reading all keys again.

A mark is 32 bits that are computed once from eight bytes of a key; equal keys have equal marks. A million keys take a hundred
megabytes, their marks take four. Without marks, a refresh by one commit spent most of its time on comparing keys. The caller
compares the keys that :meth:`KeyMarks.possible_matches` returns; no other key matches.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from msgspec import Struct

_Rows = npt.NDArray[np.int64]
_WORD_BYTES = 8
#: Where the eight bytes begin, counted from the end. With the suffix `-c000.snappy.parquet` they are the last digits of the
#: UUID in the name; with a shorter suffix (`-c000.zstd.parquet`, `.parquet`) they are other digits of it.
_FROM_END_BYTES = 28
_SPREAD = np.uint64(0x9E3779B97F4A7C15)
#: Bits of a mark that select an entry of the lookup table, which fits into a core's cache.
_TABLE_BITS = 20


def _words(keys: pa.StringArray) -> npt.NDArray[np.uint64]:
    """Return eight bytes of each key as a number; 0 for a key that has fewer."""
    _, offsets, content = keys.buffers()
    ends = np.frombuffer(offsets, np.int32)[keys.offset : keys.offset + len(keys) + 1]
    places = int(ends[-1]) - _WORD_BYTES + 1
    if places < 1:
        return np.zeros(len(keys), np.uint64)
    # A view with one word for each byte of the content: neighbouring words overlap by seven bytes.
    words = np.ndarray((places,), "<u8", content, 0, (1,))
    starts, at = ends[:-1], ends[1:] - _FROM_END_BYTES
    found: npt.NDArray[np.uint64] = words[np.minimum(np.maximum(starts, at), places - 1)]
    found[np.diff(ends) < _WORD_BYTES] = 0
    return found


class KeyMarks(Struct, frozen=True, dict=True, eq=False):
    """The marks of some keys.

    :ivar marks: marks, one for each key, in the order of the keys.
    """

    marks: npt.NDArray[np.uint32]

    @classmethod
    def of(cls, keys: pa.ChunkedArray) -> KeyMarks:
        """:param keys: strings, none of them null."""
        marks = np.empty(len(keys), np.uint32)
        start = 0
        for chunk in keys.chunks:
            if len(chunk):
                marks[start : start + len(chunk)] = (_words(chunk) * _SPREAD) >> np.uint64(32)
            start += len(chunk)
        return cls(marks)

    @cached_property
    def _table(self) -> npt.NDArray[np.bool_]:
        table = np.zeros(1 << _TABLE_BITS, np.bool_)
        table[self.marks >> (32 - _TABLE_BITS)] = True
        return table

    def possible_matches(self, others: KeyMarks) -> _Rows:
        """Return the rows, ascending, whose keys may be among ``others``: all that are, and few that are not."""
        return np.flatnonzero(others._table[self.marks >> (32 - _TABLE_BITS)])
