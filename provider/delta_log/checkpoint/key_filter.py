"""A filter that tells which of some keys a sidecar may hold, without decoding the sidecar.

The filter has 32 bits of a hash for each key of the sidecar. A key whose hash is absent is not in the sidecar; a key
whose hash is present has to be looked up. The false-positive rate is 1/86,000 at 50,000 keys.

Sorted hashes are stored as differences. Their upper halves hardly vary and compress well, so a key takes about 2.3 bytes.
"""

from __future__ import annotations

from zlib import crc32

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from msgspec import Struct

from delta_log.arrow.row_hash import hashes_of_texts

_HIGH, _LOW = np.uint64(32), 0xFFFF
_CODEC = "zstd"
#: Precedes the compressed part: the number of hashes, and the CRC-32 of that part.
_HEAD = np.dtype([("hashes", "<u4"), ("crc", "<u4")])

_Hashes = npt.NDArray[np.uint32]


def short_hashes(keys: pa.Array | pa.ChunkedArray) -> _Hashes:
    """32 bits of a hash for each key."""
    chunks = keys.chunks if isinstance(keys, pa.ChunkedArray) else [keys]
    parts = [(hashes_of_texts(chunk) >> _HIGH).astype(np.uint32) for chunk in chunks if len(chunk)]
    return np.concatenate(parts) if parts else np.empty(0, np.uint32)


class KeyFilter(Struct, frozen=True, eq=False):
    """The filter of one sidecar.

    :ivar hashes: hashes of the keys, sorted, without duplicates.
    """

    hashes: _Hashes

    @classmethod
    def of(cls, keys: pa.Array | pa.ChunkedArray) -> KeyFilter:
        """Make the filter of some keys, as :func:`delta_log.log.data_path.decode_paths` gives them."""
        return cls(np.unique(short_hashes(keys)))

    def may_hold(self, hashes: _Hashes) -> npt.NDArray[np.bool_]:
        """Whether the sidecar may hold each of some keys, given by their hashes in any order."""
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
