"""Partition values of files as typed columns, and predicates on them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from delta_log.arrow.numpy_values import arrow_array
from delta_log.errors import InvalidRequest
from delta_log.table_config.partition_values import parse_column
from delta_log.table_config.schema import PrimitiveType, StructType

_ROW = "\x00row"


def typed_partition_values(
    partition_schema: StructType, partition_values: pa.MapArray | pa.ChunkedArray
) -> pa.Table:
    """The raw maps of some files as typed columns, by logical name."""
    columns = {}
    for column in partition_schema:
        text = pc.map_lookup(partition_values, pa.scalar(column.physical_name), "first")
        assert isinstance(column.type, PrimitiveType)
        columns[column.name] = parse_column(text, column.type, column.name)
    return pa.table(columns)


def matching_files(
    partition_schema: StructType,
    partition_values: pa.MapArray | pa.ChunkedArray,
    where: pc.Expression,
) -> pa.Array:
    """Whether each file matches a predicate on the partition columns.

    :param where: by logical names, on typed values.
    :raises InvalidRequest: the predicate does not fit the columns.
    """
    typed = typed_partition_values(partition_schema, partition_values)
    try:
        return rows_where(typed, where, len(partition_values))
    except (pa.ArrowException, KeyError, ValueError) as error:
        raise InvalidRequest(
            f"The predicate {where} does not fit the partition columns "
            f"({', '.join(partition_schema.names) or 'there are none'}): {error}."
        ) from error


def rows_where(values: pa.Table, where: pc.Expression, num_rows: int) -> pa.BooleanArray:
    """Whether a predicate is true for each row of typed partition values.

    :param num_rows: the number of rows, which a table without columns does not know.
    """
    # Imported here, since most commands have no predicate, and a dataset brings Parquet and all file systems of Arrow.
    import pyarrow.dataset as ds

    rows = arrow_array(np.arange(num_rows))
    numbered = pa.table([rows, *values.columns], [_ROW, *values.column_names])
    kept = ds.dataset(numbered).to_table([_ROW], filter=where).column(0)
    return pc.is_in(rows, value_set=kept.combine_chunks())
