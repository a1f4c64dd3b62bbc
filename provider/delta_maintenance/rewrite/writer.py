"""Writing one data file well: row groups of bounded size, dictionaries where they pay, statistics in the same pass.

Rows are collected until a row group is full, since many small row groups would cost every later reader. Memory is
thus one row group, decoded and encoded, whatever the size of the file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import IO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from delta_log.errors import CorruptLog
from delta_log.schema import StructType
from delta_log.stats import StatsCollector, stats_columns, string_prefix_length

CODEC_PROPERTY = "delta.parquet.compression.codec"
_CODECS = {
    "zstd": "zstd",
    "snappy": "snappy",
    "gzip": "gzip",
    "lz4": "lz4",
    "lz4_raw": "lz4",
    "brotli": "brotli",
    "none": "none",
    "uncompressed": "none",
}
#: A column gets a dictionary if, in a sample of so many rows, less than this share of its values are distinct.
_SAMPLE_ROWS = 20_000
_DICTIONARY_SHARE = 0.25


@dataclass(frozen=True, slots=True)
class WriterSettings:
    """How a table wants its files.

    :param stats: gathers the statistics of the one file that is written with these settings.
    :param row_group_bytes: of decoded data.
    """

    codec: str
    stats: StatsCollector
    row_group_bytes: int = 128 << 20

    @staticmethod
    def codec_of(configuration: Mapping[str, str]) -> str:
        """The codec of the table's property, or zstd."""
        name = configuration.get(CODEC_PROPERTY, "zstd").lower()
        if name not in _CODECS:
            raise CorruptLog(
                "metaData.configuration", f"{CODEC_PROPERTY} is {name!r}, which is no codec of Parquet"
            )
        return _CODECS[name]

    @classmethod
    def of(
        cls, configuration: Mapping[str, str], stored: StructType, reader_features: Sequence[str]
    ) -> WriterSettings:
        collector = StatsCollector(
            stats_columns(stored, properties=configuration),
            string_prefix_length(configuration),
            tight_bounds=True if "deletionVectors" in reader_features else None,
        )
        return cls(cls.codec_of(configuration), collector)


@dataclass(frozen=True, slots=True)
class Written:
    """What a finished file holds; ``stats`` is the JSON text for the log."""

    num_records: int
    stats: str


class DataFileWriter:
    """Writes batches of one physical schema to an open file."""

    def __init__(self, file: IO[bytes], schema: pa.Schema, settings: WriterSettings) -> None:
        self._file, self._settings = file, settings
        # Optional throughout, as every Delta writer does: constraints live in the log, not in the files.
        self._schema = pa.schema([_nullable(field) for field in schema])
        self._writer: pq.ParquetWriter | None = None
        self._pending: list[pa.RecordBatch] = []
        self._pending_bytes = 0
        self._num_records = 0

    def write(self, batch: pa.RecordBatch) -> None:
        self._settings.stats.update(batch)
        self._pending.append(pa.record_batch(_relabelled(batch, self._schema), schema=self._schema))
        self._pending_bytes += batch.nbytes
        self._num_records += batch.num_rows
        if self._pending_bytes >= self._settings.row_group_bytes:
            self._flush()

    def close(self) -> Written:
        """Complete the file; the caller closes it."""
        if self._pending or self._writer is None:
            self._flush()
        assert self._writer is not None
        self._writer.close()
        return Written(self._num_records, self._settings.stats.finish())

    def _flush(self) -> None:
        group = pa.Table.from_batches(self._pending, self._schema)
        if self._writer is None:
            self._writer = pq.ParquetWriter(
                self._file,
                self._schema,
                compression=self._settings.codec,
                use_dictionary=_dictionary_columns(group),
                store_decimal_as_integer=True,
                write_page_index=True,
                # Spark knows nothing of Arrow's own schema, and field ids are in the Parquet schema anyway.
                store_schema=False,
            )
        if group.num_rows:
            self._writer.write_table(group, row_group_size=group.num_rows)
        self._pending, self._pending_bytes = [], 0


def _relabelled(batch: pa.RecordBatch, schema: pa.Schema) -> list[pa.Array]:
    """The same buffers under a type that differs in nullability only."""
    return [
        array if array.type == field.type else array.cast(field.type)
        for array, field in zip(batch.columns, schema, strict=True)
    ]


def _nullable(field: pa.Field) -> pa.Field:
    return pa.field(field.name, _nullable_type(field.type), True, field.metadata)


def _nullable_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct([_nullable(member) for member in kind])
    if pa.types.is_map(kind):
        # The format wants keys to be required.
        key = pa.field("key", _nullable_type(kind.key_type), False, kind.key_field.metadata)
        return pa.map_(key, _nullable(kind.item_field))
    if pa.types.is_list(kind):
        return pa.list_(_nullable(kind.value_field))
    return kind


def _dictionary_columns(group: pa.Table) -> list[str]:
    """Paths of the leaves that get a dictionary; a dictionary of unique values only costs time."""
    sample = group.slice(0, _SAMPLE_ROWS)
    chosen: list[str] = []
    for field, column in zip(group.schema, sample.columns, strict=True):
        if pa.types.is_nested(field.type):
            chosen += _leaf_paths(field)
        elif len(column) and not pa.types.is_null(field.type):
            distinct = pc.count_distinct(column, mode="only_valid").as_py()
            if distinct < _DICTIONARY_SHARE * max(1, len(column) - column.null_count):
                chosen.append(field.name)
    return chosen


def _leaf_paths(field: pa.Field) -> list[str]:
    sink = pa.BufferOutputStream()
    pq.ParquetWriter(sink, pa.schema([field]), store_schema=False).close()
    parquet = pq.ParquetFile(pa.BufferReader(sink.getvalue()))
    return [parquet.schema.column(index).path for index in range(len(parquet.schema))]
