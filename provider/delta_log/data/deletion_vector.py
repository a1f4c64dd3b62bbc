"""Deletion vectors: which rows of a data file are deleted.

Protocol sections "Deletion Vectors" and "Deletion Vector Format". Three layers, outermost first: a *descriptor* in the
log says where the bytes are (in a file under the root, in one elsewhere, or in the descriptor itself); a *file* packs
several vectors, each with its size and CRC; the bytes are a *RoaringBitmapArray*: one 32-bit Roaring bitmap for each
2³² rows, here a :class:`RowBitmap`.

1. Row indices are 0-based physical positions in the Parquet file, across its row groups.
2. Whatever the bytes contradict (length, CRC, magic, order, cardinality, anything left over) is refused. No length
   field makes us allocate more than the bytes that are there.
3. The "native" serialisation is read and never written. Storage type ``r`` (adaptive metadata) is refused.

This module is the only door to pyroaring.
"""

from __future__ import annotations

import struct
import uuid
import zlib
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap

from delta_log.data.z85 import decode_z85, encode_z85
from delta_log.errors import CorruptLog, InvalidRequest, UnsupportedFeature
from delta_log.log.actions import DeletionVector
from delta_log.log.data_path import ExternalFile, Location, resolve
from delta_log.storage.storage import Storage

Rows = npt.NDArray[np.int64]
KeepMask = npt.NDArray[np.bool_]

FILE_VERSION = 1
PORTABLE_MAGIC = 1681511377
NATIVE_MAGIC = 1681511376

_BUCKET_ROWS = 1 << 32
#: A vector that claims more than this has the length of its file asked first.
_TRUSTED_SIZE_BYTES = 1 << 20
#: A vector that starts before this is read together with what precedes it, sparing a request for the version byte.
_READ_FROM_START_BYTES = 1 << 16


class RowBitmap:
    """An immutable set of row indices below 2⁶³. Operations give new sets."""

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
        """Takes the bitmaps over; empty ones are left out."""
        made = cls.__new__(cls)
        made._buckets = {key: buckets[key] for key in sorted(buckets) if buckets[key]}
        return made

    @classmethod
    def from_ranges(cls, ranges: Iterable[tuple[int, int]]) -> RowBitmap:
        """The union of half-open ranges ``[start, stop)``."""
        buckets: dict[int, BitMap] = {}
        for first, stop in ranges:
            start = first
            while start < stop:
                key, end = start >> 32, min(stop, (start | _BUCKET_ROWS - 1) + 1)
                buckets.setdefault(key, BitMap()).add_range(start - (key << 32), end - (key << 32))
                start = end
        return cls._of(buckets)

    @property
    def cardinality(self) -> int:
        """How many rows are deleted."""
        return sum(map(len, self._buckets.values()))

    @property
    def max(self) -> int | None:
        """The greatest row index; ``None``: the set is empty."""
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

    def __or__(self, other: RowBitmap) -> RowBitmap:
        buckets = dict(self._buckets)
        for key, bucket in other._buckets.items():
            buckets[key] = buckets[key] | bucket if key in buckets else bucket
        return self._of(buckets)

    def __sub__(self, other: RowBitmap) -> RowBitmap:
        empty = BitMap()
        return self._of(
            {key: bucket - other._buckets.get(key, empty) for key, bucket in self._buckets.items()}
        )

    def __and__(self, other: RowBitmap) -> RowBitmap:
        common = self._buckets.keys() & other._buckets.keys()
        return self._of({key: self._buckets[key] & other._buckets[key] for key in common})

    def __le__(self, other: RowBitmap) -> bool:
        """Whether every row of this set is in the other one."""
        empty = BitMap()
        return all(bucket <= other._buckets.get(key, empty) for key, bucket in self._buckets.items())

    def rows(self, start: int = 0, stop: int | None = None) -> Rows:
        """The row indices in ``[start, stop)``, ascending."""
        parts = [np.empty(0, np.int64)]
        for key, low, high in self._overlaps(start, stop):
            bucket = self._buckets[key]
            part = bucket if high - low == _BUCKET_ROWS else bucket & BitMap(range(low, high))
            parts.append(np.frombuffer(part.to_array(), np.uint32).astype(np.int64) + (key << 32))
        return np.concatenate(parts)

    def count(self, start: int, stop: int) -> int:
        """How many rows of ``[start, stop)`` are in the set."""
        return sum(
            self._buckets[key].range_cardinality(low, high) for key, low, high in self._overlaps(start, stop)
        )

    def _overlaps(self, start: int, stop: int | None) -> Iterator[tuple[int, int, int]]:
        """The buckets that a range touches: key, first low index, end of the low indices."""
        for key in self._buckets:
            low = max(start - (key << 32), 0)
            high = _BUCKET_ROWS if stop is None else min(stop - (key << 32), _BUCKET_ROWS)
            if low < high:
                yield key, low, high

    def keep_mask(self, start: int, length: int) -> KeepMask:
        """For each row of ``[start, start + length)``: whether it is *not* deleted."""
        mask = np.ones(length, np.bool_)
        mask[self.rows(start, start + length) - start] = False
        return mask

    def ranges(self) -> Iterator[tuple[int, int]]:
        """The maximal half-open ranges of consecutive rows, ascending."""
        pending: tuple[int, int] | None = None
        for key, bucket in self._buckets.items():
            rows = np.frombuffer(bucket.to_array(), np.uint32)
            breaks = np.flatnonzero(np.diff(rows) != 1)
            starts = rows[np.concatenate(([0], breaks + 1))].tolist()
            ends = rows[np.concatenate((breaks, [rows.size - 1]))].tolist()
            for first, last in zip(starts, ends, strict=True):
                start, stop = (key << 32) + first, (key << 32) + last + 1
                if pending is not None and pending[1] == start:
                    pending = (pending[0], stop)
                    continue
                if pending is not None:
                    yield pending
                pending = (start, stop)
        if pending is not None:
            yield pending

    def to_bytes(self) -> bytes:
        """The portable serialisation, magic included, runs compressed where that is smaller."""
        parts = [struct.pack("<iQ", PORTABLE_MAGIC, len(self._buckets))]
        for key, bucket in self._buckets.items():
            compressed = bucket.copy()
            compressed.run_optimize()
            parts += (struct.pack("<I", key), compressed.serialize())
        return b"".join(parts)

    @classmethod
    def from_bytes(cls, data: bytes) -> RowBitmap:
        """The set that a portable or native serialisation stands for; :class:`ValueError` where it is neither."""
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
    """How many bytes the 32-bit Roaring bitmap there takes: pyroaring ignores what follows it, we must not."""
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


