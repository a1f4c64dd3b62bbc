"""Keys in an Arrow file, sorted by their bytes, so that a range of them can be read without the rest.

The file is mapped into memory, and the tasks of one machine share it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from delta_log.arrow.arrays import arrow_array
from delta_log.arrow.row_hash import hashes_of_texts

#: Rows that are hashed together, so that intermediate results fit into the cache of a core.
_HASHED_ROWS = 1 << 13

_Hashes = npt.NDArray[np.uint64]


class KeyHashes(Struct, frozen=True, eq=False):
    """A set of keys as hashes of 64 bits, to find out which of many other keys are not in it.

    Looking up hashes takes a sixth of the time of looking up keys. A key that is reported absent is certainly absent. An absent key
    goes unreported if its hash equals the hash of a key in the set; the probability is the number of keys divided by 10^19. VACUUM
    then keeps a file that it could delete, and never deletes one that is needed; a repair does not report a file that is missing.

    :ivar hashes: one hash for each key, sorted.
    """

    hashes: _Hashes

    @classmethod
    def of(cls, keys: pa.ChunkedArray) -> KeyHashes:
        """Hash a column of keys; nulls are left out."""
        return cls.of_parts([keys])

    @classmethod
    def of_parts(cls, parts: Iterable[pa.ChunkedArray]) -> KeyHashes:
        """Hash columns of keys one by one, so that they need not be in memory together; nulls are left out."""
        hashes = [_hashed(keys.drop_null()) for keys in parts]
        return cls(np.sort(np.concatenate(hashes)) if hashes else np.empty(0, np.uint64))

    def absent(self, keys: pa.ChunkedArray) -> pa.Array:
        """Mask the keys, none of them null, that are certainly not in this set."""
        hashes = _hashed(keys)
        # Sorted hashes are looked up in a tenth of the time. So find the absent hashes first, and then their rows.
        wanted = np.sort(hashes)
        absent = wanted
        if len(self.hashes):
            at = np.searchsorted(self.hashes, wanted)
            at[at == len(self.hashes)] = 0
            absent = wanted[self.hashes[at] != wanted]
        return pc.is_in(arrow_array(hashes), value_set=arrow_array(absent))


def _hashed(keys: pa.ChunkedArray) -> _Hashes:
    parts = [hashes_of_texts(part) for part in _parts(keys)]
    return np.concatenate(parts) if parts else np.empty(0, np.uint64)


def _parts(keys: pa.ChunkedArray) -> Iterator[pa.Array]:
    for chunk in keys.chunks:
        for start in range(0, len(chunk), _HASHED_ROWS):
            yield chunk.slice(start, _HASHED_ROWS)


_SCHEMA = pa.schema([("key", pa.string())])
_BATCH_ROWS = 1 << 16


class SortedKeys:
    """A file of sorted keys.

    :param path: path of a file that :meth:`write` wrote.
    """

    def __init__(self, path: Path | str) -> None:
        with pa.memory_map(str(path)) as file:
            reader = pa.ipc.open_file(file)
            self._batches = [
                reader.get_batch(number).column(0) for number in range(reader.num_record_batches)
            ]
        self._starts = [0]
        for batch in self._batches:
            self._starts.append(self._starts[-1] + len(batch))

    @staticmethod
    def write(path: Path | str, keys: pa.ChunkedArray) -> None:
        """Write keys to a file, each once."""
        # Together the keys may be longer than the 32-bit offsets of a string column allow.
        distinct = pc.unique(keys.cast(pa.large_string()))
        keys = distinct.take(pc.sort_indices(distinct))
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, _SCHEMA) as writer:
            for start in range(0, len(keys), _BATCH_ROWS):
                part = keys.slice(start, _BATCH_ROWS).cast(pa.string())
                writer.write_batch(pa.record_batch([part], schema=_SCHEMA))

    def __len__(self) -> int:
        return self._starts[-1]

    def __getitem__(self, row: int) -> str:
        batch = min(row // _BATCH_ROWS, len(self._batches) - 1)
        key: str = self._batches[batch][row - self._starts[batch]].as_py()
        return key

    def row_of(self, text: str) -> int:
        """Find the first row whose key does not sort before a text."""
        low, high = 0, len(self)
        while low < high:
            middle = (low + high) // 2
            if self[middle] < text:
                low = middle + 1
            else:
                high = middle
        return low

    def rows(self, start: int, end: int) -> pa.ChunkedArray:
        """Read the keys of the rows in ``[start, end)``."""
        return pa.chunked_array(self._batches, pa.string()).slice(start, max(0, end - start))
