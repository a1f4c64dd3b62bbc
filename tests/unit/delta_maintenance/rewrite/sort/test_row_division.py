"""Rows of a layout: dividing and sorting them."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from delta_maintenance.rewrite.sort.row_division import stable_order

_KEYS = st.one_of(
    st.lists(st.integers(0, 3), max_size=300),
    st.lists(st.integers(2**64 - 4, 2**64 - 1), max_size=50),
    st.lists(st.integers(0, 2**64 - 1), max_size=50),
)


@given(_KEYS)
def test_equal_keys_keep_their_order(keys: list[int]) -> None:
    numbers = np.array(keys, np.uint64)
    found = stable_order(numbers)
    assert found.tolist() == sorted(range(len(keys)), key=keys.__getitem__)
    assert numbers.tolist() == keys
