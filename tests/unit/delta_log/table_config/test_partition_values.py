"""Partition values parse to what they mean, serialise to what parses, and bad ones are refused by name."""

from __future__ import annotations

import math
import re
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from delta_log.errors import InvalidPartitionValue, InvalidRequest
from delta_log.table_config.partition_values import are_unreadable, parse, parse_column, serialise
from delta_log.table_config.schema import ArrayType, PrimitiveType, StructType, to_arrow_type

UTC = timezone.utc
texts = st.text(st.characters(exclude_categories=["Cs"]))
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "string": texts.filter(bool),
    "binary": texts.filter(bool).map(str.encode),
    "boolean": st.booleans(),
    "byte": st.integers(-(2**7), 2**7 - 1),
    "short": st.integers(-(2**15), 2**15 - 1),
    "integer": st.integers(-(2**31), 2**31 - 1),
    "long": st.integers(-(2**63), 2**63 - 1),
    "float": st.floats(allow_nan=False, width=32),
    "double": st.floats(allow_nan=False),
    "decimal(38,18)": st.integers(1 - 10**38, 10**38 - 1).map(lambda unscaled: _decimal(unscaled, 18)),
    "decimal(5,5)": st.integers(-99999, 99999).map(lambda unscaled: _decimal(unscaled, 5)),
    "decimal(10,0)": st.integers(1 - 10**10, 10**10 - 1).map(Decimal),
    "date": st.dates(),
    "timestamp": st.datetimes(timezones=st.just(UTC)),
    "timestamp_ntz": st.datetimes(),
    "varchar(3)": texts.filter(bool),
}


def _decimal(unscaled: int, scale: int) -> Decimal:
    digits = tuple(map(int, str(abs(unscaled))))
    return Decimal((int(unscaled < 0), digits, -scale))


@pytest.mark.parametrize("name", VALUES)
def test_every_value_survives_the_log(name: str) -> None:
    data_type = PrimitiveType(name)

    @given(st.lists(st.none() | VALUES[name], max_size=6))
    def check(values: list[Any]) -> None:
        written = [serialise(value, data_type) for value in values]
        assert [parse(text, data_type) for text in written] == values
        column = parse_column(pa.array(written, pa.string()), data_type)
        assert column.type == to_arrow_type(data_type)
        assert column.to_pylist() == values

    check()


@pytest.mark.parametrize("name", VALUES)
def test_null_and_the_empty_text_are_null(name: str) -> None:
    data_type = PrimitiveType(name)
    assert parse(None, data_type) is None
    assert parse("", data_type) is None
    assert serialise(None, data_type) is None
    assert parse_column(pa.array(["", None]), data_type).to_pylist() == [None, None]


