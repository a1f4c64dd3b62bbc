"""The values of a batch by Parquet leaf, with their rows, and their extremes in the order in which readers compare.

A leaf of a list or a map has a *slot* for each item, and a null slot for each row, struct or list without items: the format
counts these as nulls.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, datetime, timedelta, timezone
from decimal import Context, Decimal
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

if TYPE_CHECKING:
    import numpy.typing as npt

Rows: TypeAlias = "npt.NDArray[np.int64]"

_EXACT = Context(prec=100)
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


class Extremes(Struct):
    """Counts and extremes of one leaf in some rows; ``low`` and ``high`` are :func:`comparable`."""

    values: int = 0
    nulls: int = 0
    nan: bool = False
    low: Any = None
    high: Any = None

    def plus(self, other: Extremes) -> Extremes:
        ends = [end for end in (self.low, other.low, self.high, other.high) if end is not None]
        return Extremes(
            self.values + other.values,
            self.nulls + other.nulls,
            self.nan or other.nan,
            min(ends, default=None),
            max(ends, default=None),
        )


def all_leaves(
    fields: list[pa.Field], path: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], pa.DataType]]:
    for member in fields:
        kind, names = member.type, (*path, member.name)
        if pa.types.is_map(kind):
            yield from all_leaves([kind.key_field, kind.item_field], names)
        elif pa.types.is_nested(kind):
            yield from all_leaves([kind.field(n) for n in range(kind.num_fields)], names)
        else:
            yield names, kind


def leaf_slots(array: pa.Array, rows: Rows, empty: Rows) -> Iterator[tuple[pa.Array, Rows, Rows]]:
    """Yield for each leaf its values, their rows, and the rows of its null slots.

    :param rows: the row of each item of the array.
    :param empty: the rows of surrounding lists without items.
    """
    if pa.types.is_struct(array.type):
        for member in array.flatten():
            yield from leaf_slots(member, rows, empty)
    elif pa.types.is_nested(array.type):
        offsets = np.frombuffer(array.buffers()[1], np.int32)[array.offset : array.offset + len(array) + 1]
        first, lengths = int(offsets[0]), np.diff(offsets)
        hidden = None
        if array.null_count:
            valid = array.is_valid().to_numpy(zero_copy_only=False)
            hidden = pa.array(np.repeat(valid, lengths)) if lengths[~valid].any() else None
            lengths = np.where(valid, lengths, 0)
        inner_rows, inner_empty = np.repeat(rows, lengths), np.concatenate([empty, rows[lengths == 0]])
        for items in (array.keys, array.items) if pa.types.is_map(array.type) else (array.values,):
            inner = items.slice(first, int(offsets[-1]) - first)
            yield from leaf_slots(inner if hidden is None else inner.filter(hidden), inner_rows, inner_empty)
    elif array.null_count:
        valid = array.is_valid().to_numpy(zero_copy_only=False)
        yield array.drop_null(), rows[valid], np.concatenate([empty, rows[~valid]])
    else:
        yield array, rows, empty


def extremes(values: pa.Array) -> Extremes:
    """Find the extremes of values without nulls."""
    kind, number = values.type, len(values)
    if pa.types.is_floating(kind):
        nan = pc.is_nan(values)
        if pc.any(nan).as_py():
            values = values.filter(pc.invert(nan))
            if not len(values):
                return Extremes(number, nan=True)
            has_nan = True
        else:
            has_nan = False
        ends = pc.min_max(values)
        return Extremes(number, 0, has_nan, ends["min"].as_py(), ends["max"].as_py())
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        values = values.view(pa.int32() if pa.types.is_date32(kind) else pa.int64())
    elif pa.types.is_string(kind):
        values = values.view(pa.binary())
    ends = pc.min_max(values)
    low, high = ends["min"].as_py(), ends["max"].as_py()
    return Extremes(number, 0, False, comparable(low, kind), comparable(high, kind))


def comparable(value: Any, kind: pa.DataType) -> Any:
    """Turn a value of a column, or a bound of the log, into a number or bytes that compare as readers compare the value."""
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, datetime):
        moment = value if value.tzinfo else value.replace(tzinfo=timezone.utc)
        return (moment - _EPOCH) // timedelta(microseconds=1)
    if isinstance(value, date):
        return (value - _EPOCH.date()).days
    if isinstance(value, Decimal):
        return int(_EXACT.scaleb(value, kind.scale))
    return value
