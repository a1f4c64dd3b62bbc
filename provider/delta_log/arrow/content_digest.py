"""A digest of rows in their order that does not depend on how they are cut into batches.

A writer compares the rows that it wrote with the rows that it reads back, without holding either. The digest runs CRC-32 over
whole buffers: one stream for each kind of buffer (validity, lengths, bytes) of each column. Equality rules out accidents, not
forgery. Where the order of the rows does not count, use :mod:`delta_log.arrow.row_hash`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from zlib import crc32

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

_ONES, _ZEROS = np.ones(1 << 16, np.uint8), np.zeros(1 << 16, np.uint8)


class ContentDigest:
    """Takes in batches of the same columns; two digests are equal for equal rows in the same order."""

    def __init__(self) -> None:
        self.rows = 0
        self._streams: dict[str, int] = {}

    @classmethod
    def of(cls, batches: Iterable[pa.RecordBatch]) -> ContentDigest:
        digest = cls()
        for batch in batches:
            digest.update(batch)
        return digest

    def update(self, batch: pa.RecordBatch) -> None:
        """Take in a batch by the order of its columns; their names do not count."""
        if not batch.num_rows:
            return
        self.rows += batch.num_rows
        for index, column in enumerate(batch.columns):
            self._take(str(index), column)

    def text(self) -> str:
        """Return the digest as 32 hexadecimal digits, the same in every process."""
        content = json.dumps([self.rows, sorted(self._streams.items())]).encode()
        return hashlib.blake2b(content, digest_size=16).hexdigest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ContentDigest) and (self.rows, self._streams) == (other.rows, other._streams)

    __hash__ = None  # type: ignore[assignment]

    def _feed(self, stream: str, data: object) -> None:
        self._streams[stream] = crc32(data, self._streams.get(stream, 0))  # type: ignore[arg-type]

    def _take(self, name: str, array: pa.Array) -> None:
        kind = array.type
        absent = array.null_count
        if absent == len(array):
            self._validity(name, _ZEROS, len(array))
            return
        if absent:
            self._feed(f"{name}?", array.is_valid().cast(pa.uint8()).to_numpy())
            array = array.drop_null()
        else:
            self._validity(name, _ONES, len(array))
        if pa.types.is_struct(kind):
            for index in range(kind.num_fields):
                self._take(f"{name}.{index}", pc.struct_field(array, [index]))
        elif pa.types.is_map(kind):
            first, last = self._lengths(name, array.offsets)
            self._take(f"{name}.key", array.keys.slice(first, last - first))
            self._take(f"{name}.value", array.items.slice(first, last - first))
        elif pa.types.is_string(kind):
            _, offsets, content = array.buffers()
            ends = pa.Array.from_buffers(pa.int32(), len(array) + 1, [None, offsets], offset=array.offset)
            first, last = self._lengths(name, ends)
            if last > first:
                self._feed(name, memoryview(content)[first:last])
        else:
            self._feed(name, array.cast(pa.uint8() if pa.types.is_boolean(kind) else pa.int64()).to_numpy())

    def _validity(self, name: str, constant: npt.NDArray[np.uint8], rows: int) -> None:
        for start in range(0, rows, len(constant)):
            self._feed(f"{name}?", constant[: min(len(constant), rows - start)])

    def _lengths(self, name: str, ends: pa.Array) -> tuple[int, int]:
        bounds = ends.to_numpy()
        self._feed(f"{name}#", np.diff(bounds))
        return int(bounds[0]), int(bounds[-1])