def test_empty_strings_and_bytes_become_null() -> None:
    assert serialise("", PrimitiveType("string")) is None
    assert serialise(b"", PrimitiveType("binary")) is None


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("timestamp", "1970-01-02 08:45:00", datetime(1970, 1, 2, 8, 45, tzinfo=UTC)),
        ("timestamp", "2020-01-01 08:09:10.001", datetime(2020, 1, 1, 8, 9, 10, 1000, UTC)),
        ("timestamp", "2024-01-01T10:00:00.000000Z", datetime(2024, 1, 1, 10, tzinfo=UTC)),
        ("timestamp", "2024-01-01T10:00:00Z", datetime(2024, 1, 1, 10, tzinfo=UTC)),
        ("timestamp", "2024-01-01T10:00:00.5+05:30", datetime(2024, 1, 1, 4, 30, 0, 500000, UTC)),
        ("timestamp", "2024-01-01 10:00:00-0100", datetime(2024, 1, 1, 11, tzinfo=UTC)),
        ("timestamp", "2024-01-01 10:00:00 UTC", datetime(2024, 1, 1, 10, tzinfo=UTC)),
        ("timestamp", "2024-01-01", datetime(2024, 1, 1, tzinfo=UTC)),
        ("timestamp", "1969-12-31 23:59:59.999999", datetime(1969, 12, 31, 23, 59, 59, 999999, UTC)),
        ("timestamp", "2024-01-01 00:00:00.123456000", datetime(2024, 1, 1, 0, 0, 0, 123456, UTC)),
        ("timestamp", "2024-01-01 00:00:00.123456789", datetime(2024, 1, 1, 0, 0, 0, 123456, UTC)),
        ("timestamp_ntz", "2021-11-18 02:30:00.123456", datetime(2021, 11, 18, 2, 30, 0, 123456)),
        ("date", "0001-01-01", date(1, 1, 1)),
        ("date", "2021-9-8", date(2021, 9, 8)),
        ("boolean", "TRUE", True),
        ("byte", "-128", -128),
        ("long", "+007", 7),
        ("float", "0.1", 0.10000000149011612),
        ("double", "1.0E10", 1e10),
        ("double", "-Infinity", -math.inf),
        ("decimal(38,18)", "200.000000000000000000", Decimal("200.000000000000000000")),
        ("decimal(38,18)", "0E-18", Decimal("0E-18")),
        ("decimal(1,0)", "1", Decimal(1)),
        ("decimal(6,2)", "1.2E3", Decimal("1200.00")),
        ("string", " ", " "),
        ("binary", "\x01é", b"\x01\xc3\xa9"),
    ],
)
def test_texts_of_other_writers_are_read(name: str, text: str, value: Any) -> None:
    data_type = PrimitiveType(name)
    parsed = parse(text, data_type)
    assert parsed == value
    assert type(parsed) is type(value)
    assert parse_column(pa.array([text]), data_type).to_pylist() == [value]


def test_nan_is_a_number_of_its_own() -> None:
    for name in ("float", "double"):
        data_type = PrimitiveType(name)
        assert serialise(math.nan, data_type) == "NaN"
        assert math.isnan(parse("NaN", data_type))
        assert math.isnan(parse_column(pa.array(["NaN"]), data_type)[0].as_py())
        assert serialise(math.inf, data_type) == "Infinity"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("byte", "128"),
        ("short", "-32769"),
        ("integer", "2147483648"),
        ("long", "9223372036854775808"),
        ("long", "9" * 10_000),
        ("integer", "1.0"),
        ("integer", "1_0"),
        ("integer", " 1"),
        ("integer", "\u0661"),
        ("double", "0x1p3"),
        ("double", "1_0"),
        ("double", "+-inf"),
        ("float", "1e39"),
        ("boolean", "1"),
        ("decimal(3,1)", "100"),
        ("decimal(3,1)", "1.25"),
        ("decimal(3,1)", "NaN"),
        ("decimal(3,1)", "1e999999"),
        ("date", "2024-02-30"),
        ("date", "20240101"),
        ("date", "2024-01-01 00:00:00"),
        ("timestamp", "2024-01-01 24:00:00"),
        ("timestamp", "2024-01-01 00:00:60"),
        ("timestamp", "1969-12-31 23:59:59.1234567"),
        ("timestamp", "2024-01-01 00:00:00+19:00"),
        ("timestamp", "2024-01-01 00:00:00 Europe/Berlin"),
        ("timestamp", "+300000-01-01 00:00:00"),
        ("timestamp_ntz", "2024-01-01T00:00:00Z"),
        ("void", "x"),
    ],
)
def test_a_bad_text_is_refused_by_column_and_value(name: str, text: str) -> None:
    data_type = PrimitiveType(name)
    with pytest.raises(InvalidPartitionValue, match="in column day") as raised:
        parse(text, data_type, "day")
    assert repr(text)[:50] in str(raised.value)
    with pytest.raises(InvalidPartitionValue, match="in column day"):
        parse_column(pa.array(["", text]), data_type, "day")
    texts = pa.array(["", None, text])
    column = parse_column(texts, data_type, "day", or_null=True)
    assert column.to_pylist() == [None] * 3
    assert are_unreadable(texts, column).to_pylist() == [False, False, True]


