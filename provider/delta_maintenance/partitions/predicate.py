"""From the text of a SQL predicate to the files it selects: an Arrow expression over typed partition values.

The text is Spark SQL, restricted to what can be decided from the log alone:

1. Columns are partition columns, by logical name, in any case, in backticks where needed. A literal takes the
   type of the column that it is compared with (``day >= '2024-01-31'``); a timestamp without a zone means
   UTC, as such a partition value does.
2. ``= == <> != < <= > >= <=>``, ``[NOT] IN``, ``[NOT] BETWEEN``, ``[NOT] LIKE``, ``IS [NOT]
   NULL|TRUE|FALSE``, ``AND``, ``OR``, ``NOT``; literals are strings, numbers, booleans, ``NULL``, ``X'…'``,
   ``DATE '…'``, ``TIMESTAMP '…'`` and ``CAST(literal AS type)``.
3. Three-valued logic: what is unknown (a comparison with null) does not select. NaN equals itself and is the
   greatest number, as in Spark. A literal between two values of the column's type (``n > 1.5``) compares
   exactly.

Anything else, above all a data column, is refused with :class:`~delta_log.errors.InvalidRequest`: the planner
selects whole files, and what it cannot decide it must not guess.

A predicate may have any number of terms and values. Arrow turns what it is given into chains and walks them by recursion,
in C++, where too deep a chain ends the process; :func:`_balanced` keeps all of them short. Too deep a nesting is refused.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from datetime import datetime, time
from decimal import ROUND_FLOOR, Context, Decimal, InvalidOperation
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import sqlglot
from msgspec import Struct
from sqlglot import exp
from sqlglot.errors import ParseError, SqlglotError

from delta_log.errors import InvalidPartitionValue, InvalidRequest, brief
from delta_log.table_config.partition_values import parse
from delta_log.table_config.schema import PrimitiveType, StructField, StructType, to_arrow_type
from delta_maintenance.options import written_column

#: So many terms make a chain.
_CHAIN = 32
#: So many filters of one query are told apart.
_MOST_FILTERS = 64
_UNKNOWN = pa.scalar(None, pa.bool_())

_COMPARISONS: dict[type[exp.Expr], str] = {
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
    exp.NullSafeEQ: "<=>",
}
_FLIPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_OPERATORS: dict[str, Callable[[Any, Any], pc.Expression]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}

_INTEGER_BITS = {"byte": 8, "short": 16, "integer": 32, "long": 64}
#: What ``CAST(literal AS …)`` and typed literals make of their text.
_CAST_KINDS = {
    **dict.fromkeys(("DATE",), "date"),
    **dict.fromkeys(("TIMESTAMP", "TIMESTAMPTZ", "TIMESTAMPLTZ", "TIMESTAMPNTZ"), "timestamp"),
    **dict.fromkeys(("TINYINT", "SMALLINT", "INT", "BIGINT"), "integer"),
    **dict.fromkeys(("FLOAT", "DOUBLE", "DECIMAL"), "number"),
    **dict.fromkeys(("TEXT", "VARCHAR", "CHAR"), "string"),
    **dict.fromkeys(("BOOLEAN",), "boolean"),
}
#: Digits enough for decimal(38, s) against any literal that is not far outside.
_EXACT = Context(prec=120, Emin=-999_999_999, Emax=999_999_999)


def partition_predicate(text: str, schema: StructType, partition_columns: Sequence[str]) -> pc.Expression:
    """The predicate as an expression over typed partition values, for ``Snapshot.files(where=…)``.

    :param schema: the table's schema; data columns are known from it, so that the error can say so.
    :param partition_columns: logical names.
    :raises InvalidRequest: not a predicate, or not one on partition columns alone.
    """
    return _Translator(text, schema, partition_columns).translate()


#: Columns that a query compares with values; of each, whether it asks for ranges of values only.
Filter = dict[str, bool]


def filtered_columns(text: str) -> list[list[Filter]]:
    """The columns by which some predicates of queries filter.

    The predicates may be on data columns, and hold whatever Spark SQL allows: what is no comparison of one column with something else
    selects everything.

    :param text: predicates, with semicolons between them.
    :return: for each predicate, the filters that it combines with OR. Names of columns have dots between parts, and backticks where a part
        needs them. A filter without columns selects everything.
    :raises InvalidRequest: a text is no predicate, or filters by no column.
    """
    try:
        statements = sqlglot.parse(text, read="spark")
        found = [_filters(node) for node in statements if node is not None]
    except (SqlglotError, RecursionError) as error:
        raise InvalidRequest(
            f"The predicates {brief(text)!r} cannot be used: they are not SQL predicates. Write them as in WHERE, with semicolons "
            "between them."
        ) from error
    if not found or not all(any(filters) for filters in found):
        raise InvalidRequest(
            f"The predicates {brief(text)!r} cannot be used: each must compare a column with a value. Write them as in WHERE, with "
            "semicolons between them."
        )
    return found


def _filters(predicate: exp.Expr) -> list[Filter]:
    """The filters that a predicate combines with OR."""
    if isinstance(predicate, exp.Paren):
        return _filters(predicate.this)
    if isinstance(predicate, exp.Or):
        return [one for term in predicate.flatten() for one in _filters(term)]
    if not isinstance(predicate, exp.And):
        return [_compared(predicate)]
    found: list[Filter] = [{}]
    for term in predicate.flatten():
        more = _filters(term)
        if (
            len(found) * len(more) <= _MOST_FILTERS
        ):  # otherwise this term counts as one that selects everything
            found = [_both(one, other) for one in found for other in more]
    return found


def _both(one: Filter, other: Filter) -> Filter:
    return {name: one.get(name, True) and other.get(name, True) for name in (*one, *other)}


def _compared(node: exp.Expr) -> Filter:
    """The column that a comparison asks for; none: it is no such comparison."""
    if not isinstance(node, (*_COMPARISONS, exp.In, exp.Between, exp.Like)) or isinstance(node, exp.NEQ):
        return {}
    sides = [_bare(node.this), *([_bare(node.expression)] if type(node) in _COMPARISONS else [])]
    columns = [side for side in sides if isinstance(side, (exp.Column, exp.Dot))]
    if len(columns) != 1:
        return {}
    name = written_column(part.name for part in columns[0].parts)
    return {name: not isinstance(node, (exp.EQ, exp.NullSafeEQ, exp.In))}


class _Literal(Struct, frozen=True):
    """A literal, not typed yet; ``text`` is ``None`` for NULL."""

    kind: str
    text: str | None
    sql: str


class _Point(Struct, frozen=True):
    """Where a literal lies among the values of a column's type.

    :param value: the greatest value of the type that is not above the literal.
    :param exact: the literal is that value.
    :param outside: -1, 1: the literal lies below, above every value of the type, and ``value`` says nothing.
    """

    value: Any = None
    exact: bool = True
    outside: int = 0


class _Translator:
    def __init__(self, text: str, schema: StructType, partition_columns: Sequence[str]) -> None:
        self._text = text
        self._schema = schema
        self._columns = {name.lower(): schema.field(name) for name in partition_columns}

    def translate(self) -> pc.Expression:
        try:
            statements = sqlglot.parse(self._text, read="spark")
        except SqlglotError as error:
            first = error.errors[0] if isinstance(error, ParseError) and error.errors else {}
            at = f" at {first['highlight']!r}" if first.get("highlight") else ""
            why = str(first.get("description") or error).partition(" for <class")[0]
            raise self._refusal(f"it is not an SQL predicate ({why}{at})") from error
        except RecursionError as error:
            raise self._refusal("it is nested too deeply") from error
        if len(statements) != 1 or statements[0] is None:
            raise self._refusal(
                "it must be exactly one predicate" if statements[0:1] != [None] else "it is empty"
            )
        try:
            return self._truth(statements[0])
        except RecursionError as error:
            raise self._refusal("it is nested too deeply") from error

    # -- truth values ----------------------------------------------------------------------------------------

    def _truth(self, node: exp.Expr) -> pc.Expression:
        if isinstance(node, exp.Paren):
            return self._truth(self._only(node, "this").this)
        if isinstance(node, (exp.And, exp.Or)):
            parts = [self._truth(part) for part in node.flatten()]
            return _balanced(operator.and_ if isinstance(node, exp.And) else operator.or_, parts)
        if isinstance(node, exp.Not):
            return ~self._truth(self._only(node, "this").this)
        if isinstance(node, exp.Boolean):
            return pc.scalar(bool(node.this))
        if isinstance(node, exp.Null):
            return pc.scalar(_UNKNOWN)
        if isinstance(node, exp.Column):
            column = self._column(node)
            if column.type != PrimitiveType("boolean"):
                raise self._refusal(f"{node.sql('spark')} is {_type_name(column)}, not a truth value")
            return pc.field(column.name)
        if type(node) in _COMPARISONS:
            return self._comparison(node, _COMPARISONS[type(node)])
        if isinstance(node, exp.In):
            return self._in(node)
        if isinstance(node, exp.Between):
            self._only(node, "this", "low", "high")
            column = self._operand(node.this)
            low, high = self._literal(node.args["low"]), self._literal(node.args["high"])
            return self._compare(">=", column, low) & self._compare("<=", column, high)
        if isinstance(node, exp.Is):
            return self._is(node)
        if isinstance(node, (exp.Like, exp.ILike)):
            return self._like(node)
        raise self._unsupported(node)

    def _comparison(self, node: exp.Expr, comparison: str) -> pc.Expression:
        self._only(node, "this", "expression")
        left, right = _bare(node.this), _bare(node.expression)
        if not isinstance(left, exp.Column):
            left, right = right, left
            comparison = _FLIPPED.get(comparison, comparison)
        if not isinstance(left, exp.Column):
            raise self._unsupported(node)
        if isinstance(right, exp.Column) and self._is_known(right):
            raise self._refusal(f"{node.sql('spark')} compares two columns; compare a column with a literal")
        return self._compare(comparison, self._operand(left), self._literal(right))

    def _in(self, node: exp.In) -> pc.Expression:
        self._only(node, "this", "expressions")
        column = self._operand(node.this)
        literals = [self._literal(item) for item in node.expressions]
        if not literals:
            raise self._refusal("IN needs at least one value")
        present = [literal for literal in literals if literal.text is not None]
        found = self._is_one_of(column, [self._point(column, literal) for literal in present])
        # A null among the values: what is not found may still be equal to it.
        missing = _UNKNOWN if len(present) < len(literals) else False
        found = pc.if_else(found, True, missing)
        return pc.if_else(pc.field(column.name).is_valid(), found, _UNKNOWN)

    def _is_one_of(self, column: StructField, points: list[_Point]) -> pc.Expression:
        """True or false for every value that is not null."""
        arrow_type = to_arrow_type(column.type)
        values = [point.value for point in points if point.exact and not point.outside]
        if not pa.types.is_floating(arrow_type):
            return pc.field(column.name).isin(pa.array(values, arrow_type))
        # Hashing tells 0.0 from -0.0, and says nothing certain of NaN.
        odd = {repr(abs(value)): value for value in values if value == 0 or math.isnan(value)}
        plain = [value for value in values if value != 0 and not math.isnan(value)]
        parts = [_at(column, "=", _Point(value)) for value in odd.values()]
        return _balanced(operator.or_, [*parts, pc.field(column.name).isin(pa.array(plain, arrow_type))])

    def _is(self, node: exp.Is) -> pc.Expression:
        self._only(node, "this", "expression")
        wanted, subject = node.expression, _bare(node.this)
        if isinstance(wanted, exp.Null):
            if isinstance(subject, exp.Column):
                return pc.field(self._column(subject).name).is_null()
            return self._truth(subject).is_null()
        if isinstance(wanted, exp.Boolean):
            truth = self._truth(subject)
            return pc.if_else(truth.is_valid(), truth if wanted.this else ~truth, False)
        raise self._unsupported(node)

    def _like(self, node: exp.Like | exp.ILike) -> pc.Expression:
        self._only(node, "this", "expression", "negate")
        column, pattern = self._operand(node.this), self._literal(node.expression)
        if not pa.types.is_string(to_arrow_type(column.type)):
            raise self._refusal(f"LIKE needs a string column, and {column.name} is {_type_name(column)}")
        if pattern.text is None:
            return pc.scalar(_UNKNOWN)
        if pattern.kind != "string":
            raise self._refusal(f"LIKE needs a string pattern, not {pattern.sql}")
        matched = pc.match_like(pc.field(column.name), pattern.text, ignore_case=isinstance(node, exp.ILike))
        return ~matched if node.args.get("negate") else matched

    # -- columns and literals --------------------------------------------------------------------------------

    def _operand(self, node: exp.Expr) -> StructField:
        node = _bare(node)
        if not isinstance(node, exp.Column):
            raise self._unsupported(node)
        return self._column(node)

    def _is_known(self, node: exp.Column) -> bool:
        return node.name.lower() in (name.lower() for name in self._schema.names)

    def _column(self, node: exp.Column) -> StructField:
        name = node.name
        if node.args.get("table") is not None or not isinstance(node.this, exp.Identifier):
            raise self._refusal(
                f"{node.sql('spark')} is qualified; use the bare column name, in backticks if it has dots"
            )
        column = self._columns.get(name.lower())
        if column is not None:
            return column
        if self._is_known(node):
            raise self._refusal(
                f"{name} is a data column, and whole files can only be chosen by partition columns"
            )
        raise self._refusal(f"the table has no column {name}")

    def _literal(self, node: exp.Expr) -> _Literal:
        sql = node.sql("spark")
        node = _bare(node)
        if isinstance(node, exp.Null):
            return _Literal("null", None, sql)
        if isinstance(node, exp.Boolean):
            return _Literal("boolean", "true" if node.this else "false", sql)
        if isinstance(node, exp.Literal):
            return _Literal("string" if node.is_string else "number", node.this, sql)
        if isinstance(node, exp.RawString):
            return _Literal("string", node.this, sql)
        if isinstance(node, exp.HexString):
            return _Literal("binary", node.this, sql)
        if isinstance(node, exp.Neg):
            inner = self._literal(node.this)
            if inner.kind in ("number", "integer") and inner.text is not None:
                text = inner.text[1:] if inner.text.startswith("-") else f"-{inner.text}"
                return _Literal(inner.kind, text, sql)
        if isinstance(node, exp.Cast):  # TRY_CAST is one too
            return self._cast(node, sql)
        if isinstance(node, exp.Column):
            # In Spark "x" is a string; without quotes it is a column.
            raise self._refusal(f"a literal is needed where {sql} stands; put strings in single quotes")
        if isinstance(node, exp.Concat):  # what sqlglot makes of 'it''s'
            raise self._refusal(f"{sql} is no literal; a quote inside a string is written \\'")
        raise self._unsupported(node)

    def _cast(self, node: exp.Cast, sql: str) -> _Literal:
        inner = self._literal(node.this)
        kind = _CAST_KINDS.get(getattr(node.to.this, "name", ""))
        if kind is None:
            raise self._unsupported(node)
        if inner.text is None:
            return inner
        if kind == "integer":
            number = _decimal(inner.text)
            if number is None or number % 1 != 0:
                raise self._refusal(f"{sql} is not an integer; write the one that is meant")
        if kind == "string" and inner.kind in ("date", "timestamp", "binary"):
            raise self._unsupported(node)
        return _Literal("number" if kind == "integer" else kind, inner.text, sql)

    # -- comparing -------------------------------------------------------------------------------------------

    def _compare(self, comparison: str, column: StructField, literal: _Literal) -> pc.Expression:
        field = pc.field(column.name)
        if literal.text is None:
            return field.is_null() if comparison == "<=>" else pc.scalar(_UNKNOWN)
        point = self._point(column, literal)
        if comparison == "<=>":
            return pc.if_else(field.is_valid(), _at(column, "=", point), False)
        return _at(column, comparison, point)

    def _point(self, column: StructField, literal: _Literal) -> _Point:
        """The literal as a value of the column's type."""
        assert literal.text is not None
        name = column.type.name if isinstance(column.type, PrimitiveType) else ""
        decimal = column.type.decimal if isinstance(column.type, PrimitiveType) else None
        kind, text = literal.kind, literal.text
        try:
            if name in _INTEGER_BITS and kind in ("number", "string"):
                limit = 1 << _INTEGER_BITS[name] - 1
                return _numeric_point(text, 0, Decimal(-limit), Decimal(limit - 1), int)
            if decimal is not None and kind in ("number", "string"):
                precision, scale = decimal
                highest = (Decimal(10**precision) - 1).scaleb(-scale, _EXACT)
                return _numeric_point(text, scale, -highest, highest, Decimal)
            if name == "date" and kind == "timestamp":
                moment: datetime = parse(text, PrimitiveType("timestamp"))
                return _Point(moment.date(), moment.timetz().replace(tzinfo=None) == time())
            if name == "binary":
                return _Point(
                    bytes.fromhex(text) if kind == "binary" else self._expect(kind == "string", text).encode()
                )
            fits = {
                "float": ("number", "string"),
                "double": ("number", "string"),
                "boolean": ("boolean", "string"),
                "date": ("date", "string"),
                "timestamp": ("date", "timestamp", "string"),
                "timestamp_ntz": ("date", "timestamp", "string"),
            }.get(name, ("string",))
            if kind == "date":  # it must be one, whatever it is compared with
                parse(text, PrimitiveType("date"))
            # An empty text is no null here: a literal is never null, and no partition value is ever empty.
            return _Point(parse(self._expect(kind in fits, text), column.type) if text else _empty(name))
        except (InvalidPartitionValue, ValueError) as error:
            why = f" ({error.why})" if isinstance(error, InvalidPartitionValue) else ""
            hint = (
                "; put it in quotes" if _stands_in_quotes(name) and kind not in ("string", "binary") else ""
            )
            raise self._refusal(
                f"{literal.sql} cannot be compared with {column.name}, "
                f"which is {_type_name(column)}{why}{hint}"
            ) from error

    @staticmethod
    def _expect(condition: bool, text: str) -> str:
        if not condition:
            raise ValueError(text)
        return text

    # -- refusing --------------------------------------------------------------------------------------------

    def _only(self, node: exp.Expr, *arguments: str) -> exp.Expr:
        """Refuse a node with parts that this module does not know: what is overlooked is misunderstood."""
        if any(value not in (None, False, []) and name not in arguments for name, value in node.args.items()):
            raise self._unsupported(node)
        return node

    def _unsupported(self, node: exp.Expr) -> InvalidRequest:
        return self._refusal(
            f"{node.sql('spark')} is not supported there; comparisons of a partition column with literals, "
            "IN, BETWEEN, LIKE, IS NULL, AND, OR and NOT are"
        )

    def _refusal(self, problem: str) -> InvalidRequest:
        columns = ", ".join(f"{column.name} ({_type_name(column)})" for column in self._columns.values())
        remedy = (
            f"Partition columns are: {columns}."
            if columns
            else ("This table has no partition columns, so leave the predicate out.")
        )
        return InvalidRequest(
            f"The predicate {brief(self._text)!r} cannot be used: {brief(problem)}. {remedy}"
        )


