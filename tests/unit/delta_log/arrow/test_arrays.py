"""NumPy's numbers become Arrow's, whatever their kind and wherever they lie."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from delta_log.arrow.arrays import arrow_array, leaves


@pytest.mark.parametrize("kind", [np.int8, np.int32, np.int64, np.uint32, np.uint64, np.float64, np.bool_])
@given(st.lists(st.integers(0, 100), max_size=40), st.integers(1, 3), st.booleans())
def test_values_are_those_of_numpy(kind: type, values: list[int], step: int, is_reversed: bool) -> None:
    numbers: npt.NDArray[Any] = np.array(values, kind)[::step]
    numbers = numbers[::-1] if is_reversed else numbers
    found = arrow_array(numbers)
    found.validate(full=True)
    assert found.equals(pa.array(numbers))


KIND = pa.struct(
    [
        ("number", pa.int64()),
        ("map", pa.map_(pa.string(), pa.list_(pa.int8()))),
        ("list", pa.list_(pa.struct([("flag", pa.bool_())]))),
    ]
)
ROWS: list[dict[str, Any] | None] = [
    {"number": 1, "map": [("a", [1, 2])], "list": [{"flag": True}]},
    None,
    {"number": None, "map": None, "list": [None, {"flag": False}]},
    {"number": 4, "map": [("b", None), ("c", [])], "list": None},
]


def test_leaves_come_in_the_order_of_a_file() -> None:
    found = [leaf.to_pylist() for leaf in leaves([pa.array(ROWS, KIND), pa.array([5, 6])])]
    assert found == [[1, None, None, 4], ["a", "b", "c"], [1, 2], [True, None, False], [5, 6]]


def test_a_slice_yields_the_values_that_it_shows() -> None:
    found = [leaf.to_pylist() for leaf in leaves([pa.array(ROWS, KIND).slice(2)])]
    assert found == [[None, 4], ["b", "c"], [], [None, False]]


def test_no_rows_have_empty_leaves() -> None:
    assert [leaf.to_pylist() for leaf in leaves([pa.array([], KIND)])] == [[], [], [], []]
