"""Partition values of files as typed columns, and predicates on them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from delta_log.arrow.arrays import arrow_array
from delta_log.errors import InvalidPartitionValue, InvalidRequest
from delta_log.table_config.partition_values import are_unreadable, parse_column
from delta_log.table_config.schema import PrimitiveType, StructField, StructType

_ROW = "\x00row"


def typed_partition_values(
    partition_schema: StructType,
    partition_values: pa.MapArray | pa.ChunkedArray,
    *,
    or_null: bool = False,
) -> pa.Table:
    """The raw maps of some files as typed columns, by logical name.

    :param or_null: a value that cannot be read becomes null.
    :raises InvalidPartitionValue: a value cannot be read.
    """
    columns = {}
    for column in partition_schema:
        assert isinstance(column.type, PrimitiveType)
        texts = _texts(partition_values, column)
        columns[column.name] = parse_column(texts, column.type, column.name, or_null=or_null)
    return pa.table(columns)


class MatchedFiles(Struct, frozen=True):
    """What a predicate on the partition columns says of some files.

    :param matching: whether each file matches.
    :param undecided: whether a value that the predicate needs cannot be read. Such a file does not match.
    """

    matching: pa.BooleanArray
    undecided: pa.BooleanArray


def matching_files(
    partition_schema: StructType,
    partition_values: pa.MapArray | pa.ChunkedArray,
    where: pc.Expression,
) -> MatchedFiles:
    """Decide for each file whether it matches a predicate on the partition columns.

    :param where: predicate by logical names, on typed values.
    :raises InvalidRequest: the predicate does not fit the columns.
    """
    typed = typed_partition_values(partition_schema, partition_values, or_null=True)
    try:
        matching = rows_where(typed, where, len(partition_values))
        undecided = pa.repeat(pa.scalar(False), len(partition_values))
        for column in partition_schema:
            unreadable = are_unreadable(
                _texts(partition_values, column), typed.column(column.name).combine_chunks()
            )
            if pc.any(unreadable).as_py() and _needs(where, column.name, typed):
                undecided = pc.or_(undecided, unreadable)
    except (pa.ArrowException, KeyError, ValueError) as error:
        raise InvalidRequest(
            f"The predicate {where} does not fit the partition columns "
            f"({', '.join(partition_schema.names) or 'there are none'}): {error}."
        ) from error
    return MatchedFiles(pc.and_not(matching, undecided), undecided)


def require_readable(files: pa.Table | pa.RecordBatch, partition_schema: StructType, version: int) -> None:
    """Refuse files with a partition value that cannot be read; name one of them.

    :param files: files with the columns ``path`` and ``partition_values``.
    :raises InvalidPartitionValue: a value cannot be read.
    """
    for column in partition_schema:
        texts = _texts(files.column("partition_values"), column)
        try:
            parse_column(texts, column.type, column.name)
        except InvalidPartitionValue as error:
            row = pc.index(texts, error.value).as_py()
            raise error.of_file(files.column("path")[row].as_py(), version) from error


def _texts(partition_values: pa.MapArray | pa.ChunkedArray, column: StructField) -> pa.Array:
    return pc.map_lookup(partition_values, pa.scalar(column.physical_name), "first")


def _needs(where: pc.Expression, column: str, values: pa.Table) -> bool:
    """Whether a predicate names a column: without the column, it does not fit the table."""
    import pyarrow.dataset as ds

    others = values.drop_columns([column]).slice(0, 0).append_column(_ROW, pa.array([], pa.int64()))
    try:
        ds.dataset(others).scanner(columns=[_ROW], filter=where)
    except (pa.ArrowException, KeyError, ValueError):
        return True
    return False


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
