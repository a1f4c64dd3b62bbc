"""Sets of deleted rows decode to what was encoded, and bytes that contradict themselves are refused."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pyroaring import BitMap

from delta_log.data.row_bitmap import NATIVE_MAGIC, PORTABLE_MAGIC, RowBitmap

#: The rows 3, 4, 7, 11, 18 and 29.
GOLDEN = bytes.fromhex(
    "d339640100000000000000000000003a3000000100000000000500100000000300040007000b0012001d00"
)

# Rows close together, far apart, and in buckets above 2**32.
rows = st.integers(0, 300) | st.integers(0, 2**33) | st.integers(2**40 - 5, 2**40 + 5) | st.just(2**63 - 1)
row_sets = st.sets(rows, max_size=40)
ranges = st.lists(st.tuples(rows.filter(lambda row: row < 2**41), st.integers(0, 70_000)), max_size=4)


def bitmap_of(some: set[int], spans: list[tuple[int, int]]) -> RowBitmap:
    """Makes a set of single rows and of spans, given by start and length."""
    parts = [np.arange(start, start + length) for start, length in spans]
    return RowBitmap(np.concatenate([np.array(sorted(some), np.int64), *parts]))


@given(row_sets, ranges)
@example(set(), [(2**32 - 2, 4)])
@example({0}, [(0, 65536), (2**32, 65536)])
def test_every_set_of_rows_survives_its_bytes(some: set[int], spans: list[tuple[int, int]]) -> None:
    bitmap = bitmap_of(some, spans)
    assert RowBitmap.from_bytes(bitmap.to_bytes()) == bitmap


@given(row_sets, row_sets, rows, st.integers(0, 1000))
def test_a_bitmap_behaves_like_a_set(one: set[int], other: set[int], start: int, length: int) -> None:
    left, right = RowBitmap(one), RowBitmap(np.array(sorted(other), np.uint64))
    assert sorted(left - right) == sorted(one - other)
    assert (left <= right) == (one <= other)
    assert left <= RowBitmap(one | other)
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


@pytest.mark.parametrize("bad", [[-1], [2**63], [1.5], ["1"], np.array([True])])
def test_only_row_indices_are_taken(bad: object) -> None:
    with pytest.raises((ValueError, TypeError)):
        RowBitmap(bad)  # type: ignore[arg-type]


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
    assert RowBitmap.from_bytes(data) == bitmap_of({2**32 + 3}, [(4 << 32, 70_000)])


@given(st.binary(max_size=60), st.sampled_from([b"", GOLDEN[:4], GOLDEN[:16], GOLDEN[:20]]))
@example(struct.pack("<Q", 2**63), GOLDEN[:4])
@example(struct.pack("<I", 2**31 - 1), struct.pack("<i", NATIVE_MAGIC))
@example(struct.pack("<QII", 1, 0, 12346) + b"\xff" * 4, GOLDEN[:4])
@example(struct.pack("<QII", 1, 0, 12347 | 0xFFFF << 16) + b"\xff" * 40, GOLDEN[:4])
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
