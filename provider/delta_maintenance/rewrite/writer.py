"""Writing one data file well: row groups of bounded size, dictionaries where they pay, statistics in the same pass.

Rows are collected until a row group is full, since many small row groups would cost every later reader. Memory is
thus one row group, decoded and encoded, whatever the size of the file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import IO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from delta_log.errors import CorruptLog
from delta_log.schema import StructType
from delta_log.stats import StatsCollector, stats_columns, string_prefix_length
from delta_maintenance.rewrite.footer_stats import FooterStats

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
    """Writes batches of one physical schema to an open file.

    :param schema: of the batches.
    :param notes: key-value metadata for the footer.
    """

    def __init__(
        self,
        file: IO[bytes],
        schema: pa.Schema,
        settings: WriterSettings,
        notes: Mapping[str, str] | None = None,
    ) -> None:
        self._file, self._settings, self._notes = file, settings, dict(notes or {})
        # Optional throughout, as every Delta writer does: constraints live in the log, not in the files.
        self._read_schema, self._schema = schema, pa.schema([_nullable(field) for field in schema])
        self._stats = FooterStats(settings.stats, self._schema)
        self._footers: list[pq.FileMetaData] = []
        self._writer: pq.ParquetWriter | None = None
        self._pending: list[pa.RecordBatch] = []
        self._pending_bytes = 0
        self._num_records = 0

    def write(self, batch: pa.RecordBatch) -> None:
        self._pending.append(batch)
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
        return Written(self._num_records, self._stats.finish(self._footers[0]))

    def _flush(self) -> None:
        read = pa.Table.from_batches(self._pending, self._read_schema)
        group = pa.Table.from_arrays(_relabelled(read, self._schema), schema=self._schema)
        self._stats.update(group)
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
                metadata_collector=self._footers,
            )
            if self._notes:
                self._writer.add_key_value_metadata(self._notes)
        if group.num_rows:
            self._writer.write_table(group, row_group_size=group.num_rows)
        self._pending, self._pending_bytes = [], 0


def _relabelled(table: pa.Table, schema: pa.Schema) -> list[pa.ChunkedArray]:
    """The same buffers under types that differ in nullability only."""
    return [
        column if column.type == field.type else column.cast(field.type)
        for column, field in zip(table.columns, schema, strict=True)
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
    if not group.num_rows:
        return []
    sample = group.slice(0, _SAMPLE_ROWS).combine_chunks()
    return [
        path
        for field, column in zip(group.schema, sample.columns, strict=True)
        for path, values in zip(_leaf_paths(field), _leaf_values(column), strict=True)
        if _repeats(values)
    ]


def _repeats(values: pa.Array | pa.ChunkedArray) -> bool:
    if not len(values) or pa.types.is_null(values.type):
        return False
    distinct = pc.count_distinct(values, mode="only_valid").as_py()
    return bool(distinct < _DICTIONARY_SHARE * max(1, len(values) - values.null_count))


def _leaf_values(column: pa.ChunkedArray) -> list[pa.Array | pa.ChunkedArray]:
    """The values of each leaf of a column, in the order of the file's leaves."""
    if not pa.types.is_nested(column.type):
        return [column]
    return [leaf for chunk in column.chunks[:1] for leaf in _array_leaves(chunk)]


def _array_leaves(array: pa.Array) -> Iterator[pa.Array]:
    kind = array.type
    if pa.types.is_struct(kind):
        for member in array.flatten():
            yield from _array_leaves(member)
    elif pa.types.is_map(kind):
        first, last = array.offsets[0].as_py(), array.offsets[-1].as_py()
        for entries in (array.keys, array.items):
            yield from _array_leaves(entries.slice(first, last - first))
    elif pa.types.is_list(kind):
        yield from _array_leaves(array.flatten())
    else:
        yield array


def _leaf_paths(field: pa.Field) -> list[str]:
    if not pa.types.is_nested(field.type):
        return [field.name]
    sink = pa.BufferOutputStream()
    pq.ParquetWriter(sink, pa.schema([field]), store_schema=False).close()
    parquet = pq.ParquetFile(pa.BufferReader(sink.getvalue()))
    return [parquet.schema.column(index).path for index in range(len(parquet.schema))]
