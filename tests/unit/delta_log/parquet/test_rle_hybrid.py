"""Runs of one value and of bit-packed values: what was encoded is decoded, by this module and by Arrow."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.checks.naive_runs import naively
from tests.support.repetition import examples

from delta_log.parquet.rle_hybrid import counted, decoded, packed_run, run_of
from delta_log.parquet.thrift_compact import CorruptThrift


@st.composite
def runs(draw: st.DrawFn) -> tuple[int, bytes, list[int]]:
    """A width, some runs, and the values in them without those that only fill up the last group."""
    width = draw(st.integers(0, 32))
    values = st.integers(0, (1 << width) - 1)
    content, expected = b"", list[int]()
    for is_last in [False] * draw(st.integers(0, 4)) + [True]:
        if draw(st.booleans()):
            value, count = draw(values), draw(st.integers(1, 300))
            content += run_of(value, width, count)
            expected += [value] * count
        else:
            count = draw(st.integers(1, 40)) if is_last else 8 * draw(st.integers(1, 70))
            found = (
                draw(st.lists(values, min_size=count, max_size=count))
                if count < 60
                else [n % (1 << width) for n in range(count)]
            )
            content += packed_run(np.array(found, np.uint32), width)
            expected += found
    return width, content, expected


@examples(300)
@given(runs(), st.binary(max_size=3))
def test_what_was_encoded_is_decoded(given_runs: tuple[int, bytes, list[int]], behind: bytes) -> None:
    width, content, expected = given_runs
    assert decoded(memoryview(content + behind), width, len(expected)).tolist() == expected
    assert decoded(memoryview(content), width, len(expected) // 2).tolist() == expected[: len(expected) // 2]


@examples(200)
@given(st.integers(0, 70_000), st.integers(1, 3_000), st.integers(0, 8))
def test_consecutive_numbers(first: int, count: int, more: int) -> None:
    width = (first + count - 1).bit_length() + more
    content = counted(first, count, width)
    assert decoded(memoryview(content), width, count).tolist() == list(range(first, first + count))


@examples(500)
@given(st.integers(0, 32), st.integers(0, 100), st.binary(max_size=40))
def test_any_bytes_give_values_or_are_refused(width: int, count: int, content: bytes) -> None:
    expected = naively(content, width, count)
    if expected is None:
        with pytest.raises(CorruptThrift):
            decoded(memoryview(content), width, count)
    else:
        assert decoded(memoryview(content), width, count).tolist() == expected


@pytest.mark.parametrize(
    ("content", "width", "message"),
    [
        (b"", 3, "empty or cut"),
        (b"\0\1", 3, "empty or cut"),
        (b"\x04", 3, "empty or cut"),
        (b"\x05\0\0\0\0\0", 3, "empty or cut"),
        (b"\x04\x08", 3, "more than 3 bits"),
        (b"\x04\x08", 33, "33 bits"),
    ],
)
def test_runs_that_are_broken(content: bytes, width: int, message: str) -> None:
    with pytest.raises(CorruptThrift, match=message):
        decoded(memoryview(content), width, 2)
