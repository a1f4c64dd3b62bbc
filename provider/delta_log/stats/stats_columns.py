"""Parses the JSON statistics of many files into typed columns.

Protocol section "Per-file Statistics". The texts are parsed together. If that fails, they are divided until the broken texts are
found: a text that is not statistics, or a bound of a wrong type, becomes null. Statistics are a hint, and a broken hint must not
stop a reader.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from delta_log.arrow.prefetch import map_ordered
from delta_log.stats.file_stats import StatsColumn
from delta_log.table_config.schema import PrimitiveType, to_arrow_type

_BRACE = ord("{")
#: Bytes that one thread of Arrow's JSON reader parses at a time: few, so that all threads have work. A longer text fails.
_BLOCK_BYTES = 2 << 20
#: Texts that one thread parses: as many as a batch of a streamed snapshot has, so that only cached columns are divided.
_ROWS = 1 << 14
_NO_BOUNDS = ("binary", "boolean", "variant", "void")


def stats_type(columns: Iterable[StatsColumn]) -> pa.StructType:
    """Return the struct of ``numRecords``, ``minValues``, ``maxValues``, ``nullCount`` and ``tightBounds`` for some columns."""
    chosen = list(columns)
    bounded = [(c.path, to_arrow_type(c.type)) for c in chosen if _has_bounds(c)]
    counted = [(c.path, pa.int64()) for c in chosen]
    bounds = _nested(bounded)
    return pa.struct(
        [
            ("numRecords", pa.int64()),
            ("minValues", bounds),
            ("maxValues", bounds),
            ("nullCount", _nested(counted)),
            ("tightBounds", pa.bool_()),
        ]
    )


def parse_stats_column(texts: pa.StringArray, columns: Sequence[StatsColumn]) -> pa.StructArray:
    """Parse the statistics of many files into :func:`stats_type`. Absent and unusable values are null."""
    target = stats_type(columns)
    readable = _readable(target)
    whole = pc.fill_null(texts, "{}") if texts.null_count else texts
    steps = [whole.slice(start, _ROWS) for start in range(0, len(whole), _ROWS)]

    def typed(step: pa.StringArray) -> pa.StructArray:
        return _typed(_parsed(step, readable), target)

    if len(steps) < 2:
        return typed(whole) if steps else pa.array([], target)
    parsed = list(map_ordered(typed, steps, min(len(steps), pa.cpu_count())))
    # Arrow's own allocator rounds sizes up, and the caller keeps the result.
    return pa.concat_arrays(parsed, memory_pool=pa.system_memory_pool())


def _parsed(texts: pa.StringArray, kind: pa.StructType) -> pa.StructArray:
    """Parse texts together; if that fails, each half by itself, down to the texts that cannot be parsed."""
    try:
        parsed = (
            _parse_lines(pc.binary_join_element_wise(texts, "\n", ""), kind)
            if _one_line_each(texts)
            else None
        )
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        parsed = None
    if parsed is None or len(parsed) != len(texts):
        if len(texts) < 2:
            return pa.array([_tolerant(text, kind) for text in texts.to_pylist()], kind)
        half = len(texts) // 2
        return pa.concat_arrays([_parsed(texts.slice(0, half), kind), _parsed(texts.slice(half), kind)])
    return parsed


def _one_line_each(texts: pa.StringArray) -> bool:
    """Tell whether every text starts an object and none holds a line break. Then each line is one text."""
    if not len(texts):
        return True
    _, offsets, data = texts.buffers()
    ends = np.frombuffer(offsets, np.int32)[texts.offset : texts.offset + len(texts) + 1]
    content = np.frombuffer(data, np.uint8)
    starts = ends[:-1][ends[:-1] < ends[1:]]  # a null has no text
    first_is_brace = bool((content[starts] == _BRACE).all()) and len(starts) == len(texts) - texts.null_count
    return first_is_brace and b"\n" not in content[ends[0] : ends[-1]].tobytes()


def _has_bounds(column: StatsColumn) -> bool:
    kind = column.type
    return isinstance(kind, PrimitiveType) and kind.name not in _NO_BOUNDS and kind.interval is None


def _nested(leaves: Sequence[tuple[tuple[str, ...], pa.DataType]]) -> pa.StructType:
    grouped: dict[str, list[tuple[tuple[str, ...], pa.DataType]]] = {}
    for path, kind in leaves:
        grouped.setdefault(path[0], []).append((path[1:], kind))
    fields = []
    for name, inner in grouped.items():
        whole = next((kind for path, kind in inner if not path), None)
        fields.append((name, whole if whole is not None else _nested(inner)))
    return pa.struct(fields)


def _readable(kind: pa.DataType) -> pa.DataType:
    """Return the type that Arrow's JSON reader parses, which knows no dates."""
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, _readable(field.type)) for field in kind])
    return pa.string() if pa.types.is_date(kind) else kind


def _parse_lines(lines: pa.StringArray, kind: pa.StructType) -> pa.StructArray:
    _, offsets, data = lines.buffers()
    if data is None:
        return pa.array([], kind)
    ends = pa.Array.from_buffers(pa.int32(), len(lines) + 1, [None, offsets], offset=lines.offset)
    start, stop = ends[0].as_py(), ends[-1].as_py()
    import pyarrow.json as pj  # here, since most commands read no statistics

    table = pj.read_json(
        pa.BufferReader(data.slice(start, stop - start)),
        pj.ReadOptions(block_size=_BLOCK_BYTES),
        pj.ParseOptions(explicit_schema=pa.schema(list(kind)), unexpected_field_behavior="ignore"),
    )
    return table.to_struct_array().combine_chunks()


def _typed(values: pa.Array, kind: pa.DataType) -> pa.Array:
    if pa.types.is_struct(kind):
        members = [_typed(member, field.type) for member, field in zip(values.flatten(), kind, strict=True)]
        if not members:
            return pa.nulls(len(values), kind)
        return pa.StructArray.from_arrays(members, fields=list(kind), mask=pc.is_null(values))
    if not pa.types.is_date(kind):
        return values
    try:
        return values.cast(kind)
    except pa.ArrowInvalid:
        plain = pc.match_substring_regex(values, r"^\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d)$")
        return pc.if_else(plain, values, None).cast(kind)


def _tolerant(text: str | None, kind: pa.StructType) -> dict[str, Any] | None:
    """Parse one file's statistics by itself; values that cannot be parsed are null."""
    try:
        raw = json.loads(text or "{}", parse_constant=lambda name: None)
    except (ValueError, RecursionError):
        return None
    found: dict[str, Any] | None = _fitting(raw, kind)
    return found


def _fitting(value: Any, kind: pa.DataType) -> Any:
    if pa.types.is_struct(kind):
        if not isinstance(value, dict):
            return None
        return {field.name: _fitting(value.get(field.name), field.type) for field in kind}
    if value is None or isinstance(value, (dict, list)):
        return None
    line = pa.array([json.dumps({"v": value}) + "\n"])
    try:
        return _parse_lines(line, pa.struct([("v", kind)]))[0]["v"].as_py()
    except pa.ArrowInvalid:
        return None