def vector_location(vector: DeletionVector, table_uri: str) -> Location | None:
    """The vector's file: a key, or an :class:`~delta_log.log.data_path.ExternalFile`; ``None``: it is inline.

    :raises CorruptLog: the descriptor names no file.
    """
    path = vector.pathOrInlineDv
    if vector.storageType == "i":
        return None
    if vector.storageType == "p":
        return resolve(path, table_uri)
    if vector.storageType == "u":
        prefix, encoded = path[:-20], path[-20:]
        try:
            file_id = uuid.UUID(bytes=decode_z85(encoded))
        except ValueError as error:
            raise _corrupt(vector, "its path does not end with a UUID in Z85") from error
        if any(part in ("", ".", "..") for part in prefix.split("/")) and prefix:
            raise _corrupt(vector, f"its prefix {prefix!r} is no directory below the table's root")
        return deletion_vector_key(file_id, prefix)
    if vector.storageType == "r":
        raise UnsupportedFeature(("deletion vector storage type 'r'",), "read")
    raise _corrupt(vector, f"its storage type is {vector.storageType!r}")


def _corrupt(descriptor: DeletionVector, why: str) -> CorruptLog:
    return CorruptLog(f"deletion vector {descriptor.unique_id}", why)


def deletion_vector_key(file_id: uuid.UUID, prefix: str = "") -> str:
    """The key of a vector file of storage type ``u``."""
    name = f"deletion_vector_{file_id}.bin"
    return f"{prefix}/{name}" if prefix else name


ReadExternal = Callable[[ExternalFile, int, int], bytes]


def read_deletion_vector(
    descriptor: DeletionVector, storage: Storage, read_external: ReadExternal | None = None
) -> RowBitmap:
    """The rows that a descriptor stands for.

    :param read_external: reads ``(file, start, length)`` of a file outside the table's root; where there is none,
        such a vector is refused.
    :raises CorruptLog: descriptor, file and bitmap do not agree, or the file is missing.
    """
    location = vector_location(descriptor, storage.uri)
    if location is None:
        bitmap = _read_inline(descriptor)
    elif isinstance(location, str):
        bitmap = _read_stored(
            descriptor, location, lambda start, length: storage.read(location, start, length), storage
        )
    elif read_external is None:
        raise UnsupportedFeature(
            ("deletion vectors outside the table's root",), "read", f"{location.uri} is one of another table"
        )
    else:
        bitmap = _read_stored(
            descriptor, location.uri, lambda start, length: read_external(location, start, length), None
        )
    if bitmap.cardinality != descriptor.cardinality:
        raise _corrupt(descriptor, f"it says {descriptor.cardinality} rows and has {bitmap.cardinality}")
    return bitmap


