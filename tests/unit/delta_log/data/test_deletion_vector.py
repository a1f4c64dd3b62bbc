"""Deletion vectors decode to the rows that were deleted, and bytes that contradict themselves are refused."""

from __future__ import annotations

import json
import struct
import uuid
import zlib
from collections.abc import Iterator
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pyroaring import BitMap

from delta_log.data.deletion_vector import (
    NATIVE_MAGIC,
    PORTABLE_MAGIC,
    RowBitmap,
    deletion_vector_key,
    encode_deletion_vectors,
    inline_descriptor,
    read_deletion_vector,
    vector_location,
    write_deletion_vectors,
)
from delta_log.data.z85 import encode_z85
from delta_log.errors import CorruptLog, InvalidRequest, UnsupportedFeature
from delta_log.log.actions import DeletionVector
from delta_log.log.data_path import ExternalFile
from delta_log.storage.local import LocalStorage
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

# Rows close together, far apart, and in buckets above 2**32.
rows = st.integers(0, 300) | st.integers(0, 2**33) | st.integers(2**40 - 5, 2**40 + 5) | st.just(2**63 - 1)
row_sets = st.sets(rows, max_size=40)
ranges = st.lists(st.tuples(rows.filter(lambda row: row < 2**41), st.integers(0, 70_000)), max_size=4)


def bitmap_of(spans: list[tuple[int, int]]) -> RowBitmap:
    return RowBitmap.from_ranges((start, start + length) for start, length in spans)


@given(row_sets, ranges)
@example(set(), [(2**32 - 2, 4)])
@example({0}, [(0, 65536), (2**32, 65536)])
def test_every_set_of_rows_survives_its_bytes(some: set[int], spans: list[tuple[int, int]]) -> None:
    bitmap = RowBitmap(some) | bitmap_of(spans)
    assert RowBitmap.from_bytes(bitmap.to_bytes()) == bitmap
    if bitmap:
        storage = MemoryStorage()
        for descriptor in (inline_descriptor(bitmap), *write_deletion_vectors(storage, [bitmap], FILE_ID)):
            assert DeletionVector.from_row(msgspec.to_builtins(descriptor)) == descriptor
            assert descriptor.cardinality == bitmap.cardinality
            assert read_deletion_vector(descriptor, storage) == bitmap


@given(row_sets, row_sets, rows, st.integers(0, 1000))
def test_a_bitmap_behaves_like_a_set(one: set[int], other: set[int], start: int, length: int) -> None:
    left, right = RowBitmap(one), RowBitmap(np.array(sorted(other), np.uint64))
    assert sorted(left | right) == sorted(one | other)
    assert sorted(left - right) == sorted(one - other)
    assert sorted(left & right) == sorted(one & other)
    assert (left <= right) == (one <= other)
    assert left <= (left | right)
    assert (left == right) == (one == other)
    assert left.cardinality == len(left) == len(one)
    assert left.max == (max(one) if one else None)
    assert bool(left) == bool(one)
    assert all(row in left for row in one)
    assert left.rows().tolist() == sorted(one)
    inside = sorted(row for row in one if start <= row < start + length)
    assert left.rows(start, start + length).tolist() == inside
    assert left.count(start, start + length) == len(inside)
    assert left.keep_mask(start, length).tolist() == [row not in one for row in range(start, start + length)]


@given(ranges)
@example([(2**32 - 2, 4), (5, 1), (6, 1)])
def test_ranges_are_maximal_and_cover_the_set(spans: list[tuple[int, int]]) -> None:
    bitmap = bitmap_of(spans)
    found = list(bitmap.ranges())
    assert all(start < stop for start, stop in found)
    assert all(before[1] < after[0] for before, after in pairwise(found))
    assert RowBitmap.from_ranges(found) == bitmap
    assert sum(stop - start for start, stop in found) == bitmap.cardinality


@pytest.mark.parametrize("bad", [[-1], [2**63], [1.5], ["1"], np.array([True])])
def test_only_row_indices_are_taken(bad: object) -> None:
    with pytest.raises((ValueError, TypeError)):
        RowBitmap(bad)  # type: ignore[arg-type]


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


def test_the_native_form_is_read() -> None:
    parts = [BitMap([1, 5]), BitMap(), BitMap([7])]
    data = struct.pack("<ii", NATIVE_MAGIC, len(parts))
    for part in parts:
        data += struct.pack("<i", len(part.serialize())) + part.serialize()
    assert list(RowBitmap.from_bytes(data)) == [1, 5, 2**33 + 7]
    with pytest.raises(ValueError, match="bytes"):
        RowBitmap.from_bytes(data.replace(struct.pack("<i", len(parts[0].serialize())), b"\x01\0\0\0", 1))


def test_empty_buckets_and_gaps_of_the_java_writer_are_read() -> None:
    buckets = ((0, BitMap()), (1, BitMap([3])), (4, BitMap(range(70_000))), (9, BitMap()))
    data = struct.pack("<iQ", PORTABLE_MAGIC, len(buckets))
    for key, bucket in buckets:
        data += struct.pack("<I", key) + bucket.serialize()
    assert RowBitmap.from_bytes(data) == RowBitmap([2**32 + 3]) | bitmap_of([(4 << 32, 70_000)])


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
        inline_descriptor(RowBitmap())
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


@given(st.binary(max_size=60), st.sampled_from([b"", GOLDEN_FILE[5:9], GOLDEN_FILE[5:21], GOLDEN_FILE[5:25]]))
@example(struct.pack("<Q", 2**63), GOLDEN_FILE[5:9])
@example(struct.pack("<I", 2**31 - 1), struct.pack("<i", NATIVE_MAGIC))
@example(struct.pack("<QII", 1, 0, 12346) + b"\xff" * 4, GOLDEN_FILE[5:9])
@example(struct.pack("<QII", 1, 0, 12347 | 0xFFFF << 16) + b"\xff" * 40, GOLDEN_FILE[5:9])
def test_bytes_of_any_kind_are_decoded_or_refused(noise: bytes, start: bytes) -> None:
    try:
        bitmap = RowBitmap.from_bytes(start + noise)
    except ValueError:
        return
    assert RowBitmap.from_bytes(bitmap.to_bytes()) == bitmap


def test_bucket_keys_ascend() -> None:
    bucket = BitMap([1]).serialize()
    for keys in ((1, 0), (1, 1), (2**31,)):
        data = struct.pack("<iQ", PORTABLE_MAGIC, len(keys))
        data += b"".join(struct.pack("<I", key) + bucket for key in keys)
        with pytest.raises(ValueError, match="ascending"):
            RowBitmap.from_bytes(data)


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

    def read(file: ExternalFile, start: int, length: int) -> bytes:
        assert file == ExternalFile("s3://other/dv.bin", same_store=False)
        return GOLDEN_FILE[start : start + length]

    assert list(read_deletion_vector(outside, storage, read)) == GOLDEN_ROWS


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
