"""Which columns get a dictionary: those for which the encoder would keep it, and which it makes smaller."""

from __future__ import annotations

import io

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.repetition import examples

from delta_maintenance.rewrite.encode.dictionary_choice import (
    dictionary_columns,
    estimated_distinct,
    num_distinct,
)

ROWS = 200_000
RANDOM = np.random.default_rng(3)


@examples(60)
@given(kinds=st.integers(1, 100_000), sampled=st.integers(2_000, 20_000), times=st.integers(1, 50))
def test_the_estimate_is_near_where_values_are_equally_frequent(kinds: int, sampled: int, times: int) -> None:
    values = sampled * times
    drawn = np.random.default_rng(kinds).integers(0, kinds, values)
    distinct = len(np.unique(drawn))
    estimate = estimated_distinct(len(np.unique(drawn[:sampled])), sampled, values)
    if kinds <= 2 * sampled:
        assert estimate == pytest.approx(distinct, rel=0.1, abs=5)
    assert 1 <= estimate <= values


COLUMNS = {
    "few long texts": [f"https://example.org/{n % 50}/{'x' * 40}" for n in range(ROWS)],
    "many texts": [f"{n * 7919 % ROWS:032x}" for n in range(ROWS)],
    "prices of ten thousand kinds": (RANDOM.integers(0, 10_000, ROWS) / 100).tolist(),
    "floats": RANDOM.random(ROWS).tolist(),
    "times by the hour": (RANDOM.integers(0, 24_000, ROWS) * 3_600_000_000).tolist(),
    "ids": RANDOM.integers(0, 1 << 62, ROWS).tolist(),
    "sorted": list(range(ROWS)),
    "days, sorted": (np.arange(ROWS) // 500).tolist(),
    "nothing": [None] * ROWS,
    "hardly anything": [None] * (ROWS - 1) + ["x"],
}


def size_of(column: pa.Table, dictionary: bool) -> int:
    sink = io.BytesIO()
    pq.write_table(column, sink, use_dictionary=dictionary, row_group_size=ROWS, write_statistics=False)
    return len(sink.getvalue())


@pytest.mark.parametrize("name", list(COLUMNS))
def test_a_dictionary_is_chosen_where_it_makes_the_file_smaller(name: str) -> None:
    column = pa.table({name: pa.array(COLUMNS[name])})
    with_one, without = size_of(column, True), size_of(column, False)
    if dictionary_columns(column):
        assert with_one < without
    else:
        assert with_one > 0.9 * without


def test_leaves_are_named_as_in_the_file() -> None:
    column = pa.array([{"a": [number % 3], "b": str(number)} for number in range(1_000)])
    assert dictionary_columns(pa.table({"s": column})) == ["s.a.list.element"]


def test_a_null_is_no_distinct_value() -> None:
    assert num_distinct(pa.array([1, 1, None, 2, None])) == num_distinct(pa.array([1, 2])) == 2
    assert num_distinct(pa.chunked_array([["x"], ["x", None]])) == 1
