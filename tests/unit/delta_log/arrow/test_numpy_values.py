"""NumPy's numbers become Arrow's, whatever their kind and wherever they lie."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from delta_log.arrow.numpy_values import arrow_array


@pytest.mark.parametrize("kind", [np.int8, np.int32, np.int64, np.uint32, np.uint64, np.float64, np.bool_])
@given(st.lists(st.integers(0, 100), max_size=40), st.integers(1, 3), st.booleans())
def test_values_are_those_of_numpy(kind: type, values: list[int], step: int, is_reversed: bool) -> None:
    numbers: npt.NDArray[Any] = np.array(values, kind)[::step]
    numbers = numbers[::-1] if is_reversed else numbers
    found = arrow_array(numbers)
    found.validate(full=True)
    assert found.equals(pa.array(numbers))
