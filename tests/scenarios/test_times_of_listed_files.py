"""The look-up of times and sizes that a listing did not tell."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from delta_log.testing import MemoryStorage
from delta_maintenance.listing.listing import LISTING_SCHEMA
from delta_maintenance.vacuum.candidates import with_times

KEYS = [f"p={number % 3}/f{number}" for number in range(12)]


@given(st.sets(st.sampled_from(KEYS)), st.sets(st.sampled_from(KEYS)))
def test_unknown_times_and_sizes_are_looked_up_and_absent_files_left_out(
    present: set[str], known: set[str]
) -> None:
    storage = MemoryStorage()
    for key in present:
        storage.put_if_absent(key, b"..")
    sizes, times = ([number if key in known else None for key in KEYS] for number in (5, 7))
    found = with_times(storage, pa.table([KEYS, sizes, times], schema=LISTING_SCHEMA))
    rows = {row["key"]: row for row in found.to_pylist()}
    assert set(rows) == known | present
    assert all(rows[key] == {"key": key, "size": 5, "modification_time_ms": 7} for key in known)
    assert {rows[key]["size"] for key in present - known} <= {2}
