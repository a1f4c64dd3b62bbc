"""Keys in a sorted file."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from delta_maintenance.listing.sorted_keys import SortedKeys


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