def _at(column: StructField, comparison: str, point: _Point) -> pc.Expression:
    """Compare a column with a point of its type; null where the column is null."""
    field = pc.field(column.name)
    if point.outside or (not point.exact and comparison in ("=", "<>")):
        # Every value is on one side of the literal.
        below = point.outside > 0
        always = {"=": False, "<>": True, "<": below, "<=": below, ">": not below, ">=": not below}[
            comparison
        ]
        return pc.if_else(field.is_valid(), always, _UNKNOWN)
    if not point.exact:
        # floor(literal) < literal: "< literal" is "<= floor", ">= literal" is "> floor".
        comparison = {"<": "<=", ">=": ">"}.get(comparison, comparison)
    arrow_type = to_arrow_type(column.type)
    if pa.types.is_floating(arrow_type):
        return _at_float(field, comparison, point.value, arrow_type)
    return _OPERATORS[comparison](field, pa.scalar(point.value, arrow_type))


def _at_float(field: pc.Expression, comparison: str, value: float, arrow_type: pa.DataType) -> pc.Expression:
    is_nan = pc.is_nan(field)
    if math.isnan(value):
        always = {"<=": True, ">": False}
        if comparison in always:
            return pc.if_else(field.is_valid(), always[comparison], _UNKNOWN)
        return is_nan if comparison in ("=", ">=") else ~is_nan
    plain = _OPERATORS[comparison](field, pa.scalar(value, arrow_type))
    return plain | is_nan if comparison in (">", ">=") else plain


