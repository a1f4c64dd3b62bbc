"""Which of many listed keys are not among many others, told by 64 bits of each.

Keys are hashed once, however often a listing that goes on is compared with them, and hashes are found in a sixth of the time
that keys are found in. A key that is denied is not there. One that is not denied is there, but for one stranger in 10^19
divided by the number of keys: VACUUM keeps such a file, and never deletes one that it needs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from delta_log.arrow.row_hash import hashes_of_texts

#: So many keys are hashed at once: what is in the making stays in a core's cache.
_HASHED_ROWS = 1 << 13

_Hashes = npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True, eq=False)
class KeyHashes:
    """:ivar hashes: 64 bits for each key, sorted."""

    hashes: _Hashes

    @classmethod
    def of(cls, keys: pa.ChunkedArray) -> KeyHashes:
        """:param keys: nulls are left out."""
        return cls(np.sort(_hashed(keys.drop_null())))

    def denied(self, keys: pa.ChunkedArray) -> pa.Array:
        """A mask of keys, none of them null: which ones are certainly not among these."""
        hashes = _hashed(keys)
        # In their order they are found in a tenth of the time; so first which hashes are denied, then whose they are.
        wanted = np.sort(hashes)
        strangers = wanted
        if len(self.hashes):
            at = np.searchsorted(self.hashes, wanted)
            at[at == len(self.hashes)] = 0
            strangers = wanted[self.hashes[at] != wanted]
        return pc.is_in(pa.array(hashes), value_set=pa.array(strangers))


def _hashed(keys: pa.ChunkedArray) -> _Hashes:
    parts = [hashes_of_texts(part) for part in _parts(keys)]
    return np.concatenate(parts) if parts else np.empty(0, np.uint64)


def _parts(keys: pa.ChunkedArray) -> Iterator[pa.Array]:
    for chunk in keys.chunks:
        for start in range(0, len(chunk), _HASHED_ROWS):
            yield chunk.slice(start, _HASHED_ROWS)
