"""What is denied is not there; and what is not there is denied, of as many keys as a test can have."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from delta_maintenance.listing.key_hashes import KeyHashes

KEYS = st.lists(st.text(max_size=20), max_size=30)


def column(keys: list[str], cut: int) -> pa.ChunkedArray:
    return pa.chunked_array([pa.array(keys, pa.string())[:cut], pa.array(keys, pa.string())[cut:]])


@given(KEYS, KEYS, st.integers(0, 30), st.integers(0, 30))
def test_keys_are_denied_if_they_are_not_among_the_others(
    known: list[str], asked: list[str], cut: int, other_cut: int
) -> None:
    asked += known[::2]
    denied = KeyHashes.of(column(known, cut)).denied(column(asked, other_cut))
    assert denied.to_pylist() == [key not in known for key in asked]


def test_nulls_are_nobodys_keys() -> None:
    hashes = KeyHashes.of(pa.chunked_array([[None, "a", None]], pa.string()))
    assert hashes.denied(pa.chunked_array([["a", "b", ""]], pa.string())).to_pylist() == [False, True, True]


def test_of_very_many_keys_each_stranger_is_denied() -> None:
    keys = [f"day={number % 100}/part-{number:05d}-{number * 7919:012x}.parquet" for number in range(20_000)]
    known, strangers = keys[::2], keys[1::2]
    hashes = KeyHashes.of(column(known, 5_000))
    assert hashes.denied(column(strangers, 1)).true_count == len(strangers)
    assert hashes.denied(column(known, 1)).true_count == 0
