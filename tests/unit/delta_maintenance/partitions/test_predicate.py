from __future__ import annotations

import math
import operator
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.repetition import examples

from delta_log.errors import InvalidRequest
from delta_log.table_config.schema import PrimitiveType, StructField, StructType, to_arrow_type
from delta_maintenance.partitions.predicate import filtered_columns, partition_predicate

TYPES = {
    "year": "integer",
    "tiny": "byte",
    "id": "long",
    "region": "string",
    "day": "date",
    "at": "timestamp",
    "wall": "timestamp_ntz",
    "open": "boolean",
    "price": "decimal(5,2)",
    "ratio": "double",
    "raw": "binary",
}
SCHEMA = StructType(
    tuple(StructField(name, PrimitiveType(kind)) for name, kind in {**TYPES, "value": "long"}.items())
)
NAN, UTC = math.nan, timezone.utc


def selected(predicate: str, **columns: list[Any]) -> list[int]:
    """The numbers of the rows that a predicate selects; columns that are not given are null."""
    count = max(map(len, columns.values()))
    data = {
        name: pa.array(columns.get(name, [None] * count), to_arrow_type(PrimitiveType(kind)))
        for name, kind in TYPES.items()
    }
    table = pa.table({**data, "row": range(count)})
    expression = partition_predicate(predicate, SCHEMA, tuple(TYPES))
    rows: list[int] = ds.dataset(table).to_table(["row"], filter=expression).column("row").to_pylist()
    return rows


def refusal(predicate: str, partition_columns: tuple[str, ...] = tuple(TYPES)) -> str:
    with pytest.raises(InvalidRequest) as caught:
        partition_predicate(predicate, SCHEMA, partition_columns)
    return str(caught.value)


@pytest.mark.parametrize(
    ("predicate", "rows"),
    [
        ("year = 2024", [1]),
        ("YEAR == 2024L", [1]),
        ("`year` <> 2024", [0, 2]),
        ("year != 2024 AND year IS NOT NULL", [0, 2]),
        ("2024 < year", [2]),
        ("year >= 2024", [1, 2]),
        ("year IN (2023, 2025)", [0, 2]),
        ("year NOT IN (2023)", [1, 2]),
        ("year BETWEEN 2024 AND 2025", [1, 2]),
        ("year NOT BETWEEN 2024 AND 2030", [0]),
        ("NOT (year = 2023 OR year = 2024)", [2]),
        ("year IS NULL", [3]),
        ("(year = 2024) IS NULL", [3]),
        ("(year = 2024) IS NOT TRUE", [0, 2, 3]),
        ("year <=> NULL", [3]),
        ("NOT year <=> 2024", [0, 2, 3]),
        ("year = '2024'", [1]),
        ("year = CAST('2024' AS INT)", [1]),
        ("true", [0, 1, 2, 3]),
    ],
)
def test_a_predicate_selects_what_spark_would_select(predicate: str, rows: list[int]) -> None:
    assert selected(predicate, year=[2023, 2024, 2025, None]) == rows


@pytest.mark.parametrize(
    "predicate",
    ["year = NULL", "year <> NULL", "year NOT IN (2023, NULL)", "NOT (year = NULL)", "null", "year < NULL"],
)
def test_what_is_unknown_is_not_selected(predicate: str) -> None:
    assert selected(predicate, year=[2023, 2024, None]) == []


@pytest.mark.parametrize(
    ("predicate", "rows"),
    [
        ("year > 1.5", [1]),
        ("year >= 1.5", [1]),
        ("year < 1.5", [0]),
        ("year = 1.5", []),
        ("year <> 1.5", [0, 1]),
        ("year < 3000000000", [0, 1]),
        ("year > -1e30", [0, 1]),
        ("tiny = 128", []),
        ("tiny <> 128", [0, 1]),
        ("id = 9007199254740993", [1]),
        ("id > 9007199254740992.5", [1]),
        ("price > 1.005", [1]),
        ("price IN (1.00, 1.005)", [0]),
        ("price < 1000000", [0, 1]),
    ],
)
def test_numbers_that_the_column_cannot_hold_compare_exactly(predicate: str, rows: list[int]) -> None:
    columns: dict[str, list[Any]] = {
        "year": [1, 2],
        "tiny": [1, 127],
        "id": [9007199254740992, 9007199254740993],
        "price": [Decimal("1.00"), Decimal("1.01")],
    }
    assert selected(predicate, **columns) == rows


