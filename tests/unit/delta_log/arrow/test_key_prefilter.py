"""Marks of keys: none that is looked for is missed, and few others are named."""

from __future__ import annotations

import uuid

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from delta_log.arrow.key_prefilter import KeyMarks

keys = st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=40), max_size=30)


@given(keys, keys, st.lists(st.integers(0, 29), max_size=10), st.integers(0, 5), st.integers(1, 7))
def test_no_key_that_is_looked_for_is_missed(
    there: list[str], others: list[str], shared: list[int], skipped: int, step: int
) -> None:
    looked_for = others + [there[n] for n in shared if n < len(there)]
    # As a base holds them: several chunks, each a part of something larger.
    whole = pa.array(["before"] * skipped + there, pa.string())
    parts = [whole.slice(at, step) for at in range(skipped, len(whole), step)]
    marks = KeyMarks.of(pa.chunked_array(parts, pa.string()))
    found = marks.possible_matches(KeyMarks.of(pa.chunked_array([pa.array(looked_for, pa.string())])))
    assert len(marks.marks) == len(there)
    assert {n for n, key in enumerate(there) if key in looked_for} <= set(found.tolist())
    assert found.tolist() == sorted(found.tolist())


@pytest.mark.parametrize(
    "name",
    [
        "day=2024-01-01/part-00000-{}-c000.snappy.parquet",
        "part-00001-{}-c000.zstd.parquet",
        "part-00000-{}.c000.snappy.parquet",
        "{}.parquet",
        "part-0-{}.gz.parquet",
    ],
)
def test_names_that_writers_give_are_told_apart(name: str) -> None:
    made = [
        name.format(uuid.UUID(bytes=np.random.default_rng(n).bytes(16), version=4)) for n in range(20_000)
    ]
    marks = KeyMarks.of(pa.chunked_array([pa.array(made[:10_000])]))
    strangers = KeyMarks.of(pa.chunked_array([pa.array(made[10_000:10_010])]))
    assert len(marks.possible_matches(strangers)) < 20
