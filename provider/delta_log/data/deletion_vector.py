"""Deletion vectors: which rows of a data file are deleted.

Protocol sections "Deletion Vectors" and "Deletion Vector Format". There are three layers. A *descriptor* in the log
(:class:`~delta_log.log.actions.DeletionVector`) says where the bytes are: in a file under the root, in a file elsewhere, or in
the descriptor itself. A *file* packs several vectors, each with its size and CRC. The bytes encode a
:class:`~delta_log.data.row_bitmap.RowBitmap`.

1. Row indices are 0-based physical positions in the Parquet file, across its row groups.
2. The reader refuses a vector whose descriptor, file and bitmap contradict each other (length, CRC, cardinality).
3. Storage type ``r`` (adaptive metadata) is refused.
"""

from __future__ import annotations

import base64
import struct
import uuid
import zlib
from collections.abc import Sequence

from delta_log.data.row_bitmap import RowBitmap
from delta_log.errors import CorruptLog, InvalidRequest, UnsupportedFeature
from delta_log.log.actions import DeletionVector
from delta_log.log.data_path import ExternalFile, Location, resolve
from delta_log.storage.storage import Storage

_Z85 = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_RFC1924 = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
_TO_Z85 = bytes.maketrans(_RFC1924, _Z85)
# A character that is not Z85 becomes NUL, which the decoder refuses.
_FROM_Z85 = bytes(_RFC1924[_Z85.index(byte)] if byte in _Z85 else 0 for byte in range(256))


def encode_z85(data: bytes) -> str:
    """Encode bytes, whose number must be a multiple of four, as Z85 (ZeroMQ's RFC 32): five characters for four bytes.

    Z85 is the code of RFC 1924, which the standard library has, in another alphabet.
    """
    if len(data) % 4:
        raise ValueError(f"Z85 encodes four bytes at a time, and these are {len(data)}")
    return base64.b85encode(data).translate(_TO_Z85).decode("ascii")


def decode_z85(text: str) -> bytes:
    """Decode a text.

    :raises ValueError: it is not Z85.
    """
    if len(text) % 5:
        raise ValueError(f"Z85 comes in groups of five characters, and these are {len(text)}")
    return base64.b85decode(text.encode("ascii").translate(_FROM_Z85))


FILE_VERSION = 1

#: Before the reader reads a vector that claims more than this, it asks for the length of its file.
_TRUSTED_SIZE_BYTES = 1 << 20
#: A vector that starts before this is read together with the bytes before it, which saves a request for the version byte.
_READ_FROM_START_BYTES = 1 << 16


def vector_location(vector: DeletionVector, table_uri: str) -> Location | None:
    """Return the key of a vector's file, or an :class:`~delta_log.log.data_path.ExternalFile`; ``None`` if it is inline.

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
    """Return the key of a vector file of storage type ``u``."""
    name = f"deletion_vector_{file_id}.bin"
    return f"{prefix}/{name}" if prefix else name


def read_deletion_vector(descriptor: DeletionVector, storage: Storage) -> RowBitmap:
    """Read the rows that a deletion vector hides.

    :raises CorruptLog: descriptor, file and bitmap contradict each other, or the file is missing.
    :raises UnsupportedFeature: the vector lies outside the table's root.
    """
    location = vector_location(descriptor, storage.uri)
    if isinstance(location, ExternalFile):
        raise UnsupportedFeature(
            ("deletion vectors outside the table's root",), "read", f"{location.uri} is one of another table"
        )
    bitmap = _read_inline(descriptor) if location is None else _read_stored(descriptor, location, storage)
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
    # Writers pad the bytes to a multiple of four.
    if not 0 <= len(data) - size < 4:
        raise ValueError(f"it says {size} bytes and holds {len(data)}")
    return data[:size]


def _read_stored(descriptor: DeletionVector, key: str, storage: Storage) -> RowBitmap:
    offset = 1 if descriptor.offset is None else descriptor.offset
    size = descriptor.sizeInBytes
    if offset < 1 or size < 0:
        raise _corrupt(descriptor, f"its offset is {offset} and its size {size}")
    try:
        if size > _TRUSTED_SIZE_BYTES:
            _require_room(storage, key, offset + 8 + size)
        if offset <= _READ_FROM_START_BYTES:
            data = storage.read(key, 0, offset + 8 + size)
            version, data = data[:1], data[offset:]
        else:
            version, data = storage.read(key, 0, 1), storage.read(key, offset, 8 + size)
    except FileNotFoundError as error:
        raise CorruptLog(key, "this deletion vector file is named by the log and is not there") from error
    if version != bytes([FILE_VERSION]):
        raise CorruptLog(
            key, f"its first byte is {version.hex() or 'missing'}, not format version {FILE_VERSION}"
        )
    try:
        return RowBitmap.from_bytes(_checked_payload(data, size))
    except ValueError as error:
        raise CorruptLog(key, f"the deletion vector at offset {offset}: {error}") from error


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


def encode_deletion_vectors(
    bitmaps: Sequence[RowBitmap], file_id: uuid.UUID, prefix: str = ""
) -> tuple[bytes, list[DeletionVector]]:
    """Encode several bitmaps as one vector file, and return a descriptor for each.

    :raises InvalidRequest: there is no bitmap, or one is empty (a file without deleted rows has no deletion vector).
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


def inline_deletion_vector(bitmap: RowBitmap) -> DeletionVector:
    """Return a descriptor that holds the bitmap itself.

    :raises InvalidRequest: the bitmap is empty.
    """
    payload = _payload(bitmap)
    padded = payload + bytes(-len(payload) % 4)
    return DeletionVector("i", encode_z85(padded), len(payload), bitmap.cardinality)


def write_deletion_vectors(
    storage: Storage, bitmaps: Sequence[RowBitmap], file_id: uuid.UUID, prefix: str = ""
) -> list[DeletionVector]:
    """Write one vector file. Vector files are never rewritten, so every call needs a new ``file_id``."""
    data, descriptors = encode_deletion_vectors(bitmaps, file_id, prefix)
    storage.put(deletion_vector_key(file_id, prefix), data)
    return descriptors


def _payload(bitmap: RowBitmap) -> bytes:
    if not bitmap:
        raise InvalidRequest(
            "An empty deletion vector must not be written: a file without deleted rows has none."
        )
    return bitmap.to_bytes()
