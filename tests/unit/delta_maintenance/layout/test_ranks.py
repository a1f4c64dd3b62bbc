from __future__ import annotations

import math
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from delta_maintenance.layout.ranks import Ranks, has_order

VALUES: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "byte": (pa.int8(), st.integers(-128, 127)),
    "long": (pa.int64(), st.integers(-(1 << 63), (1 << 63) - 1)),
    "double": (pa.float64(), st.floats(allow_nan=False)),
    "float": (pa.float32(), st.floats(width=32, allow_nan=False)),
    "boolean": (pa.bool_(), st.booleans()),
    "string": (pa.string(), st.text(max_size=5)),
    "binary": (pa.binary(), st.binary(max_size=5)),
    "date": (pa.date32(), st.dates()),
    "timestamp": (
        pa.timestamp("us", tz="UTC"),
        st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30), timezones=st.just(timezone.utc)),
    ),
    "decimal": (pa.decimal128(38, 10), st.decimals(-(10**20), 10**20, places=10)),
}


def order(value: Any) -> Any:
    """As Arrow and the statistics of Delta order values."""
    return value.encode() if isinstance(value, str) else value


@pytest.mark.parametrize("name", VALUES)
@given(data=st.data(), bits=st.integers(1, 16))
def test_ranks_keep_the_order_of_values_and_null_comes_first(
    name: str, data: st.DataObject, bits: int
) -> None:
    kind, values = VALUES[name]
    sample = pa.array(data.draw(st.lists(st.none() | values, max_size=30)), kind)
    rows = data.draw(st.lists(st.none() | values, max_size=30))
    ranks = Ranks.of(sample, bits)(pa.array(rows, kind)).tolist()
    assert all(0 <= rank < 1 << bits for rank in ranks)
    assert all(rank == 0 for rank, value in zip(ranks, rows, strict=True) if value is None)
    known = [(order(value), rank) for value, rank in zip(rows, ranks, strict=True) if value is not None]
    known.sort(key=lambda pair: pair[0])
    assert [rank for _, rank in known] == sorted(rank for _, rank in known)
    assert all(a[1] == b[1] for a in known for b in known if a[0] == b[0])


def shares(values: np.ndarray[Any, Any], bits: int = 10) -> list[float]:
    """By distinct value, how far its rank is from the true share of smaller values."""
    rng = np.random.default_rng(3)
    ranks = Ranks.of(pa.array(rng.choice(values, 1 << 14)), bits)
    ascending = np.sort(values)
    distinct = np.unique(values)
    true = np.searchsorted(ascending, distinct, side="left") / len(values)
    return np.abs(ranks(pa.array(distinct)).astype(float) / (1 << bits) - true).tolist()  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    "values",
    [
        np.random.default_rng(1).integers(0, 1 << 40, 50_000),
        np.random.default_rng(1).zipf(1.2, 50_000),
        np.random.default_rng(1).exponential(5, 50_000),
        np.arange(50_000),
    ],
    ids=["uniform", "skewed", "exponential", "sorted"],
)
def test_ranks_err_by_little_more_than_the_sample_allows(values: np.ndarray[Any, Any]) -> None:
    # One unit of the rank, and four standard deviations of a share in a sample of 2 ** 14 rows.
    assert max(shares(values)) <= 2 / (1 << 10) + 4 * 0.5 / math.sqrt(1 << 14)


def test_few_values_use_the_whole_range() -> None:
    ranks = Ranks.of(pa.array([False] * 75 + [True] * 25), 8)
    assert ranks(pa.array([False, True])).tolist() == [0, 192]


@pytest.mark.parametrize(
    ("sample", "rows"),
    [([7] * 5, [7, 7]), ([None] * 5, [None, None]), ([], [1, None])],
    ids=["constant", "all null", "empty"],
)
def test_a_column_without_differences_has_one_rank(sample: list[Any], rows: list[Any]) -> None:
    assert set(Ranks.of(pa.array(sample, pa.int64()), 10)(pa.array(rows, pa.int64())).tolist()) == {0}


def test_nan_is_the_greatest_and_zeros_are_equal() -> None:
    ranks = Ranks.of(pa.array([1.0, math.nan, -0.0, 0.0, math.inf] * 20), 8)
    low, zero, infinite, nan = ranks(pa.array([-0.0, 0.0, math.inf, math.nan])).tolist()
    assert low == zero < infinite < nan


def test_types_without_order() -> None:
    assert has_order(pa.decimal128(5, 2))
    assert has_order(pa.date32())
    assert not has_order(pa.list_(pa.int64()))
    assert not has_order(pa.struct([("a", pa.int64())]))
    assert not has_order(pa.null())


def test_texts_that_the_sample_did_not_hold_find_their_place() -> None:
    ranks = Ranks.of(pa.array(["b", "d", "f", "h"]), 4)
    assert ranks(pa.array(["a", "b", "c", "d", "z"])).tolist() == [0, 0, 0, 4, 12]


def test_other_types_of_the_same_order() -> None:
    days = Ranks.of(pa.array([date(2020, 1, day) for day in range(1, 29)]), 4)
    assert days(pa.array([date(1969, 12, 31), date(2020, 1, 28)])).tolist() == [0, 14]
    sums = Ranks.of(pa.array([Decimal("1.10"), Decimal("2.20")]), 4)
    assert sums(pa.array([Decimal("1.09"), Decimal("2.20")])).tolist() == [0, 8]
