"""Shredded variants put together are what the writer took apart, by the decoder of PySpark."""

from __future__ import annotations

import uuid
from datetime import date, datetime, timezone
from decimal import Context, Decimal, localcontext
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.variant_utils import VariantUtils
from tests.support.repetition import examples
from tests.support.tables.shredded_variants import column_of, encoded, metadata_of

from delta_log.data.variant import assembled

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 63), (1 << 63) - 1) | st.text(max_size=80),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["a", "b", "c", "ä", "Ω", "a.b"]), inner, max_size=5)
    ),
    max_leaves=12,
)
SHREDDINGS = [
    pa.int64(),
    pa.string(),
    {"a": pa.int64(), "b": pa.string()},
    {"a": {"b": {"c": pa.bool_()}, "ä": [pa.string()]}, "Ω": None},
    [pa.int64()],
    [{"a": [pa.string()], "a.b": pa.int64()}],
]


def decoded(column: pa.StructArray, values: pa.BinaryArray) -> list[Any]:
    metadata = column.field("metadata").to_pylist()
    return [
        None if value is None else (VariantUtils.to_python(value, names),)
        for value, names in zip(values.to_pylist(), metadata, strict=True)
    ]


@examples(200)
@given(st.lists(VALUES, max_size=6), st.sampled_from(SHREDDINGS), st.integers(0, 6), st.integers(0, 3))
def test_values_are_as_before_shredding(rows: list[Any], shredding: Any, absent: int, start: int) -> None:
    column = column_of(rows, shredding, [absent]).slice(start)
    expected = [None if number == absent else (row,) for number, row in enumerate(rows)]
    assert decoded(column, assembled(column)) == expected[start:]


def typed(value: Any, kind: pa.DataType) -> tuple[pa.StructArray, pa.BinaryArray]:
    group = pa.struct([("metadata", pa.binary()), ("typed_value", kind)])
    column = pa.array([{"metadata": metadata_of([]), "typed_value": value}], group)
    return column, assembled(column)


MOMENT = datetime(2024, 5, 6, 7, 8, 9, 123456)


@pytest.mark.parametrize(
    ("value", "kind", "expected"),
    [
        (-5, pa.int8(), -5),
        (-500, pa.int16(), -500),
        (70_000, pa.int32(), 70_000),
        (1.5, pa.float32(), 1.5),
        (0.1, pa.float64(), 0.1),
        (Decimal("-12.30"), pa.decimal128(9, 2), Decimal("-12.30")),
        (Decimal("123456789012.345"), pa.decimal128(18, 3), Decimal("123456789012.345")),
        (Decimal("-" + "9" * 38), pa.decimal128(38, 0), Decimal("-" + "9" * 38)),
        (date(1969, 12, 31), pa.date32(), date(1969, 12, 31)),
        (MOMENT, pa.timestamp("us"), MOMENT),
        (MOMENT.replace(tzinfo=timezone.utc), pa.timestamp("us", "UTC"), MOMENT.replace(tzinfo=timezone.utc)),
        (b"\x00\xff", pa.binary(), b"\x00\xff"),
        ("x" * 63, pa.string(), "x" * 63),
        ("x" * 64, pa.string(), "x" * 64),
    ],
)
def test_each_type_is_the_type_of_the_encoding(value: Any, kind: pa.DataType, expected: Any) -> None:
    column, values = typed(value, kind)
    with localcontext(Context(prec=38)):  # of the decoder
        assert decoded(column, values) == [(expected,)]


@pytest.mark.parametrize(
    ("value", "kind", "expected"),
    [
        (1_700_000_000_123_456_789, pa.timestamp("ns"), bytes((19 << 2,))),
        (1_700_000_000_123_456_789, pa.timestamp("ns", "UTC"), bytes((18 << 2,))),
        (3_600_000_000, pa.time64("us"), bytes((17 << 2,))),
    ],
)
def test_types_that_spark_does_not_decode_are_eight_bytes(
    value: int, kind: pa.DataType, expected: bytes
) -> None:
    _, values = typed(pa.scalar(value, pa.int64()).cast(kind), kind)
    assert values.to_pylist() == [expected + value.to_bytes(8, "little")]


def test_a_uuid_is_its_bytes() -> None:
    number = uuid.uuid4().bytes
    assert typed(number, pa.binary(16))[1].to_pylist() == [bytes((20 << 2,)) + number]


def test_hundreds_of_members_and_elements() -> None:
    value = {f"n{number:03}": list(range(number)) for number in range(400)}
    column = column_of([value], {"n007": [pa.int64()], "n399": [pa.int64()]})
    assert decoded(column, assembled(column)) == [(value,)]


NAMES = metadata_of(["a"])
GROUP = pa.struct([("value", pa.binary()), ("typed_value", pa.int64())])


@pytest.mark.parametrize(
    ("row", "typed_value", "why"),
    [
        (
            {"metadata": b"\x02", "value": None, "typed_value": {"a": {}}},
            pa.struct([("a", GROUP)]),
            "version",
        ),
        ({"metadata": None, "value": None, "typed_value": 1}, pa.int64(), "no metadata"),
        ({"metadata": NAMES, "value": b"\x00", "typed_value": 1}, pa.int64(), "both"),
        (
            {"metadata": NAMES, "value": b"\x00", "typed_value": {}},
            pa.struct([("a", GROUP)]),
            "none in its value",
        ),
        (
            {"metadata": NAMES, "value": encoded({"a": 1}, ["a"]), "typed_value": {"a": {"typed_value": 1}}},
            pa.struct([("a", GROUP)]),
            "twice",
        ),
        (
            {"metadata": NAMES, "value": encoded({"a": 1}, ["a"])[:-1], "typed_value": {}},
            pa.struct([("a", GROUP)]),
            "ends too early",
        ),
        (
            {"metadata": NAMES, "value": None, "typed_value": {"b": {"typed_value": 1}}},
            pa.struct([("b", GROUP)]),
            "lacks the name",
        ),
        (
            {"metadata": NAMES, "value": None, "typed_value": {"a": 1}},
            pa.struct([("a", pa.int64())]),
            "no group",
        ),
        ({"metadata": NAMES, "value": None, "typed_value": 1}, pa.uint32(), "cannot hold uint32"),
    ],
)
def test_broken_rules_are_named(row: dict[str, Any], typed_value: pa.DataType, why: str) -> None:
    kind = pa.struct([("metadata", pa.binary()), ("value", pa.binary()), ("typed_value", typed_value)])
    with pytest.raises(ValueError, match=why):
        assembled(pa.array([row], kind))
