"""Which of some paths a sidecar may hold, told by a few bytes for each of its actions and without decoding it.

A path is reduced to 32 bits of a hash of its key. What a filter denies is not there; what it affirms may be there and
has to be looked up: of 50,000 keys about one in 86,000 strangers is affirmed. Sorted hashes are stored as their
differences, whose lower halves are noise and whose upper halves hardly vary, so about 2.3 bytes are left of each.
"""

from __future__ import annotations

from dataclasses import dataclass
from zlib import crc32

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from delta_log.arrow.row_hash import hashes_of_texts

_HIGH, _LOW = np.uint64(32), 0xFFFF
_CODEC = "zstd"
#: Before the compressed part: how many hashes, and the CRC-32 of that part.
_HEAD = np.dtype([("hashes", "<u4"), ("crc", "<u4")])


_Hashes = npt.NDArray[np.uint32]


def short_hashes(keys: pa.Array | pa.ChunkedArray) -> _Hashes:
    """32 bits for each key."""
    chunks = keys.chunks if isinstance(keys, pa.ChunkedArray) else [keys]
    parts = [(hashes_of_texts(chunk) >> _HIGH).astype(np.uint32) for chunk in chunks if len(chunk)]
    return np.concatenate(parts) if parts else np.empty(0, np.uint32)


@dataclass(frozen=True, slots=True, eq=False)
class KeyFilter:
    """:ivar hashes: 32 bits each, sorted, every one once."""

    hashes: _Hashes

    @classmethod
    def of(cls, keys: pa.Array | pa.ChunkedArray) -> KeyFilter:
        """:param keys: as :func:`delta_log.log.data_path.decode_paths` gives them."""
        return cls(np.unique(short_hashes(keys)))

    def may_hold(self, hashes: _Hashes) -> npt.NDArray[np.bool_]:
        """Of some keys, given by their hashes in any order, those that are not denied."""
        if not len(self.hashes):
            return np.zeros(len(hashes), np.bool_)
        at = np.searchsorted(self.hashes, hashes)
        at[at == len(self.hashes)] = 0
        found: npt.NDArray[np.bool_] = self.hashes[at] == hashes
        return found

    def encode(self) -> bytes:
        steps = np.diff(self.hashes, prepend=np.uint32(0))
        halves = np.concatenate([(steps & _LOW), (steps >> 16)]).astype("<u2").tobytes()
        packed: bytes = pa.compress(halves, codec=_CODEC, asbytes=True)
        head = np.array([(len(self.hashes), crc32(packed))], _HEAD)
        return bytes(head.tobytes()) + packed

    @classmethod
    def decode(cls, data: bytes) -> KeyFilter | None:
        """``None``: these bytes are no filter."""
        if len(data) < _HEAD.itemsize:
            return None
        head, packed = np.frombuffer(data[: _HEAD.itemsize], _HEAD)[0], data[_HEAD.itemsize :]
        if crc32(packed) != head["crc"]:
            return None
        count = int(head["hashes"])
        halves = np.frombuffer(pa.decompress(packed, 4 * count, codec=_CODEC), "<u2").astype(np.uint32)
        steps = halves[:count] | (halves[count:] << np.uint32(16))
        return cls(np.cumsum(steps, dtype=np.uint32))
