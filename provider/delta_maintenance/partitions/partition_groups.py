"""Groups files by partition: one integer code per file.

Protocol section "Partition Value Serialization". Partition values are compared by *typed* value, so that two spellings of
one date or one instant make one partition. These are compared as text:

* a timestamp without a zone: the log does not record the zone of its writer, so only equal texts are certainly the same instant;
* a value that is no value of its column's type;
* what a map holds beside the partition columns, such as a key in another case. Readers take the column for null then, but only
  equal maps certainly mean the same partition.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from delta_log.arrow.arrays import arrow_array
from delta_log.errors import InvalidPartitionValue
from delta_log.table_config.partition_values import physical_value
from delta_log.table_config.schema import PrimitiveType, StructField, StructType

if TYPE_CHECKING:
    import numpy.typing as npt

Int64s: TypeAlias = "npt.NDArray[np.int64]"

_ENTRIES = pa.list_(pa.struct([("key", pa.string()), ("value", pa.string())]))
#: The end of a timestamp that names its zone.
_WITH_ZONE = re.compile(r":[0-9]{1,2}(\.[0-9]+)?\s?(Z|UTC|[+-][0-9]{2}(:?[0-9]{2})?)$")


def partition_groups(partition_values: pa.ChunkedArray, partition_schema: StructType) -> Int64s:
    """Number the partitions of some files.

    :param partition_values: the raw map of each file.
    :return: a code per file; equal codes mean the same partition.
    """
    codes = np.zeros(len(partition_values), np.int64)
    for column in partition_schema:
        texts = pc.map_lookup(partition_values, pa.scalar(column.physical_name), "first")
        codes = _combined(codes, *_codes(texts, column))
    rows = _rows_with_others(partition_values, partition_schema)
    if len(rows):
        codes = _combined(codes, *_other_codes(partition_values, rows, partition_schema))
    return codes


def _combined(codes: Int64s, member: Int64s, count: int) -> Int64s:
    """Number pairs of codes anew, so that the product of the counts cannot overflow."""
    combined: Int64s = (
        arrow_array(codes * count + member).dictionary_encode().indices.to_numpy().astype(np.int64)
    )
    return combined


def _codes(texts: pa.Array | pa.ChunkedArray, column: StructField) -> tuple[Int64s, int]:
    if isinstance(texts, pa.ChunkedArray):
        texts = texts.combine_chunks()
    spelt = texts.dictionary_encode("encode")
    numbers: dict[object, int] = {}
    of_spelling = np.array(
        [numbers.setdefault(_identity(text, column), len(numbers)) for text in spelt.dictionary.to_pylist()],
        np.int64,
    )
    codes: Int64s = of_spelling[spelt.indices.to_numpy(zero_copy_only=False)]
    return codes, max(1, len(numbers))


def _identity(text: str | None, column: StructField) -> object:
    """What two files of one partition have in common: a number's or instant's value, or the text itself."""
    if not text:
        return None
    if column.type == PrimitiveType("timestamp") and not _WITH_ZONE.search(text):
        return text
    try:
        return "typed", repr(
            physical_value(text, column.type)
        )  # NaN does not equal itself, but its name does
    except InvalidPartitionValue:
        return text


def _rows_with_others(partition_values: pa.ChunkedArray, partition_schema: StructType) -> Int64s:
    """Find the maps that hold a value beside the partition columns."""
    lists = partition_values.cast(_ENTRIES).combine_chunks()
    entries = lists.flatten()
    names = pa.array([column.physical_name for column in partition_schema], pa.string())
    is_other = pc.and_not(
        pc.fill_null(pc.not_equal(pc.struct_field(entries, "value"), ""), False),
        pc.is_in(pc.struct_field(entries, "key"), value_set=names),
    )
    rows: Int64s = pc.list_parent_indices(lists).filter(is_other).unique().to_numpy()
    return rows


def _other_codes(
    partition_values: pa.ChunkedArray, rows: Int64s, partition_schema: StructType
) -> tuple[Int64s, int]:
    """Number what some maps hold beside the partition columns; 0: nothing."""
    names = {column.physical_name for column in partition_schema}
    numbers: dict[object, int] = {(): 0}
    codes = np.zeros(len(partition_values), np.int64)
    for row, entries in zip(rows, partition_values.take(arrow_array(rows)).to_pylist(), strict=True):
        others = tuple(sorted((key, value) for key, value in entries if key not in names and value))
        codes[row] = numbers.setdefault(others, len(numbers))
    return codes, len(numbers)
