"""Chooses the columns of a new file that get a dictionary.

A dictionary makes a file smaller and faster where values repeat. Where they do not, it only costs time: the encoder gives up when
the dictionary outgrows its page. So the writer estimates the distinct values of the first row group from a sample.
"""

from __future__ import annotations

import math
from functools import lru_cache

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from delta_log.arrow.arrays import leaves
from delta_maintenance.rewrite.limits import (
    DICTIONARY_SAMPLE_ROWS,
    DICTIONARY_SAMPLE_SLICES,
    MAX_DICTIONARY_BYTES,
    MAX_DICTIONARY_SHARE,
)


def dictionary_columns(group: pa.Table) -> list[str]:
    """Return the paths of the leaves of a row group that get a dictionary."""
    if not group.num_rows or not group.num_columns:
        return []
    sample = slices_of(group, DICTIONARY_SAMPLE_ROWS, DICTIONARY_SAMPLE_SLICES)
    scale = group.num_rows / sample.num_rows
    return [
        path
        for field, column in zip(group.schema, sample.columns, strict=True)
        for path, values in zip(leaf_paths(field), _leaf_values(column), strict=True)
        if _pays(values, scale)
    ]


def estimated_distinct(distinct: int, sampled: int, values: float) -> float:
    """Estimate the distinct values among ``values``, from ``distinct`` values in a sample of ``sampled``.

    The estimate assumes equal frequencies: ``n`` draws from ``d`` kinds meet ``d * (1 - exp(-n / d))`` of them. Rare values
    among frequent ones make it too low. At worst the encoder then tries a dictionary in vain.
    """
    if values <= sampled or distinct >= sampled:
        return min(float(distinct), values) if values <= sampled else values
    low, high = distinct / sampled, 1.0
    while _met(high) < distinct / sampled and high < values:
        low, high = high, high * 2
    for _ in range(30):
        middle = (low + high) / 2
        low, high = (middle, high) if _met(middle) < distinct / sampled else (low, middle)
    kinds = high * sampled
    return min(values, kinds * -math.expm1(-values / kinds))


def _met(kinds: float) -> float:
    """Return the distinct share of a sample, given the number of kinds as a multiple of the sample's size."""
    return kinds * -math.expm1(-1 / kinds)


def slices_of(group: pa.Table, rows: int, slices: int) -> pa.Table:
    """Return about so many rows in slices spread over a row group; all of its rows if these are fewer."""
    if group.num_rows <= rows:
        return group.combine_chunks()
    rows //= slices
    step = (group.num_rows - rows) // (slices - 1)
    return pa.concat_tables([group.slice(number * step, rows) for number in range(slices)]).combine_chunks()


def _pays(values: pa.Array | pa.ChunkedArray, scale: float) -> bool:
    sampled = len(values) - values.null_count
    if not sampled or pa.types.is_null(values.type):
        return False
    width = values.nbytes / sampled
    found = estimated_distinct(num_distinct(values), sampled, sampled * scale)
    indexes = max(1, math.ceil(math.log2(found + 1))) / 8
    with_dictionary = found * width + sampled * scale * indexes
    fits = found * width <= MAX_DICTIONARY_BYTES
    return bool(fits and with_dictionary <= MAX_DICTIONARY_SHARE * sampled * scale * width)


def num_distinct(values: pa.Array | pa.ChunkedArray) -> int:
    """Count the distinct values that are not null. Arrow's own function for this takes twice as long."""
    found, nulls = len(pc.unique(values)), int(values.null_count)
    return found - (nulls > 0)


def _leaf_values(column: pa.ChunkedArray) -> list[pa.Array | pa.ChunkedArray]:
    """Return the values of each leaf of a column, in the order of the file's leaves."""
    if pa.types.is_dictionary(column.type):
        return [column.cast(column.type.value_type)]
    if not pa.types.is_nested(column.type):
        return [column]
    return list(leaves(column.chunks[:1]))


def leaf_paths(field: pa.Field) -> tuple[str, ...]:
    """Return the paths of a column's leaves, as a Parquet file names them."""
    return _nested_paths(field) if pa.types.is_nested(field.type) else (field.name,)


@lru_cache
def _nested_paths(field: pa.Field) -> tuple[str, ...]:
    sink = pa.BufferOutputStream()
    pq.ParquetWriter(sink, pa.schema([field]), store_schema=False).close()
    parquet = pq.ParquetFile(pa.BufferReader(sink.getvalue()))
    return tuple(parquet.schema.column(index).path for index in range(len(parquet.schema)))
