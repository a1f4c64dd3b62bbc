"""Keys in a sorted file."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from delta_maintenance.listing.sorted_keys import KeyHashes, SortedKeys


@given(st.lists(st.text("ab/=é\U0001f600", max_size=4)), st.text("ab/=é\U0001f600", max_size=3))
def test_sorted_keys_are_found_in_their_file(keys: list[str], text: str) -> None:
    with tempfile.TemporaryDirectory() as directory:
        SortedKeys.write(Path(directory) / "keys", pa.chunked_array([keys], pa.string()))
        found = SortedKeys(Path(directory) / "keys")
        expected = sorted(set(keys))
        assert found.rows(0, len(found)).to_pylist() == expected
        row = found.row_of(text)
        assert [key < text for key in expected] == [True] * row + [False] * (len(expected) - row)
        assert found.rows(row, len(found)).to_pylist() == expected[row:]


KEYS = st.lists(st.text(max_size=20), max_size=30)


def column(keys: list[str], cut: int) -> pa.ChunkedArray:
    return pa.chunked_array([pa.array(keys, pa.string())[:cut], pa.array(keys, pa.string())[cut:]])


@given(KEYS, KEYS, st.integers(0, 30), st.integers(0, 30))
def test_a_key_is_absent_if_it_is_not_in_the_set(
    known: list[str], asked: list[str], cut: int, other_cut: int
) -> None:
    asked += known[::2]
    absent = KeyHashes.of(column(known, cut)).absent(column(asked, other_cut))
    assert absent.to_pylist() == [key not in known for key in asked]


def test_nulls_are_left_out() -> None:
    hashes = KeyHashes.of(pa.chunked_array([[None, "a", None]], pa.string()))
    assert hashes.absent(pa.chunked_array([["a", "b", ""]], pa.string())).to_pylist() == [False, True, True]


def test_every_other_key_is_absent_from_very_many() -> None:
    keys = [f"day={number % 100}/part-{number:05d}-{number * 7919:012x}.parquet" for number in range(20_000)]
    known, others = keys[::2], keys[1::2]
    hashes = KeyHashes.of(column(known, 5_000))
    assert hashes.absent(column(others, 1)).true_count == len(others)
    assert hashes.absent(column(known, 1)).true_count == 0
