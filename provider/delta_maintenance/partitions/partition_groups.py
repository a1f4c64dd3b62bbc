"""Groups files by partition: one integer code per file.

Protocol section "Partition Value Serialization". Partition values are compared by *typed* value, so that two spellings of
one date or one instant make one partition. A timestamp without a zone is compared as text: the log does not record the
zone of its writer, so only equal texts are certainly the same instant.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from delta_log.arrow.numpy_values import arrow_array
from delta_log.table_config.partition_values import parse_column
from delta_log.table_config.schema import PrimitiveType, StructField, StructType

if TYPE_CHECKING:
    import numpy.typing as npt

Int64s: TypeAlias = "npt.NDArray[np.int64]"

#: The end of a timestamp that names its zone.
_WITH_ZONE = r":[0-9]{1,2}(\.[0-9]+)?\s?(Z|UTC|[+-][0-9]{2}(:?[0-9]{2})?)$"


def partition_groups(partition_values: pa.ChunkedArray, partition_schema: StructType) -> Int64s:
    """Number the partitions of some files.

    :param partition_values: the raw map of each file.
    :return: a code per file; equal codes mean the same partition.
    """
    codes = np.zeros(len(partition_values), np.int64)
    for column in partition_schema:
        texts = pc.map_lookup(partition_values, pa.scalar(column.physical_name), "first")
        member, count = _codes(texts, column)
        # Numbered anew after each column, so that the product of the counts cannot overflow.
        combined = arrow_array(codes * count + member).dictionary_encode()
        codes = combined.indices.to_numpy().astype(np.int64)
    return codes


def _codes(texts: pa.Array | pa.ChunkedArray, column: StructField) -> tuple[Int64s, int]:
    if isinstance(texts, pa.ChunkedArray):
        texts = texts.combine_chunks()
    spelt = texts.dictionary_encode("encode")
    values = parse_column(spelt.dictionary, column.type, column.name)
    if column.type == PrimitiveType("timestamp"):
        zoned = pc.fill_null(pc.match_substring_regex(spelt.dictionary, _WITH_ZONE), False)
        instants = values.cast(pa.int64()).cast(pa.string())
        values = pc.if_else(
            pc.and_(zoned, pc.is_valid(values)),
            instants,
            pc.if_else(values.is_valid(), spelt.dictionary, None),
        )
    elif pa.types.is_decimal(values.type) or pa.types.is_date(values.type):
        values = values.cast(pa.string())
    typed = values.dictionary_encode("encode")
    of_spelling = typed.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    return of_spelling[spelt.indices.to_numpy(zero_copy_only=False)], max(1, len(typed.dictionary))
