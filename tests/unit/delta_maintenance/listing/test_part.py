"""The answers of several parts, merged."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from delta_maintenance.listing.part import packed, unpack


@given(st.lists(st.lists(st.booleans(), min_size=21, max_size=21), max_size=3))
def test_the_bits_of_several_parts_are_merged(masks: list[list[bool]]) -> None:
    seen = np.zeros(21, bool)
    for mask in masks:
        unpack(seen, *packed(np.array(mask)))
    assert seen.tolist() == [any(mask[row] for mask in masks) for row in range(21)]
