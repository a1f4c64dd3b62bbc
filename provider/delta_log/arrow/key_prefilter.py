"""Which of many keys may be among a few others, without reading the keys again.

A mark is 32 bits that equal keys have in common, taken once from eight of a key's bytes. A million keys are a hundred
megabytes, and a refresh by one commit that had to look at each of them took longer than all the rest of it; their marks
are four. What :meth:`KeyMarks.met` names has to be compared, what it does not name is not there.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa

_Rows = npt.NDArray[np.int64]
_WORD_BYTES = 8
#: So far from its end a key has the last digits of its UUID, for writers that end names in `-c000.snappy.parquet`; with
#: a shorter suffix (`-c000.zstd.parquet`, `.parquet`) it still has others of them.
_FROM_END_BYTES = 28
_SPREAD = np.uint64(0x9E3779B97F4A7C15)
#: Bits of a mark that lead into a table of what is looked for: it fits into a core's cache.
_TABLE_BITS = 20


def _words(keys: pa.StringArray) -> npt.NDArray[np.uint64]:
    """Eight bytes of each key, 0 for one that has fewer."""
    _, offsets, content = keys.buffers()
    ends = np.frombuffer(offsets, np.int32)[keys.offset : keys.offset + len(keys) + 1]
    places = int(ends[-1]) - _WORD_BYTES + 1
    if places < 1:
        return np.zeros(len(keys), np.uint64)
    # A word at every byte.
    words = np.ndarray((places,), "<u8", content, 0, (1,))
    starts, at = ends[:-1], ends[1:] - _FROM_END_BYTES
    found: npt.NDArray[np.uint64] = words[np.minimum(np.maximum(starts, at), places - 1)]
    found[np.diff(ends) < _WORD_BYTES] = 0
    return found


@dataclass(frozen=True)
class KeyMarks:
    """:ivar marks: uint32, one for each key, in their order."""

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

    def met(self, others: KeyMarks) -> _Rows:
        """The rows, ascending, whose keys may be among ``others``; all whose keys are, are among the rows."""
        return np.flatnonzero(others._table[self.marks >> (32 - _TABLE_BITS)])
