"""Partition values: the texts of the log's ``partitionValues`` maps, and the typed values that they stand for.

Protocol section "Partition Value Serialization". Null and the empty text are null for every type. Readers accept:

* numbers as decimal text within the range of their type; a decimal must fit its precision and scale exactly;
* dates ``yyyy-MM-dd``; timestamps ``yyyy-MM-dd HH:mm:ss[.ffffff]``, which names no zone and is **read as UTC** (its
  writer's zone is not recorded), or ISO 8601 with ``Z`` or an offset; ``timestamp_ntz`` only without a zone;
* booleans in any case; binary as the UTF-8 bytes of the text, as Spark and the kernels have it;
* intervals as literals of ANSI SQL, by :mod:`delta_log.table_config.interval`.

Writers give the canonical form, with timestamps in ISO 8601 UTC. Dates and timestamps are whole days and microseconds
throughout, never floats. A text that does not parse is refused, not taken for null, unless the caller asks for that.
Fractions of a second finer than microseconds are dropped, as Spark and delta-rs do. ``timestamp_nanos`` and ``timestamp_nanos_ntz`` keep
them: their values are nanoseconds since 1970, since Python's ``datetime`` has no such digits.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable
from datetime import date, datetime, timedelta, timezone
from decimal import Context, Decimal, InvalidOperation
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from delta_log.errors import InvalidPartitionValue, InvalidRequest
from delta_log.table_config.interval import interval_literal, parse_interval
from delta_log.table_config.schema import DataType, PrimitiveType, to_arrow_type

_EPOCH_DATE = date(1970, 1, 1)
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_DAY_SECONDS = 86_400

_INTEGER_BITS = {"byte": 8, "short": 16, "integer": 32, "long": 64}
_INTEGER = re.compile(r"[+-]?0*[0-9]{1,19}")
#: Longer texts of numbers are refused: parsing them takes time.
_LONGEST_NUMBER = 1000
_FLOAT = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]{1,6})?")
_SPECIAL_FLOATS = {"nan": math.nan, "infinity": math.inf, "inf": math.inf}
_DATE_TEXT = r"(?P<year>[+-]?[0-9]{4,7})-(?P<month>[0-9]{1,2})-(?P<day>[0-9]{1,2})"
_DATE = re.compile(_DATE_TEXT)
_TIMESTAMP = re.compile(
    _DATE_TEXT + r"([ T](?P<hour>[0-9]{1,2}):(?P<minute>[0-9]{1,2})(:(?P<second>[0-9]{1,2})"
    r"(\.(?P<fraction>[0-9]{1,9}))?)?\s?(?P<zone>Z|UTC|[+-][0-9]{2}(:?[0-9]{2})?)?)?"
)
#: Enough digits for every decimal(38, s), and to notice values that exceed it.
_DECIMALS = Context(prec=80, Emin=-999_999, Emax=999_999)


def parse(text: str | None, data_type: DataType, column: str = "") -> Any:
    """The value of one text: ``int``, ``float``, ``Decimal``, ``bool``, ``str``, ``bytes``, ``date`` or ``datetime``.

    :param column: name of the column, for the error.
    :raises InvalidPartitionValue: the text is no value of that type, or lies outside Python's years 1 to 9999
        (:func:`parse_column` does not have that limit).
    """
    if not text:
        return None
    physical = physical_value(text, data_type, column)
    kind = _name(data_type)
    try:
        if kind == "date":
            return _EPOCH_DATE + timedelta(days=physical)
        if kind in ("timestamp", "timestamp_ntz"):
            moment = _EPOCH + timedelta(microseconds=physical)
            return moment if kind == "timestamp" else moment.replace(tzinfo=None)
    except OverflowError as error:
        raise _bad(text, data_type, column, "it lies outside the years 1 to 9999") from error
    return physical


def parse_column(
    texts: pa.Array | pa.ChunkedArray, data_type: DataType, column: str = "", *, or_null: bool = False
) -> pa.Array:
    """A column of texts as an Arrow array of :func:`~delta_log.table_config.schema.to_arrow_type`'s type.

    Each distinct text is parsed once: partition values are few, files are many.

    :param or_null: a text that is no value of that type becomes null; :func:`are_unreadable` tells of which files.
    :raises InvalidPartitionValue: a text is no value of that type.
    """
    if isinstance(texts, pa.ChunkedArray):
        texts = texts.combine_chunks()
    if not pa.types.is_dictionary(texts.type):
        texts = texts.dictionary_encode()
    parse_one = _physical_or_null if or_null else physical_value
    values = [parse_one(text, data_type, column) if text else None for text in texts.dictionary.to_pylist()]
    arrow_type = to_arrow_type(data_type)
    if pa.types.is_temporal(arrow_type):
        counts = pa.array(values, pa.int32() if pa.types.is_date32(arrow_type) else pa.int64())
        distinct = counts.cast(arrow_type)
    else:
        distinct = pa.array(values, arrow_type)
    return distinct.take(texts.indices)


def are_unreadable(texts: pa.Array | pa.ChunkedArray, parsed: pa.Array) -> pa.BooleanArray:
    """Tell for each text whether it stands for a value that could not be read.

    :param parsed: result of :func:`parse_column` for the texts, with ``or_null``.
    """
    if isinstance(texts, pa.ChunkedArray):
        texts = texts.combine_chunks()
    return pc.and_(pc.is_null(parsed), pc.fill_null(pc.not_equal(texts, ""), False))


def serialise(value: Any, data_type: DataType) -> str | None:
    """The canonical text of a value; ``parse(serialise(v, t), t) == v``, but that empty texts and bytes become null.

    :raises InvalidRequest: the value is not of that type.
    """
    if value is None:
        return None
    try:
        text = _serialiser(data_type)(value)
        # A text that cannot be read back must not be written.
        if text:
            physical_value(text, data_type, "")
    except (InvalidPartitionValue, ValueError, TypeError, AttributeError, ArithmeticError) as error:
        raise InvalidRequest(
            f"{value!r} is not a partition value of type {_name(data_type)}: {error}"
        ) from error
    return text or None


def physical_value(text: str, data_type: DataType, column: str = "") -> Any:
    """Return what :func:`parse` does, but dates as days and timestamps as microseconds since 1970, in any year.

    :raises InvalidPartitionValue: the text is no value of that type.
    """
    try:
        return _parser(data_type)(text)
    except ValueError as error:
        raise _bad(text, data_type, column, str(error)) from error


def _physical_or_null(text: str, data_type: DataType, column: str) -> Any:
    try:
        return physical_value(text, data_type, column)
    except InvalidPartitionValue:
        return None


def _parser(data_type: DataType) -> Callable[[str], Any]:
    if isinstance(data_type, PrimitiveType):
        if data_type.name in _INTEGER_BITS:
            return lambda text: _parse_integer(text, _INTEGER_BITS[data_type.name])
        if data_type.decimal is not None:
            precision, scale = data_type.decimal
            return lambda text: _parse_decimal(text, precision, scale)
        if data_type.name in _PARSERS:
            return _PARSERS[data_type.name]
        if interval := data_type.interval:
            return lambda text: parse_interval(text, interval)
        if data_type.name.startswith(("char(", "varchar(")):
            return str
    raise ValueError("a column of this type cannot be a partition column")


def _parse_boolean(text: str) -> bool:
    try:
        return {"true": True, "false": False}[text.lower()]
    except KeyError:
        raise ValueError("it is neither true nor false") from None


def _parse_integer(text: str, bits: int) -> int:
    if not _INTEGER.fullmatch(text):
        raise ValueError("it is not an integer")
    value = int(text)
    if not -(1 << bits - 1) <= value < 1 << bits - 1:
        raise ValueError(f"it does not fit into {bits} bits")
    return value


def _parse_double(text: str) -> float:
    special = _SPECIAL_FLOATS.get(text.lstrip("+-").lower())
    if special is not None and text[1:2] not in ("+", "-"):
        return -special if text.startswith("-") else special
    if len(text) > _LONGEST_NUMBER or not _FLOAT.fullmatch(text):
        raise ValueError("it is not a number")
    return float(text)


def _parse_float(text: str) -> float:
    value = _parse_double(text)
    nearest = _nearest_float(value)
    if math.isinf(nearest) and math.isfinite(value):
        raise ValueError("it does not fit into 32 bits")
    return nearest


def _nearest_float(value: float) -> float:
    """The 32-bit float nearest to a 64-bit one; infinite where that is too large."""
    try:
        return float(struct.unpack("<f", struct.pack("<f", value))[0])
    except OverflowError:
        return math.copysign(math.inf, value)


def _parse_decimal(text: str, precision: int, scale: int) -> Decimal:
    if len(text) > _LONGEST_NUMBER or not _FLOAT.fullmatch(text):
        raise ValueError("it is not a decimal number")
    try:
        value = Decimal(text)
        exact = value.quantize(Decimal(1).scaleb(-scale), context=_DECIMALS)
    except InvalidOperation:
        raise ValueError(f"it does not fit into {precision} digits") from None
    if exact != value:
        raise ValueError(f"it has more than {scale} digits after the point")
    if exact and exact.adjusted() + scale >= precision:
        raise ValueError(f"it does not fit into {precision} digits")
    return exact


def _parse_date(text: str) -> int:
    match = _DATE.fullmatch(text)
    if match is None:
        raise ValueError("it is not a date like 2024-12-31")
    return _days(match)


def _parse_timestamp(text: str) -> int:
    match = _TIMESTAMP.fullmatch(text)
    if match is None:
        raise ValueError("it is not a timestamp like 2024-12-31T23:59:59.999999Z")
    return _checked(_microseconds(match) - _offset_microseconds(match["zone"]))


def _parse_timestamp_ntz(text: str) -> int:
    match = _TIMESTAMP.fullmatch(text)
    if match is None or match["zone"]:
        raise ValueError("it is not a timestamp without a zone like 2024-12-31 23:59:59.999999")
    return _checked(_microseconds(match))


def _parse_timestamp_nanos(text: str) -> int:
    match = _TIMESTAMP.fullmatch(text)
    if match is None:
        raise ValueError("it is not a timestamp like 2024-12-31T23:59:59.999999999Z")
    return _checked(_nanoseconds(match) - 1000 * _offset_microseconds(match["zone"]))


def _parse_timestamp_nanos_ntz(text: str) -> int:
    match = _TIMESTAMP.fullmatch(text)
    if match is None or match["zone"]:
        raise ValueError("it is not a timestamp without a zone like 2024-12-31T23:59:59.999999999")
    return _checked(_nanoseconds(match))


_PARSERS: dict[str, Callable[[str], Any]] = {
    "string": str,
    "binary": str.encode,
    "boolean": _parse_boolean,
    "float": _parse_float,
    "double": _parse_double,
    "date": _parse_date,
    "timestamp": _parse_timestamp,
    "timestamp_ntz": _parse_timestamp_ntz,
    "timestamp_nanos": _parse_timestamp_nanos,
    "timestamp_nanos_ntz": _parse_timestamp_nanos_ntz,
}


def _days(match: re.Match[str]) -> int:
    year, month, day = int(match["year"]), int(match["month"]), int(match["day"])
    # The Gregorian calendar repeats every 400 years, which are 146,097 days. Python's dates begin with the year 1.
    cycles, inside = divmod(year - 1, 400)
    days = (date(inside + 1, month, day) - _EPOCH_DATE).days + cycles * 146_097
    if not -(1 << 31) <= days < 1 << 31:
        raise ValueError("it does not fit into 32 bits of days")
    return days


def _microseconds(match: re.Match[str]) -> int:
    moment, finer = divmod(_nanoseconds(match), 1000)
    # Spark and delta-rs drop what is finer, the one downwards and the other towards 1970.
    if moment < 0 and finer:
        raise ValueError("it is finer than microseconds")
    return moment


def _nanoseconds(match: re.Match[str]) -> int:
    hour, minute, second = (int(match[part] or 0) for part in ("hour", "minute", "second"))
    if hour > 23 or minute > 59 or second > 59:
        raise ValueError("there is no such time of day")
    digits = (match["fraction"] or "").ljust(9, "0")
    return (_days(match) * _DAY_SECONDS + hour * 3600 + minute * 60 + second) * 1_000_000_000 + int(digits)


def _offset_microseconds(zone: str | None) -> int:
    if zone in (None, "Z", "UTC"):
        return 0
    digits = zone[1:].replace(":", "").ljust(4, "0")
    hours, minutes = int(digits[:2]), int(digits[2:])
    if hours > 18 or minutes > 59:
        raise ValueError("there is no such offset from UTC")
    offset = (hours * 60 + minutes) * 60_000_000
    return -offset if zone[0] == "-" else offset


def _checked(value: int) -> int:
    if not -(1 << 63) <= value < 1 << 63:
        raise ValueError("it does not fit into 64 bits of its unit")
    return value


def _serialiser(data_type: DataType) -> Callable[[Any], str]:
    if isinstance(data_type, PrimitiveType):
        if data_type.name in _INTEGER_BITS:
            return lambda value: str(_expect(value, int))
        if data_type.decimal is not None:
            return lambda value: _serialise_decimal(value, data_type)
        if data_type.name in _SERIALISERS:
            return _SERIALISERS[data_type.name]
        if interval := data_type.interval:
            return lambda value: interval_literal(_expect(value, int), interval)
        if data_type.name.startswith(("char(", "varchar(")):
            return _serialise_string
    raise ValueError("a column of this type cannot be a partition column")


def _expect(value: Any, kind: type) -> Any:
    # bool is an int and datetime is a date to Python, not to Delta.
    if not isinstance(value, kind) or (type(value) is not kind and isinstance(value, (bool, datetime))):
        raise TypeError(f"{kind.__name__} is needed, not {type(value).__name__}")
    return value


def _serialise_string(value: Any) -> str:
    text: str = _expect(value, str)
    text.encode()  # a lone surrogate cannot be written to the log
    return text


def _serialise_decimal(value: Any, data_type: PrimitiveType) -> str:
    decimal: Decimal = _expect(value, Decimal)
    return format(_parse_decimal(str(decimal), *(data_type.decimal or (10, 0))), "f")


def _serialise_double(value: Any) -> str:
    number: float = _expect(value, float)
    if math.isinf(number):
        return "Infinity" if number > 0 else "-Infinity"
    return "NaN" if math.isnan(number) else repr(number)


def _serialise_float(value: Any) -> str:
    number: float = _expect(value, float)
    if math.isfinite(number) and _nearest_float(number) != number:
        raise ValueError("it does not fit into 32 bits")
    if not math.isfinite(number):
        return _serialise_double(number)
    # The shortest text that reads back as the same 32-bit float; nine digits are always enough.
    candidates = (repr(float(f"{number:.{digits}g}")) for digits in range(1, 10))
    return next(text for text in candidates if _nearest_float(float(text)) == number)


def _serialise_timestamp(value: Any) -> str:
    moment: datetime = _expect(value, datetime)
    if moment.tzinfo is None:
        raise ValueError("a timestamp needs a time zone")
    return f"{moment.astimezone(timezone.utc).replace(tzinfo=None).isoformat('T', 'microseconds')}Z"


def _serialise_timestamp_ntz(value: Any) -> str:
    moment: datetime = _expect(value, datetime)
    if moment.tzinfo is not None:
        raise ValueError("a timestamp_ntz has no time zone")
    return moment.isoformat(" ", "microseconds")


def _nanosecond_text(value: Any) -> str:
    seconds, fraction = divmod(_expect(value, int), 1_000_000_000)
    moment = _EPOCH.replace(tzinfo=None) + timedelta(seconds=seconds)
    return f"{moment.isoformat('T', 'seconds')}.{fraction:09}"


_SERIALISERS: dict[str, Callable[[Any], str]] = {
    "string": _serialise_string,
    "binary": lambda value: str(_expect(value, bytes).decode()),
    "boolean": lambda value: str(_expect(value, bool)).lower(),
    "float": _serialise_float,
    "double": _serialise_double,
    "date": lambda value: str(_expect(value, date).isoformat()),
    "timestamp": _serialise_timestamp,
    "timestamp_ntz": _serialise_timestamp_ntz,
    "timestamp_nanos": lambda value: f"{_nanosecond_text(value)}Z",
    "timestamp_nanos_ntz": _nanosecond_text,
}


def _name(data_type: DataType) -> str:
    return data_type.name if isinstance(data_type, PrimitiveType) else type(data_type).__name__


def _bad(text: str, data_type: DataType, column: str, why: str) -> InvalidPartitionValue:
    return InvalidPartitionValue(column, text, _name(data_type), why)
