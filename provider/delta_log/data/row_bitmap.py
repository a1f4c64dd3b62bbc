"""The set of deleted rows of a data file, and its bytes.

Protocol section "Deletion Vector Format". A :class:`RowBitmap` is a *RoaringBitmapArray*: one 32-bit Roaring bitmap for each
2³² rows. The reader refuses bytes that contradict themselves (length, magic number, order, bytes behind the end), and no length
field makes it allocate more than the bytes that are there. The "native" serialisation is read and never written.

This module is the only one that imports pyroaring.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap

Rows = npt.NDArray[np.int64]
KeepMask = npt.NDArray[np.bool_]

PORTABLE_MAGIC = 1681511377
NATIVE_MAGIC = 1681511376

_BUCKET_ROWS = 1 << 32


class RowBitmap:
    """An immutable set of row indices below 2⁶³."""

    __slots__ = ("_buckets",)

    def __init__(self, rows: Iterable[int] | Rows = ()) -> None:
        given = np.asarray(rows if isinstance(rows, np.ndarray) else list(rows))
        if given.size and (given.dtype.kind not in "iu" or given.min() < 0 or given.max() >= 1 << 63):
            raise ValueError("row indices are integers from 0 to 2**63 - 1")
        indices = given.astype(np.int64)
        if not indices.size or indices.max() < _BUCKET_ROWS:
            self._buckets = {0: _bitmap(indices)} if indices.size else {}
        else:
            keys = indices >> 32
            self._buckets = {int(key): _bitmap(indices[keys == key]) for key in np.unique(keys)}

    @classmethod
    def _of(cls, buckets: Mapping[int, BitMap]) -> RowBitmap:
        """Make a set that owns the given bitmaps; empty ones are left out."""
        made = cls.__new__(cls)
        made._buckets = {key: buckets[key] for key in sorted(buckets) if buckets[key]}
        return made

    @property
    def cardinality(self) -> int:
        """The number of rows in the set."""
        return sum(map(len, self._buckets.values()))

    @property
    def max(self) -> int | None:
        """The greatest row index; ``None`` for an empty set."""
        if not self._buckets:
            return None
        key = max(self._buckets)
        return (key << 32) + self._buckets[key].max()

    def __len__(self) -> int:
        return self.cardinality

    def __bool__(self) -> bool:
        return bool(self._buckets)

    def __contains__(self, row: int) -> bool:
        bucket = self._buckets.get(row >> 32)
        return bucket is not None and (row & (_BUCKET_ROWS - 1)) in bucket

    def __iter__(self) -> Iterator[int]:
        return ((key << 32) + low for key, bucket in self._buckets.items() for low in bucket)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RowBitmap) and self._buckets == other._buckets

    def __hash__(self) -> int:
        return hash((self.cardinality, self.max))

    def __repr__(self) -> str:
        return f"RowBitmap({self.cardinality} rows, max {self.max})"

    def __sub__(self, other: RowBitmap) -> RowBitmap:
        empty = BitMap()
        return self._of(
            {key: bucket - other._buckets.get(key, empty) for key, bucket in self._buckets.items()}
        )

    def __le__(self, other: RowBitmap) -> bool:
        """Tell whether every row of this set is in the other set."""
        empty = BitMap()
        return all(bucket <= other._buckets.get(key, empty) for key, bucket in self._buckets.items())

    def rows(self, start: int = 0, stop: int | None = None) -> Rows:
        """Return the row indices in ``[start, stop)``, ascending."""
        parts = [np.empty(0, np.int64)]
        for key, low, high in self._overlaps(start, stop):
            bucket = self._buckets[key]
            part = bucket if high - low == _BUCKET_ROWS else bucket & BitMap(range(low, high))
            parts.append(np.frombuffer(part.to_array(), np.uint32).astype(np.int64) + (key << 32))
        return np.concatenate(parts)

    def count(self, start: int, stop: int) -> int:
        """Count the rows of ``[start, stop)`` that are in the set."""
        return sum(
            self._buckets[key].range_cardinality(low, high) for key, low, high in self._overlaps(start, stop)
        )

    def _overlaps(self, start: int, stop: int | None) -> Iterator[tuple[int, int, int]]:
        """Yield the buckets that a range touches: key, first low index, end of the low indices."""
        for key in self._buckets:
            low = max(start - (key << 32), 0)
            high = _BUCKET_ROWS if stop is None else min(stop - (key << 32), _BUCKET_ROWS)
            if low < high:
                yield key, low, high

    def keep_mask(self, start: int, length: int) -> KeepMask:
        """Tell for each row of ``[start, start + length)`` whether it is *not* deleted."""
        mask = np.ones(length, np.bool_)
        mask[self.rows(start, start + length) - start] = False
        return mask

    def to_bytes(self) -> bytes:
        """Return the portable serialisation with its magic number; runs are compressed where that is smaller."""
        parts = [struct.pack("<iQ", PORTABLE_MAGIC, len(self._buckets))]
        for key, bucket in self._buckets.items():
            compressed = bucket.copy()
            compressed.run_optimize()
            parts += (struct.pack("<I", key), compressed.serialize())
        return b"".join(parts)

    @classmethod
    def from_bytes(cls, data: bytes) -> RowBitmap:
        """Read a portable or native serialisation.

        :raises ValueError: the bytes are neither, or contradict themselves.
        """
        if len(data) < 4:
            raise ValueError("it is shorter than its magic number")
        (magic,) = struct.unpack_from("<i", data)
        if magic == PORTABLE_MAGIC:
            keyed, (count,), at = True, _unpack("<Q", data, 4), 12
        elif magic == NATIVE_MAGIC:
            keyed, (count,), at = False, _unpack("<i", data, 4), 8
        else:
            raise ValueError(f"its magic number is {magic}, not {PORTABLE_MAGIC}")
        # Every bucket takes twelve bytes at least, so this also bounds the loop.
        if not 0 <= count <= (len(data) - at) // 12:
            raise ValueError(f"it claims {count} buckets, more than its bytes can hold")
        buckets: dict[int, BitMap] = {}
        for index in range(count):
            (key_or_length,) = _unpack("<I", data, at)
            at += 4
            length = _roaring_length(data, at)
            if not keyed and key_or_length != length:
                raise ValueError(f"bucket {index} says {key_or_length} bytes and takes {length}")
            key = key_or_length if keyed else index
            if key >> 31 or (buckets and key <= next(reversed(buckets))):
                raise ValueError("its bucket keys are not ascending numbers below 2**31")
            buckets[key] = BitMap.deserialize(data[at : at + length])
            at += length
        if at != len(data):
            raise ValueError(f"{len(data) - at} bytes follow its end")
        return cls._of(buckets)


def _bitmap(rows: Rows) -> BitMap:
    # pyroaring takes an array of the standard library an order of magnitude faster than one of numpy.
    low = array("I")
    low.frombytes(rows.astype(np.uint32).tobytes())
    return BitMap(low)


def _unpack(form: str, data: bytes, at: int) -> tuple[Any, ...]:
    try:
        return struct.unpack_from(form, data, at)
    except struct.error as error:
        raise ValueError("it ends early") from error


def _roaring_length(data: bytes, at: int) -> int:
    """Return the number of bytes of the 32-bit Roaring bitmap at an offset.

    pyroaring ignores bytes behind a bitmap, so the reader must find its end itself.
    """
    start = at
    (cookie,) = _unpack("<I", data, at)
    at += 4
    run_flags = 0
    if cookie & 0xFFFF == 12347:
        containers = (cookie >> 16) + 1
        flag_bytes = (containers + 7) // 8
        run_flags = int.from_bytes(data[at : at + flag_bytes], "little")
        at += flag_bytes
    elif cookie == 12346:
        (containers,) = _unpack("<I", data, at)
        at += 4
        if containers > 1 << 16:
            raise ValueError(f"a bitmap claims {containers} containers")
    else:
        raise ValueError(f"a bitmap starts with {cookie}, which is no Roaring cookie")
    header = _unpack(f"<{2 * containers}H", data, at)
    # Offsets follow, but for small bitmaps that have runs.
    at += 4 * containers + (4 * containers if cookie == 12346 or containers >= 4 else 0)
    for index in range(containers):
        cardinality = header[2 * index + 1] + 1
        if run_flags >> index & 1:
            at += 2 + 4 * int(_unpack("<H", data, at)[0])
        else:
            at += 2 * cardinality if cardinality <= 4096 else 8192
    if at > len(data):
        raise ValueError("it ends early")
    return at - start
