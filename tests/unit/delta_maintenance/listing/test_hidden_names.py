"""A column of keys hides what each key hides."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from delta_maintenance.listing.hidden_names import HiddenNames

SEGMENTS = st.sampled_from(["a", "b=1", "_p=1", "_x", ".x", "metadata", "_change_data", "__HIVE", "ü_", "m"])
KEYS = st.lists(st.lists(SEGMENTS, min_size=1, max_size=3).map("/".join), max_size=8)


@given(KEYS, st.booleans(), st.integers(0, 3))
def test_a_column_hides_the_keys_that_are_hidden_one_by_one(
    keys: list[str], iceberg: bool, skipped: int
) -> None:
    hidden = HiddenNames(("_p=", "b="), iceberg)
    column = pa.array(keys, pa.string()).slice(skipped)
    assert hidden.mask(column).to_pylist() == [hidden.hides(key) for key in keys[skipped:]]