def _read_inline(descriptor: DeletionVector) -> RowBitmap:
    try:
        return RowBitmap.from_bytes(_inline_payload(descriptor.pathOrInlineDv, descriptor.sizeInBytes))
    except ValueError as error:
        raise _corrupt(descriptor, str(error)) from error


def _inline_payload(text: str, size: int) -> bytes:
    data = decode_z85(text)
    # The encoder padded to four bytes.
    if not 0 <= len(data) - size < 4:
        raise ValueError(f"it says {size} bytes and holds {len(data)}")
    return data[:size]


def _read_stored(
    descriptor: DeletionVector,
    name: str,
    read: Callable[[int, int], bytes],
    storage: Storage | None,
) -> RowBitmap:
    offset = 1 if descriptor.offset is None else descriptor.offset
    size = descriptor.sizeInBytes
    if offset < 1 or size < 0:
        raise _corrupt(descriptor, f"its offset is {offset} and its size {size}")
    try:
        if size > _TRUSTED_SIZE_BYTES and storage is not None:
            _require_room(storage, name, offset + 8 + size)
        if offset <= _READ_FROM_START_BYTES:
            data = read(0, offset + 8 + size)
            version, data = data[:1], data[offset:]
        else:
            version, data = read(0, 1), read(offset, 8 + size)
    except FileNotFoundError as error:
        raise CorruptLog(name, "this deletion vector file is named by the log and is not there") from error
    if version != bytes([FILE_VERSION]):
        raise CorruptLog(
            name, f"its first byte is {version.hex() or 'missing'}, not format version {FILE_VERSION}"
        )
    try:
        return RowBitmap.from_bytes(_checked_payload(data, size))
    except ValueError as error:
        raise CorruptLog(name, f"the deletion vector at offset {offset}: {error}") from error


def _require_room(storage: Storage, key: str, end: int) -> None:
    info = storage.head(key)
    if info is not None and info.size < end:
        raise CorruptLog(key, f"it has {info.size} bytes, and a deletion vector in it would end at {end}")


def _checked_payload(data: bytes, size: int) -> bytes:
    if len(data) < 8 + size:
        raise ValueError(f"it ends {8 + size - len(data)} bytes early")
    (stated,) = struct.unpack_from(">i", data)
    if stated != size:
        raise ValueError(f"it says {stated} bytes, the log says {size}")
    payload = data[4 : 4 + size]
    (crc,) = struct.unpack_from(">I", data, 4 + size)
    if zlib.crc32(payload) != crc:
        raise ValueError("its checksum does not match")
    return payload


def inline_descriptor(bitmap: RowBitmap) -> DeletionVector:
    """A descriptor that holds the rows in itself."""
    payload = _payload(bitmap)
    return DeletionVector(
        "i", encode_z85(payload + bytes(-len(payload) % 4)), len(payload), bitmap.cardinality
    )


def encode_deletion_vectors(
    bitmaps: Sequence[RowBitmap], file_id: uuid.UUID, prefix: str = ""
) -> tuple[bytes, list[DeletionVector]]:
    """One vector file that packs several bitmaps, and a descriptor for each.

    :raises InvalidRequest: there is none, or one is empty (a file without deleted rows has no deletion vector).
    """
    if not bitmaps:
        raise InvalidRequest("A deletion vector file needs at least one vector.")
    parts, offset = [bytes([FILE_VERSION])], 1
    path = prefix + encode_z85(file_id.bytes)
    descriptors = []
    for bitmap in bitmaps:
        payload = _payload(bitmap)
        descriptors.append(DeletionVector("u", path, len(payload), bitmap.cardinality, offset))
        parts += (struct.pack(">i", len(payload)), payload, struct.pack(">I", zlib.crc32(payload)))
        offset += len(payload) + 8
    return b"".join(parts), descriptors


def write_deletion_vectors(
    storage: Storage, bitmaps: Sequence[RowBitmap], file_id: uuid.UUID, prefix: str = ""
) -> list[DeletionVector]:
    """Write one vector file; such files are never rewritten, so every call needs a new ``file_id``."""
    data, descriptors = encode_deletion_vectors(bitmaps, file_id, prefix)
    storage.put(deletion_vector_key(file_id, prefix), data)
    return descriptors


def _payload(bitmap: RowBitmap) -> bytes:
    if not bitmap:
        raise InvalidRequest(
            "An empty deletion vector must not be written: a file without deleted rows has none."
        )
    return bitmap.to_bytes()