def _numeric_point(
    text: str, scale: int, lowest: Decimal, highest: Decimal, kind: Callable[[Decimal], Any]
) -> _Point:
    value = _decimal(text)
    if value is None:
        raise ValueError(text)
    if value > highest:
        return _Point(outside=1)
    if value < lowest:
        return _Point(outside=-1)
    floor = value.quantize(Decimal(1).scaleb(-scale), ROUND_FLOOR, _EXACT)
    return _Point(kind(floor), floor == value)


def _decimal(text: str) -> Decimal | None:
    try:
        value = Decimal(text.strip())
    except InvalidOperation:
        return None
    return value if value.is_finite() and "_" not in text else None


def _empty(type_name: str) -> str:
    if type_name != "string" and not _stands_in_quotes(type_name):
        raise ValueError("it is empty")
    return ""


def _stands_in_quotes(type_name: str) -> bool:
    """Whether values of this type stand in quotes."""
    return type_name in ("string", "date", "timestamp", "timestamp_ntz") or "char(" in type_name


def _bare(node: exp.Expr) -> exp.Expr:
    while isinstance(node, exp.Paren):
        node = node.this
    return node


def _balanced(combine: Callable[[Any, Any], pc.Expression], parts: list[pc.Expression]) -> pc.Expression:
    """Combine as a flat tree.

    To simplify an expression, Arrow makes one chain of what the same connective combines, however it was put together. A
    double negation changes no truth value, null included, and ends a chain.
    """
    while len(parts) > _CHAIN:
        chains = [reduce(combine, parts[at : at + _CHAIN]) for at in range(0, len(parts), _CHAIN)]
        parts = [~~chain for chain in chains]
    return reduce(combine, parts)


def _type_name(column: StructField) -> str:
    return column.type.name if isinstance(column.type, PrimitiveType) else type(column.type).__name__
