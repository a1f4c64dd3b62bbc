from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from delta_maintenance.rewrite.row_checksum import RowChecksum

SCHEMA = pa.schema(
    [
        ("flag", pa.bool_()),
        ("small", pa.int8()),
        ("long", pa.int64()),
        ("double", pa.float64()),
        ("float", pa.float32()),
        ("decimal", pa.decimal128(38, 3)),
        ("day", pa.date32()),
        ("moment", pa.timestamp("us", tz="UTC")),
        ("text", pa.string()),
        ("bytes", pa.binary()),
        ("list", pa.list_(pa.int32())),
        ("texts", pa.list_(pa.string())),
        ("map", pa.map_(pa.string(), pa.int64())),
        ("struct", pa.struct([("a", pa.int16()), ("b", pa.list_(pa.float64()))])),
    ]
)


def _or_null(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | values


ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "flag": _or_null(st.booleans()),
            "small": _or_null(st.integers(-128, 127)),
            "long": _or_null(st.integers(-(2**63), 2**63 - 1)),
            "double": _or_null(st.floats()),
            "float": _or_null(st.floats(width=32)),
            "decimal": _or_null(st.decimals(-(10**34), 10**34, places=3)),
            "day": _or_null(st.dates()),
            "moment": _or_null(st.datetimes()),
            "text": _or_null(st.text(max_size=20)),
            "bytes": _or_null(st.binary(max_size=20)),
            "list": _or_null(st.lists(_or_null(st.integers(-9, 9)), max_size=4)),
            "texts": _or_null(st.lists(_or_null(st.text(max_size=4)), max_size=4)),
            "map": _or_null(st.dictionaries(st.text(max_size=3), _or_null(st.integers(0, 9)), max_size=3)),
            "struct": _or_null(
                st.fixed_dictionaries(
                    {"a": _or_null(st.integers(-9, 9)), "b": _or_null(st.lists(st.floats(), max_size=2))}
                )
            ),
        }
    ),
    max_size=12,
)


def batch(rows: list[dict[str, Any]]) -> pa.RecordBatch:
    arrays = [
        pa.array([list(row["map"].items()) if row["map"] is not None else None for row in rows], field.type)
        if field.name == "map"
        else pa.array([row[field.name] for row in rows], field.type)
        for field in SCHEMA
    ]
    return pa.record_batch(arrays, schema=SCHEMA)


@settings(max_examples=60)
@given(ROWS, st.data())
def test_order_and_cuts_change_nothing(rows: list[dict[str, Any]], data: st.DataObject) -> None:
    whole = batch(rows)
    shuffled = batch(data.draw(st.permutations(rows)))
    cut = data.draw(st.integers(0, len(rows)))
    parts = RowChecksum.of(whole.slice(0, cut)).plus(RowChecksum.of(whole.slice(cut)))
    assert RowChecksum.of(whole) == RowChecksum.of(shuffled) == parts
    assert RowChecksum.of(whole).rows == len(rows)


@settings(max_examples=60)
@given(ROWS.filter(bool), st.data())
def test_another_value_in_any_column_of_any_row_is_seen(
    rows: list[dict[str, Any]], data: st.DataObject
) -> None:
    at = data.draw(st.integers(0, len(rows) - 1))
    other = data.draw(ROWS.filter(bool))[0]
    name = data.draw(st.sampled_from(SCHEMA.names))
    changed = [*rows[:at], {**rows[at], name: other[name]}, *rows[at + 1 :]]
    one, two = batch(rows), batch(changed)
    # Arrow's own notion of equality takes both zeros for one, and no NaN for another, nor for itself.
    if one.column(name).slice(at, 1) != two.column(name).slice(at, 1) and "nan" not in str(rows[at][name]):
        assert RowChecksum.of(one) != RowChecksum.of(two)


@pytest.mark.parametrize(
    ("one", "two", "kind"),
    [
        ([None], [0], pa.int64()),
        ([""], [None], pa.string()),
        (["ab", "c"], ["a", "bc"], pa.string()),
        (["\0"], ["\0\0"], pa.string()),
        ([[1], [2, 3]], [[1, 2], [3]], pa.list_(pa.int8())),
        ([[]], [None], pa.list_(pa.int8())),
        ([[1, 2]], [[2, 1]], pa.list_(pa.int8())),
        ([0.0], [-0.0], pa.float64()),
        ([[("a", 1), ("b", 2)]], [[("a", 2), ("b", 1)]], pa.map_(pa.string(), pa.int8())),
        ([{"a": None}], [None], pa.struct([("a", pa.int8())])),
        ([1, 1], [2, 2], pa.int64()),
    ],
)
def test_what_looks_alike_is_told_apart(one: list[Any], two: list[Any], kind: pa.DataType) -> None:
    def checksum(values: list[Any]) -> RowChecksum:
        return RowChecksum.of(pa.record_batch([pa.array(values, kind)], names=["c"]))

    assert checksum(one) != checksum(two)


def test_values_that_swap_their_columns_are_told_apart() -> None:
    one, two = pa.array([1, 2]), pa.array([2, 1])
    first = RowChecksum.of(pa.record_batch([one, two], names=["a", "b"]))
    assert first == RowChecksum.of(pa.record_batch([two, one], names=["a", "b"])), "the same rows"
    swapped = pa.record_batch([pa.array([1, 1]), pa.array([2, 2])], names=["a", "b"])
    assert first != RowChecksum.of(swapped)


def test_long_texts_are_hashed_piece_by_piece() -> None:
    rng = random.Random(5)
    texts = ["x" * rng.randrange(0, 3 << 20) for _ in range(12)]
    whole = pa.record_batch([pa.array(texts)], names=["t"])
    each = RowChecksum()
    for at in range(len(texts)):
        each = each.plus(RowChecksum.of(whole.slice(at, 1)))
    assert RowChecksum.of(whole) == each