@pytest.mark.parametrize(
    ("predicate", "rows"),
    [
        ("day = '2024-01-31'", [0]),
        ("day = DATE '2024-01-31'", [0]),
        ("day < TIMESTAMP '2024-02-01 12:00:00'", [0, 1]),
        ("day = TIMESTAMP '2024-02-01 12:00:00'", []),
        ("at = '2024-01-31 12:00:00'", [0]),
        ("at = TIMESTAMP '2024-01-31 13:00:00+01:00'", [0]),
        ("at > '2024-01-31'", [0, 1]),
        ("wall >= DATE '2024-02-01'", [1]),
        ("wall = TIMESTAMP_NTZ '2024-01-31T12:00:00'", [0]),
    ],
)
def test_dates_and_times_are_read_as_the_columns_type(predicate: str, rows: list[int]) -> None:
    moments = [datetime(2024, 1, 31, 12), datetime(2024, 2, 1)]
    columns: dict[str, list[Any]] = {
        "day": [moment.date() for moment in moments],
        "at": [moment.replace(tzinfo=UTC) for moment in moments],
        "wall": moments,
    }
    assert selected(predicate, **columns) == rows


@pytest.mark.parametrize(
    ("predicate", "rows"),
    [
        ("ratio > 1e300", [2]),
        ("ratio >= 0.5", [1, 2]),
        ("ratio < 1", [0, 1]),
        ("ratio = CAST('NaN' AS DOUBLE)", [2]),
        ("ratio <> 'NaN'", [0, 1]),
        ("ratio <= 'NaN'", [0, 1, 2]),
        ("ratio IN (0.0, 'NaN')", [0, 2]),
    ],
)
def test_nan_equals_itself_and_is_the_greatest_number(predicate: str, rows: list[int]) -> None:
    assert selected(predicate, ratio=[-0.0, 0.5, NAN, None]) == rows


@pytest.mark.parametrize(
    ("predicate", "rows"),
    [
        ("open", [0]),
        ("NOT open", [1]),
        ("open = 'FALSE'", [1]),
        ("open IS NOT TRUE", [1, 2]),
        ("raw = X'ff00'", [0]),
        ("raw = 'ab'", [1]),
        ("region LIKE 'e_-%'", [0]),
        ("region NOT LIKE 'e%'", [1]),
        ("region ILIKE 'US'", [1]),
        ("region = ''", []),
        ("region = 'us' AND NOT open", [1]),
    ],
)
def test_other_types_have_their_literals_too(predicate: str, rows: list[int]) -> None:
    columns: dict[str, list[Any]] = {
        "open": [True, False, None],
        "raw": [b"\xff\x00", b"ab", None],
        "region": ["eu-1", "us", None],
    }
    assert selected(predicate, **columns) == rows


@pytest.mark.parametrize(
    ("predicate", "problem"),
    [
        ("value = 1", "value is a data column"),
        ("nope = 1", "the table has no column nope"),
        ("year = 'x'", "'x' cannot be compared with year, which is integer"),
        ("region = 5", "put it in quotes"),
        ("region = eu", "put strings in single quotes"),
        ("day = '2024-13-01'", "month must be in 1..12"),
        ("wall = '2024-01-01 00:00:00Z'", "without a zone"),
        ("year = id", "compares two columns"),
        ("lower(region) = 'eu'", "LOWER(region) = 'eu' is not supported"),
        ("year IN (SELECT 1)", "is not supported"),
        ("year = 1 + 1", "is not supported"),
        ("region = 'it''s'", "a quote inside a string"),
        ("region LIKE 'a' ESCAPE '!'", "is not supported"),
        ("DROP TABLE t", "is not supported"),
        ("year", "not a truth value"),
        ("t.year = 1", "is qualified"),
        ("year = 1; year = 2", "exactly one predicate"),
        ("year =", "not an SQL predicate"),
        ("", "it is empty"),
    ],
)
def test_a_refusal_names_the_problem_and_the_partition_columns(predicate: str, problem: str) -> None:
    message = refusal(predicate)
    assert problem in message
    assert "Partition columns are: year (integer), tiny (byte)" in message


def test_a_table_without_partitions_has_no_use_for_a_predicate() -> None:
    assert "no partition columns, so leave the predicate out" in refusal("year = 1", ())


def test_thousands_of_alternatives_do_not_exhaust_the_stack() -> None:
    assert selected(" OR ".join(f"year = {year}" for year in range(5000)), year=[4999, 5000]) == [0]


# -- against a naive evaluator -------------------------------------------------------------------------------

