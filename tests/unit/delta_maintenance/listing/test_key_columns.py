"""Questions about a column of keys have the same answers as questions about each key."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from delta_maintenance.listing.key_columns import (
    directories_of,
    files_by_directory,
    key_bytes,
    may_begin,
    may_contain,
    names_beginning,
)

SEGMENTS = st.sampled_from(["a", "b=1", "_p=1", "_x", ".x", "metadata", "_change_data", "__HIVE", "ü_", "m"])
KEYS = st.lists(st.lists(SEGMENTS, min_size=1, max_size=3).map("/".join), max_size=8)


@given(KEYS, st.integers(0, 3), st.sampled_from([b"/_", b"_", b"://"]))
def test_a_negative_answer_about_the_bytes_holds_for_every_key(
    keys: list[str], skipped: int, text: bytes
) -> None:
    column, rest = pa.array(keys, pa.string()).slice(skipped), [key.encode() for key in keys[skipped:]]
    assert key_bytes(column).tobytes() == b"".join(rest)
    assert may_contain(column, [text]) or not any(text in key for key in rest)
    assert may_begin(column, b"_.") == any(key[:1] in (b"_", b".") for key in rest)
    parents = [key.rpartition("/")[0] for key in keys[skipped:]]
    assert directories_of(column) == set(parents)
    assert files_by_directory(pa.chunked_array([column, column])) == {
        d: 2 * n for d, n in Counter(parents).items()
    }


@given(KEYS, st.integers(0, 3))
def test_names_are_found_by_their_first_character_from_the_directories_alone(
    keys: list[str], skipped: int
) -> None:
    keys.sort(key=lambda key: key.rpartition("/")[0])
    column = pa.array(keys, pa.string()).slice(skipped)
    runs = Counter(key.rpartition("/")[0] for key in keys[skipped:])
    expected = [row for row, key in enumerate(keys[skipped:]) if key.rpartition("/")[2][0] in "_."]
    assert names_beginning(column, runs, b"_.").tolist() == expected