@pytest.mark.parametrize("nested", [ArrayType(PrimitiveType("long")), StructType(())])
def test_a_nested_type_is_no_partition_column(nested: Any) -> None:
    with pytest.raises(InvalidPartitionValue):
        parse("x", nested)
    with pytest.raises(InvalidRequest):
        serialise("x", nested)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("byte", 128),
        ("integer", True),
        ("integer", "1"),
        ("long", 1.0),
        ("float", 0.1),
        ("float", 1e300),
        ("double", 1),
        ("decimal(3,1)", Decimal("1.25")),
        ("decimal(3,1)", Decimal("NaN")),
        ("date", datetime(2024, 1, 1)),
        ("timestamp", datetime(2024, 1, 1)),
        ("timestamp_ntz", datetime(2024, 1, 1, tzinfo=UTC)),
        ("boolean", 1),
        ("binary", b"\xff"),
        ("string", "\ud800"),
        ("void", 1),
    ],
)
def test_a_value_of_another_type_is_not_written(name: str, value: Any) -> None:
    with pytest.raises(InvalidRequest):
        serialise(value, PrimitiveType(name))


def test_what_is_written_is_canonical() -> None:
    eastern = timezone(timedelta(hours=-5))
    for name, value, text in (
        ("timestamp", datetime(2024, 1, 1, tzinfo=eastern), "2024-01-01T05:00:00.000000Z"),
        ("timestamp_ntz", datetime(2024, 1, 1), "2024-01-01 00:00:00.000000"),
        ("date", date(1, 2, 3), "0001-02-03"),
        ("boolean", True, "true"),
        ("float", 0.10000000149011612, "0.1"),
        ("float", 1.0, "1.0"),
        ("float", 3.4028234663852886e38, "3.4028235e+38"),
        ("float", -1.401298464324817e-45, "-1e-45"),
        ("decimal(10,2)", Decimal("1E+2"), "100.00"),
        ("decimal(38,18)", Decimal("0E-18"), "0.000000000000000000"),
    ):
        assert serialise(value, PrimitiveType(name)) == text


def _four_digit_year(moment: np.datetime64) -> str:
    sign, year, rest = re.fullmatch(r"(-?)(\d+)(-.*)", str(moment)).groups()  # type: ignore[union-attr]
    return f"{sign}{year:0>4}{rest}"


@given(st.integers(-(2**31), 2**31 - 1), st.integers(0, 86_400_000_000 - 1))
def test_columns_hold_every_year_that_arrow_holds(days: int, microseconds: int) -> None:
    day = _four_digit_year(np.datetime64(days, "D"))
    assert parse_column(pa.array([day]), PrimitiveType("date")).cast(pa.int32()).to_pylist() == [days]
    moment = (
        np.datetime64(days * 86_400_000_000 + microseconds, "us")
        if abs(days) < 10**8
        else np.datetime64(0, "us")
    )
    text = _four_digit_year(moment)
    for name, written in (("timestamp", f"{text}Z"), ("timestamp_ntz", text.replace("T", " "))):
        column = parse_column(pa.array([written]), PrimitiveType(name))
        assert column.cast(pa.int64()).to_pylist() == [moment.astype(int)]


def test_one_value_has_a_year_that_python_has() -> None:
    assert parse("9999-12-31", PrimitiveType("date")) == date.max
    for name, text in (
        ("date", "+10000-01-01"),
        ("timestamp", "0000-12-31 23:59:59"),
        ("timestamp_ntz", "-0001-01-01"),
    ):
        with pytest.raises(InvalidPartitionValue, match="years 1 to 9999"):
            parse(text, PrimitiveType(name))


def test_a_chunked_or_dictionary_column_is_one_array() -> None:
    chunked = pa.chunked_array([["1", None], [], ["2"]], pa.string())
    assert parse_column(chunked, PrimitiveType("long")).to_pylist() == [1, None, 2]
    assert parse_column(chunked.dictionary_encode(), PrimitiveType("long")).to_pylist() == [1, None, 2]
    assert parse_column(pa.chunked_array([], pa.string()), PrimitiveType("long")).to_pylist() == []
