"""Keys in an Arrow file, sorted by their bytes, so that a range of them can be read without the rest.

The file is mapped into memory, and the tasks of one machine share it.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

_SCHEMA = pa.schema([("key", pa.string())])
_BATCH_ROWS = 1 << 16


class SortedKeys:
    """A file of sorted keys.

    :param path: of a file that :meth:`write` wrote.
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
