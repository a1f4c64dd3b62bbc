"""Statistics in their parsed form, ``add.stats_parsed`` of a checkpoint, back into JSON texts.

Protocol section "Checkpoint Schema" (``delta.checkpoint.writeStatsAsStruct``). A checkpoint may hold statistics only as
a struct, and a commit that repeats such an ``add`` needs the text. Whole columns are rendered at once, since there may be
millions of files. A bound that the text cannot hold (NaN, years beyond 9999, types that have no bounds) is left out.

Spark writes ``timestamp`` bounds as INT96, which Arrow reads as timestamps without a zone. A caller that opens the
checkpoint with ``coerce_int96_timestamp_unit="ms"`` can tell them from ``timestamp_ntz`` bounds, which are always in
microseconds. It also keeps years beyond 2262 intact, unlike Arrow's default of nanoseconds.
"""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.compute as pc

_NEEDS_ESCAPE = r'[\x00-\x1f"\\]'
_FIRST_MS, _LAST_MS = -62_135_596_800_000, 253_402_300_799_999
_DAY_MS = 86_400_000
_MILLISECOND = {"s": (1000, 1), "ms": (1, 1), "us": (1, 1000), "ns": (1, 1_000_000)}


def stats_of_struct(parsed: pa.StructArray) -> pa.Array:
    """The JSON text of each struct; null for a null struct."""
    return _render_struct(parsed, round_up=False)


def _render_struct(values: pa.StructArray, *, round_up: bool) -> pa.Array:
    parts: list[pa.Array | str] = ["{"]
    for index, field in enumerate(values.type):
        member = pc.struct_field(values, [index])
        text = _render(member, round_up=round_up or field.name == "maxValues")
        if text is not None:
            name = json.dumps(field.name, ensure_ascii=False)
            parts.append(pc.coalesce(pc.binary_join_element_wise(f",{name}:", text, ""), ""))
    if len(parts) == 1:
        parts.append(pa.repeat("", len(values)))
    whole = pc.binary_join_element_wise(*parts, "}", "")
    whole = pc.replace_substring(whole, "{,", "{", max_replacements=1)
    return pc.if_else(pc.is_valid(values), whole, pa.scalar(None, pa.string()))


def _render(values: pa.Array, *, round_up: bool) -> pa.Array | None:
    """JSON texts, null where there is no value; ``None``: the type has no bounds."""
    kind = values.type
    if pa.types.is_struct(kind):
        return _render_struct(values, round_up=round_up)
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_decimal(kind):
        return values.cast(pa.string())
    if pa.types.is_floating(kind):
        # The shortest text of a double reads back as the same number, as a float or a double.
        doubles = values.cast(pa.float64())
        return _where(pc.is_finite(doubles), doubles).cast(pa.string())
    if pa.types.is_date(kind):
        days = values.cast(pa.date32())
        milliseconds = pc.multiply(days.cast(pa.int32()).cast(pa.int64()), _DAY_MS)
        return _quoted(_where(_representable(milliseconds), days).cast(pa.string()))
    if pa.types.is_timestamp(kind):
        return _render_timestamps(values, round_up=round_up)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return _render_strings(values.cast(pa.string()))
    return None


def _render_timestamps(values: pa.Array, *, round_up: bool) -> pa.Array:
    factor, divisor = _MILLISECOND[values.type.unit]
    counts = values.cast(pa.int64())
    # Arrow's integer division goes towards zero.
    milliseconds = pc.multiply(pc.divide(counts, divisor), factor)
    rest = pc.subtract(counts, pc.multiply(pc.divide(counts, divisor), divisor))
    off = pc.greater(rest, 0) if round_up else pc.less(rest, 0)
    milliseconds = pc.add(milliseconds, pc.multiply(off.cast(pa.int64()), 1 if round_up else -1))
    moments = _where(_representable(milliseconds), milliseconds).cast(pa.timestamp("ms")).cast(pa.string())
    text = pc.replace_substring(moments, " ", "T")
    zoneless = values.type.tz is None and values.type.unit == "us"
    return _quoted(text if zoneless else pc.binary_join_element_wise(text, "Z", ""))


def _render_strings(values: pa.Array) -> pa.Array:
    odd = pc.fill_null(pc.match_substring_regex(values, _NEEDS_ESCAPE), False)
    escaped = [json.dumps(text, ensure_ascii=False) for text in values.filter(odd).to_pylist()]
    return pc.replace_with_mask(_quoted(values), odd, pa.array(escaped, pa.string()))


def _representable(milliseconds: pa.Array) -> pa.Array:
    return pc.and_(pc.greater_equal(milliseconds, _FIRST_MS), pc.less_equal(milliseconds, _LAST_MS))


def _where(condition: pa.Array, values: pa.Array) -> pa.Array:
    return pc.if_else(condition, values, pa.scalar(None, values.type))


def _quoted(texts: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise('"', texts, '"', "")