VALUES: dict[str, st.SearchStrategy[Any]] = {
    "year": st.integers(-3, 3),
    "region": st.sampled_from(["a", "b", "ab", "é", "Z", "%", "a'b"]),
    "day": st.dates(date(2024, 1, 1), date(2024, 1, 5)),
    "at": st.integers(0, 5).map(lambda hours: datetime(2024, 1, 1, tzinfo=UTC) + timedelta(hours=hours)),
    "price": st.sampled_from([Decimal("-1.50"), Decimal("0.00"), Decimal("2.25")]),
    "open": st.booleans(),
    "ratio": st.sampled_from([-1.5, 0.0, 2.0, NAN]),
}
ROWS = st.fixed_dictionaries({name: st.none() | values for name, values in VALUES.items()})
COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


#: In a process of its own: what overflows the stack of Arrow's C++ ends the process.
LONG = """
import pyarrow as pa
import pyarrow.dataset as ds
from delta_log.table_config.schema import PrimitiveType, StructField, StructType
from delta_maintenance.partitions.predicate import partition_predicate
schema = StructType(tuple(StructField(n, PrimitiveType(k)) for n, k in [("id", "long"), ("x", "double")]))
rows = pa.table({"id": [5, 10**6, None], "x": [5.0, 0.5, None]})
count = 10_000
for text in (
    " AND ".join(f"id <> {n}" for n in range(count)),
    " OR ".join(f"x = {n}" for n in range(count)),
    "x IN (" + ", ".join(map(str, range(count))) + ")",
):
    found = ds.dataset(rows).to_table(["id"], filter=partition_predicate(text, schema, ("id", "x")))
    print(found.column("id").to_pylist())
"""


def test_a_predicate_may_have_ten_thousand_terms() -> None:
    done = subprocess.run([sys.executable, "-c", LONG], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["[1000000]", "[5]", "[5]"]


@pytest.mark.parametrize("count", [2, 31, 32, 33, 64, 65, 1100])
def test_the_number_of_terms_changes_no_truth_value(count: int) -> None:
    ids = [0, count - 1, count, None]
    one_of = " OR ".join(f"id = {n}" for n in range(count))
    none_of = " AND ".join(f"id <> {n}" for n in range(count))
    assert selected(one_of, id=ids) == selected(f"NOT ({none_of})", id=ids) == [0, 1]
    assert selected(none_of, id=ids) == selected(f"NOT ({one_of})", id=ids) == [2]
    assert selected(f"({one_of}) IS NULL", id=ids) == selected(f"({none_of}) IS NULL", id=ids) == [3]


def test_zeros_and_nan_are_found_in_a_list_of_many() -> None:
    values = ", ".join(map(str, range(1, 100)))
    ratios = [0.0, -0.0, NAN, 5.0, 0.5, None]
    assert selected(f"ratio IN (0, {values}, 'NaN')", ratio=ratios) == [0, 1, 2, 3]
    assert selected(f"ratio IN ({values})", ratio=ratios) == [3]
    assert selected(f"ratio NOT IN ('NaN', {values})", ratio=ratios) == [0, 1, 4]


@pytest.mark.parametrize(
    "predicate",
    [
        "NOT " * 10_000 + "id = 1",
        "(" * 10_000 + "id = 1" + ")" * 10_000,
        "(" * 10_000 + "id = 1" + " AND id = 2)" * 5_000 + " OR id = 2)" * 5_000,
        "id = " + "(" * 10_000 + "1" + ")" * 10_000,
        "id = " + "CAST(" * 10_000 + "1" + " AS INT)" * 10_000,
        "(" * 10_000 + "id = 1" + ") IS NULL" * 10_000,
        "f(" * 10_000 + "1" + ")" * 10_000,
    ],
    ids=lambda predicate: predicate[:20],
)
def test_a_predicate_that_is_nested_too_deeply_is_refused_in_few_words(predicate: str) -> None:
    message = refusal(predicate, ("id",))
    assert "it is nested too deeply" in message
    assert "Partition columns are: id (long)." in message
    assert len(message) < 1_500


@dataclass
class Predicate:
    """Its SQL text, and the truth of it for a row: true, false or unknown."""

    sql: str
    truth: Callable[[dict[str, Any]], bool | None]

    def __repr__(self) -> str:
        return self.sql


def sql_literal(value: Any) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, str):
        return "'" + value.replace("'", "\\'") + "'"
    if isinstance(value, datetime):
        return f"TIMESTAMP '{value.isoformat()}'"
    if isinstance(value, date):
        return f"DATE '{value}'"
    if isinstance(value, float) and math.isnan(value):
        return "CAST('NaN' AS DOUBLE)"
    return str(value)


def order(value: Any) -> Any:
    """Something that Python compares as Spark compares the value."""
    if isinstance(value, float):
        return (math.isnan(value), 0.0 if math.isnan(value) else value)
    return value.encode() if isinstance(value, str) else value


