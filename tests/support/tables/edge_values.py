"""Values at the edges of every type that we write, and predicates on them in the SQL of Spark, DataFusion and DuckDB.

A :class:`Column` is compared with each of its values. What an engine returns for a predicate may differ from what another
one does (NaN, for one); it must not depend on the files that hold the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

_YEAR_1, _YEAR_9999 = -62_135_596_800_000_000, 253_402_300_799_999_999
_LAST_JULIAN, _FIRST_GREGORIAN = -12_219_292_800_000_001, -12_219_292_800_000_000
_INT, _LONG = 1 << 31, 1 << 63
_FLOATS = ("NaN", "Infinity", "-Infinity", "0.0", "-0.0", "-1.5", "2.5")
_MICROS = (
    _YEAR_1,
    _YEAR_9999,
    _LAST_JULIAN,
    _FIRST_GREGORIAN,
    -2_208_988_800_000_001,
    -1,
    0,
    1_700_000_000_123_456,
)


def _decimals(precision: int, scale: int) -> tuple[str, ...]:
    most = "9" * (precision - scale) + ("." + "9" * scale if scale else "")
    least = "0." + "0" * (scale - 1) + "1" if scale else "1"
    return (most, f"-{most}", least, f"-{least}", "0", "2")


@dataclass(frozen=True)
class Column:
    """A column of the test table.

    :param type: its SQL type.
    :param values: in the rows and in predicates; the last one is no edge case.
    :param also: only in the rows: the engines' own arithmetic fails on these in a query.
    :param ordered: engines order these values differently.
    """

    name: str
    type: str
    values: tuple[Any, ...]
    also: tuple[Any, ...] = ()
    ordered: bool = False

    @property
    def in_rows(self) -> tuple[Any, ...]:
        return (*self.also, *self.values)


COLUMNS = (
    Column("t", "TINYINT", (-128, 127, 0, 7)),
    Column("s", "SMALLINT", (-(1 << 15), (1 << 15) - 1, 0, 7)),
    Column("i", "INT", (-_INT, _INT - 1, 0, 7)),
    Column("l", "BIGINT", (-_LONG, _LONG - 1, (1 << 53) + 1, 7)),
    Column("f", "FLOAT", (*_FLOATS, "3.4028235E38", "1.4E-45", "1.5")),
    Column("d", "DOUBLE", (*_FLOATS, "1.7976931348623157E308", "4.9E-324", "1.5"), ordered=True),
    Column("d9", "DECIMAL(9,2)", _decimals(9, 2)),
    Column("d18", "DECIMAL(18,6)", _decimals(18, 6)),
    Column("d38", "DECIMAL(38,18)", _decimals(38, 18)),
    Column("d0", "DECIMAL(38,0)", _decimals(38, 0)),
    Column(
        "str",
        "STRING",
        ("", "x" * 4_096, "\ufffd", "\uffff", "\U00010000", "a" * 64 + "\U0010ffff", "\0", "\x7f" * 40, "m"),
    ),
    Column("bin", "BINARY", (b"", b"\xff", b"\xff" * 100, b"\0", b"\x80", b"\x7f", b"x" * 4_097, b"m")),
    # Spark's pushdown takes days that the Julian calendar leaves out for others, in its own files, too.
    Column("day", "DATE", (-719_162, 2_932_896, -141_438, -141_427, -1, 0, 19_000), (-_INT, _INT - 1)),
    Column("ts", "TIMESTAMP", _MICROS, (-_LONG, _LONG - 1)),
    Column("ntz", "TIMESTAMP_NTZ", _MICROS, (-_LONG, _LONG - 1)),
    Column("flag", "BOOLEAN", (True, False)),
)
#: Members of the struct ``st``.
MEMBERS = (
    Column("x", "DOUBLE", COLUMNS[5].values),
    Column("z", "STRING", COLUMNS[10].values),
)

Literal = Callable[[Column, Any], str]


def spark_literal(column: Column, value: Any) -> str:
    if value is None:
        return f"CAST(NULL AS {column.type})"
    if column.type == "DATE":
        return f"date_from_unix_date(CAST('{value}' AS INT))"
    if column.type.startswith("TIMESTAMP"):
        return f"CAST(timestamp_micros(CAST('{value}' AS BIGINT)) AS {column.type})"
    if isinstance(value, bytes):
        return f"X'{value.hex()}'"
    if column.type == "STRING":
        return f"CAST(X'{value.encode().hex()}' AS STRING)"
    return f"CAST('{value}' AS {column.type})"


_ARROW = {
    "TINYINT": "Int8",
    "SMALLINT": "Int16",
    "INT": "Int32",
    "BIGINT": "Int64",
    "FLOAT": "Float32",
    "DOUBLE": "Float64",
    "BOOLEAN": "Boolean",
    "DATE": "Date32",
    "TIMESTAMP": 'Timestamp(Microsecond, Some("UTC"))',
    "TIMESTAMP_NTZ": "Timestamp(Microsecond, None)",
}


def datafusion_literal(column: Column, value: Any) -> str:
    if isinstance(value, bytes):
        return f"X'{value.hex()}'"
    if column.type == "STRING":
        return f"'{value}'"
    if column.type.startswith("DECIMAL"):
        return f"arrow_cast('{value}', 'Decimal128{column.type[7:].replace(',', ', ')}')"
    if column.type == "DATE" or column.type.startswith("TIMESTAMP"):
        number = "Int32" if column.type == "DATE" else "Int64"
        return f"arrow_cast(arrow_cast('{value}', '{number}'), '{_ARROW[column.type]}')"
    return f"arrow_cast('{value}', '{_ARROW[column.type]}')"


def duckdb_literal(column: Column, value: Any) -> str:
    if isinstance(value, bytes):
        return f"from_hex('{value.hex()}')"
    if column.type == "STRING":
        return f"'{value}'"
    if column.type == "DATE":
        return f"DATE '1970-01-01' + CAST('{value}' AS INT)"
    if column.type.startswith("TIMESTAMP"):
        return f"make_timestamp{'' if column.type.endswith('NTZ') else 'tz'}(CAST('{value}' AS BIGINT))"
    return f"CAST('{value}' AS {column.type})"


#: With ``few``: the comparisons for a column's first value, and those for its second.
_HALVES = (("=", ">", "<=", "in", "same as"), ("<>", "<", ">=", "not in", "not in the one"))


def predicates(
    columns: Iterable[tuple[str, Column]], literal: Literal, null_safe: str, *, few: bool = False
) -> dict[str, str]:
    """Returns predicates by a name that is the same for every engine.

    :param columns: each with the expression that refers to it.
    :param few: only some of the predicates, except for ``ordered`` columns.
    """
    found = {}
    for expression, column in columns:
        literals = [literal(column, value) for value in column.values]
        for number, value in enumerate(column.values):
            one, other = literals[number], literals[number - 1]
            cases = {
                operator: f"{expression} {operator} {one}" for operator in ("=", "<>", "<", ">", "<=", ">=")
            }
            cases["same as"] = f"{expression} {null_safe} {one}"
            cases["in"] = f"{expression} IN ({one}, {other})"
            cases["not in"] = f"{expression} NOT IN ({one}, {other})"
            cases["not in the one"] = f"{expression} NOT IN ({one})"
            if few and not column.ordered:
                cases = {case: cases[case] for case in (_HALVES[number] if number < 2 else ())}
            found.update({f"{column.name} {case} {value!r:.24}": text for case, text in cases.items()})
        found[f"{column.name} is null"] = f"{expression} IS NULL"
        found[f"{column.name} is not null"] = f"{expression} IS NOT NULL"
    return found
