"""Deletion vectors decode to the rows that were deleted, and bytes that contradict themselves are refused."""

from __future__ import annotations

import json
import struct
import uuid
import zlib
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from delta_log.data.deletion_vector import (
    decode_z85,
    deletion_vector_key,
    encode_deletion_vectors,
    encode_z85,
    inline_deletion_vector,
    read_deletion_vector,
    vector_location,
    write_deletion_vectors,
)
from delta_log.data.row_bitmap import RowBitmap
from delta_log.errors import CorruptLog, InvalidRequest, UnsupportedFeature
from delta_log.log.actions import DeletionVector
from delta_log.storage.local.local_storage import LocalStorage
from delta_log.testing import MemoryStorage

GOLDEN_ROWS = [3, 4, 7, 11, 18, 29]
GOLDEN_INLINE = "^Bg9^0rr910000000000iXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L"
GOLDEN_FILE = bytes.fromhex(
    "010000002cd1d339640100000000000000000000003a30000001000000000005001000000003000400"
    "07000b0012001d00acd74a79"
)
# Made by hand in the corpus; no reader takes it.
OVERFLOWING_INLINE = "^Bg9^0rr910000000000iXQKl0rr91000005c8Xg##093"
FILE_ID = uuid.UUID("d2c639aa-8816-431a-aaf6-d3fe2512ff61")


def inline_descriptor(bitmap: RowBitmap) -> DeletionVector:
    """Makes a descriptor that holds the rows itself; the product writes no such vectors."""
    payload = bitmap.to_bytes()
    return DeletionVector("i", encode_z85(payload + bytes(-len(payload) % 4)), len(payload), len(bitmap))


@given(st.sets(st.integers(0, 300) | st.integers(0, 2**41), min_size=1, max_size=40))
def test_every_vector_survives_its_bytes(rows: set[int]) -> None:
    bitmap, storage = RowBitmap(rows), MemoryStorage()
    for descriptor in (inline_descriptor(bitmap), *write_deletion_vectors(storage, [bitmap], FILE_ID)):
        assert DeletionVector.from_row(msgspec.to_builtins(descriptor)) == descriptor
        assert descriptor.cardinality == len(rows)
        assert read_deletion_vector(descriptor, storage) == bitmap


def test_the_golden_vector_is_written_and_read_byte_for_byte() -> None:
    bitmap = RowBitmap(GOLDEN_ROWS)
    inline = inline_descriptor(bitmap)
    assert inline == DeletionVector("i", GOLDEN_INLINE, 44, 6)
    assert read_deletion_vector(inline, MemoryStorage()) == bitmap
    data, (descriptor,) = encode_deletion_vectors([bitmap], FILE_ID, "ab")
    assert data == GOLDEN_FILE
    assert descriptor == DeletionVector("u", "ab" + encode_z85(FILE_ID.bytes), 44, 6, 1)
    assert descriptor.unique_id == f"uab{encode_z85(FILE_ID.bytes)}@1"
    assert vector_location(descriptor, "/t") == f"ab/deletion_vector_{FILE_ID}.bin"


def test_the_descriptor_names_the_file_of_the_specification() -> None:
    descriptor = DeletionVector("u", "ab^-aqEH.-t@S}K{vb[*k^", 40, 6, 4)
    assert vector_location(descriptor, "/t") == f"ab/{deletion_vector_key(FILE_ID)}"


def test_the_broken_example_of_the_specification_is_refused() -> None:
    broken = DeletionVector("i", "wi5b=000010000siXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L", 40, 6)
    with pytest.raises(CorruptLog, match="magic"):
        read_deletion_vector(broken, MemoryStorage())


def test_several_vectors_are_packed_into_one_file() -> None:
    storage = MemoryStorage()
    bitmaps = [RowBitmap([1]), RowBitmap(range(100_000)), RowBitmap(range(0, 2**20, 2)), RowBitmap([2**35])]
    descriptors = write_deletion_vectors(storage, bitmaps, FILE_ID)
    assert len({descriptor.unique_id for descriptor in descriptors}) == 4
    assert descriptors[3].offset is not None
    assert descriptors[3].offset > 1 << 16
    for descriptor, bitmap in zip(descriptors, bitmaps, strict=True):
        assert read_deletion_vector(descriptor, storage) == bitmap


def test_an_empty_vector_is_not_written() -> None:
    with pytest.raises(InvalidRequest):
        encode_deletion_vectors([RowBitmap([1]), RowBitmap()], FILE_ID)
    with pytest.raises(InvalidRequest):
        encode_deletion_vectors([], FILE_ID)


def stored(data: bytes) -> MemoryStorage:
    storage = MemoryStorage()
    storage.put(deletion_vector_key(FILE_ID), data)
    return storage


def descriptor_of(size: int = 44, cardinality: int = 6, offset: int | None = 1) -> DeletionVector:
    return DeletionVector("u", encode_z85(FILE_ID.bytes), size, cardinality, offset)


def test_an_absent_offset_is_the_first_vector_and_another_identity() -> None:
    descriptor = descriptor_of(offset=None)
    assert list(read_deletion_vector(descriptor, stored(GOLDEN_FILE))) == GOLDEN_ROWS
    assert len({descriptor_of(offset=offset).unique_id for offset in (None, 0, 1)}) == 3


@given(st.integers(0, len(GOLDEN_FILE) - 1), st.integers(1, 255))
def test_a_changed_byte_is_noticed(at: int, change: int) -> None:
    data = bytearray(GOLDEN_FILE)
    data[at] ^= change
    with pytest.raises(CorruptLog):
        read_deletion_vector(descriptor_of(), stored(bytes(data)))