def compare(sign: str, left: Any, right: Any) -> bool | None:
    return None if left is None or right is None else COMPARISONS[sign](order(left), order(right))


def any_of(truths: list[bool | None]) -> bool | None:
    return True if True in truths else None if None in truths else False


def negate(truth: bool | None) -> bool | None:
    return None if truth is None else not truth


@st.composite
def atoms(draw: st.DrawFn) -> Predicate:
    name = draw(st.sampled_from(list(VALUES)))
    literals = st.none() | VALUES[name]
    kind = draw(st.sampled_from(["compare", "null-safe", "in", "between", "null"]))
    if kind == "compare":
        sign, value = draw(st.sampled_from(list(COMPARISONS))), draw(literals)
        return Predicate(f"{name} {sign} {sql_literal(value)}", lambda row: compare(sign, row[name], value))
    if kind == "null-safe":
        value = draw(literals)
        return Predicate(
            f"{name} <=> {sql_literal(value)}",
            lambda row: row[name] is value is None or compare("=", row[name], value) is True,
        )
    if kind == "in":
        values = draw(st.lists(literals, min_size=1, max_size=4))
        return Predicate(
            f"{name} IN ({', '.join(map(sql_literal, values))})",
            lambda row: any_of([compare("=", row[name], value) for value in values]),
        )
    if kind == "between":
        low, high = draw(literals), draw(literals)
        return Predicate(
            f"{name} BETWEEN {sql_literal(low)} AND {sql_literal(high)}",
            lambda row: negate(any_of([compare("<", row[name], low), compare(">", row[name], high)])),
        )
    return Predicate(f"{name} IS NULL", lambda row: row[name] is None)


def combined(parts: st.SearchStrategy[Predicate]) -> st.SearchStrategy[Predicate]:
    return st.one_of(
        parts.map(lambda p: Predicate(f"NOT ({p})", lambda row: negate(p.truth(row)))),
        st.tuples(parts, parts).map(
            lambda two: Predicate(
                f"({two[0]}) OR ({two[1]})", lambda row: any_of([two[0].truth(row), two[1].truth(row)])
            )
        ),
        st.tuples(parts, parts).map(
            lambda two: Predicate(
                f"({two[0]}) AND ({two[1]})",
                lambda row: negate(any_of([negate(two[0].truth(row)), negate(two[1].truth(row))])),
            )
        ),
    )


@examples(200)
@given(st.recursive(atoms(), combined, max_leaves=5), st.lists(ROWS, min_size=1, max_size=12))
def test_every_predicate_agrees_with_a_naive_evaluator(
    predicate: Predicate, rows: list[dict[str, Any]]
) -> None:
    columns = {name: [row[name] for row in rows] for name in VALUES}
    expected = [number for number, row in enumerate(rows) if predicate.truth(row) is True]
    assert selected(predicate.sql, **columns) == expected


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a = 1", [[{"a": False}]]),
        ("7 < a", [[{"a": True}]]),
        ("a = 1; b >= DATE '2026-01-31' AND c.d IN (1, 2)", [[{"a": False}], [{"b": True, "c.d": False}]]),
        ("a BETWEEN 1 AND 2 OR b LIKE 'x%'", [[{"a": True}, {"b": True}]]),
        ("a = 1 AND (b = 2 OR c > 3)", [[{"a": False, "b": False}, {"a": False, "c": True}]]),
        # What is no such comparison selects everything.
        ("a = 1 OR lower(b) = 'x'", [[{"a": False}, {}]]),
        ("a = 1 AND NOT (b = 2 AND c = 3)", [[{"a": False}]]),
        ("a > 1 AND a = 5", [[{"a": False}]]),
        ("`odd name`.x <=> 'y' AND z <> 3 AND NOT w IN (1) AND u = v", [[{"`odd name`.x": False}]]),
        ("a = 1;", [[{"a": False}]]),
        (" OR ".join(["a = 1"] * 3000), [[{"a": False}] * 3000]),
        (
            " AND ".join(["(a = 1 OR b = 2)"] * 3000),
            [[{"a": False}] + [{"a": False, "b": False}] * 62 + [{"b": False}]],
        ),
    ],
)
def test_columns_that_are_compared_with_values_are_found(
    text: str, found: list[list[dict[str, bool]]]
) -> None:
    assert filtered_columns(text) == found


@pytest.mark.parametrize(
    "text", ["a =", "a", "a <> 3", "a = b", "SELECT 1", ";", "(" * 3000 + "a = 1" + ")" * 3000]
)
def test_what_filters_by_no_column_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest, match="cannot be used"):
        filtered_columns(text)