@given(st.integers(0, len(GOLDEN_FILE) - 1))
def test_a_truncated_file_is_noticed(length: int) -> None:
    with pytest.raises(CorruptLog):
        read_deletion_vector(descriptor_of(), stored(GOLDEN_FILE[:length]))


def test_a_descriptor_that_disagrees_with_its_file_is_refused() -> None:
    for wrong in (
        descriptor_of(size=43),
        descriptor_of(size=45),
        descriptor_of(size=2**31 - 1),
        descriptor_of(size=-1),
        descriptor_of(cardinality=5),
        descriptor_of(offset=0),
        descriptor_of(offset=2),
        descriptor_of(offset=2**31 - 1),
        descriptor_of(offset=-3),
    ):
        with pytest.raises(CorruptLog):
            read_deletion_vector(wrong, stored(GOLDEN_FILE))
    with pytest.raises(CorruptLog, match="not there"):
        read_deletion_vector(descriptor_of(), MemoryStorage())


def test_an_inline_descriptor_that_contradicts_itself_is_refused() -> None:
    for text, size, cardinality in (
        (GOLDEN_INLINE, 40, 6),
        (GOLDEN_INLINE, 45, 6),
        (GOLDEN_INLINE, 44, 7),
        (GOLDEN_INLINE[:-1], 44, 6),
        (GOLDEN_INLINE[:-1] + "~", 44, 6),
        ("", 0, 0),
    ):
        with pytest.raises(CorruptLog):
            read_deletion_vector(DeletionVector("i", text, size, cardinality), MemoryStorage())


def test_bytes_behind_the_last_bucket_are_refused_even_with_a_good_checksum() -> None:
    payload = GOLDEN_FILE[5:49] + b"\0"
    data = b"\1" + struct.pack(">i", 45) + payload + struct.pack(">I", zlib.crc32(payload))
    with pytest.raises(CorruptLog, match="follow its end"):
        read_deletion_vector(descriptor_of(size=45), stored(data))


@pytest.mark.parametrize(
    ("kind", "text"),
    [("u", "tooshort"), ("u", "../" + encode_z85(FILE_ID.bytes)), ("u", "~" * 20), ("x", "a"), ("p", "%zz")],
)
def test_a_descriptor_that_names_no_file_is_refused(kind: str, text: str) -> None:
    with pytest.raises(CorruptLog):
        read_deletion_vector(DeletionVector(kind, text, 44, 6, 1), MemoryStorage())


def test_an_absolute_path_is_followed_below_the_root_only() -> None:
    storage = MemoryStorage("s3://bucket/t")
    storage.put("some dir/dv.bin", GOLDEN_FILE)
    inside = DeletionVector("p", "s3a://bucket/t/some%20dir/dv.bin", 44, 6, 1)
    assert list(read_deletion_vector(inside, storage)) == GOLDEN_ROWS
    outside = DeletionVector("p", "s3://other/dv.bin", 44, 6, 1)
    with pytest.raises(UnsupportedFeature, match=r"s3://other/dv\.bin"):
        read_deletion_vector(outside, storage)


def test_the_tree_storage_type_is_refused_by_name() -> None:
    with pytest.raises(UnsupportedFeature, match="type 'r'"):
        read_deletion_vector(DeletionVector("r", "x", 44, 6, 1), MemoryStorage())


def test_every_vector_of_the_corpus_has_its_cardinality(corpus: Path) -> None:
    seen = 0
    for log in sorted(corpus.glob("*/_delta_log")):
        storage = LocalStorage(str(log.parent))
        for raw in _vectors(log):
            descriptor = DeletionVector.from_row(raw)
            location = vector_location(descriptor, storage.uri)
            if descriptor.pathOrInlineDv == OVERFLOWING_INLINE:
                with pytest.raises(CorruptLog, match="overflow"):
                    read_deletion_vector(descriptor, storage)
            # Some tables were published without their data files.
            elif location is None or storage.head(str(location)):
                bitmap = read_deletion_vector(descriptor, storage)
                assert bitmap.cardinality == raw["cardinality"]
                assert RowBitmap.from_bytes(bitmap.to_bytes()) == bitmap
                seen += 1
    assert seen >= 30


def _vectors(log: Path) -> Iterator[dict[str, Any]]:
    for line in chain.from_iterable(
        commit.read_bytes().splitlines() for commit in sorted(log.glob("*.json"))
    ):
        if b'"deletionVector"' in line:
            action = json.loads(line)
            file = action.get("add") or action.get("remove") or {}
            if file.get("deletionVector"):
                yield file["deletionVector"]


@given(st.binary().map(lambda data: data + bytes(-len(data) % 4)))
def test_bytes_survive(data: bytes) -> None:
    text = encode_z85(data)
    assert decode_z85(text) == data
    assert len(text) == len(data) // 4 * 5


def test_the_example_of_the_rfc() -> None:
    assert encode_z85(bytes.fromhex("864fd26fb559f75b")) == "HelloWorld"
    assert decode_z85("HelloWorld") == bytes.fromhex("864fd26fb559f75b")


@pytest.mark.parametrize(
    "text", ["1234", "#####", "12\x00345"[:5], "1234~", "1234;", "1234ü", '1234"', "1234 "]
)
def test_what_is_not_z85_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        decode_z85(text)


def test_a_number_of_bytes_that_is_not_a_multiple_of_four_is_refused() -> None:
    with pytest.raises(ValueError):
        encode_z85(b"abc")


@given(st.sets(st.integers(0, 1 << 34), min_size=1, max_size=50))
def test_an_inline_vector_is_read_as_it_was_written(rows: set[int]) -> None:
    descriptor = inline_deletion_vector(RowBitmap(sorted(rows)))
    assert (descriptor.storageType, descriptor.cardinality) == ("i", len(rows))
    assert set(read_deletion_vector(descriptor, MemoryStorage())) == rows
