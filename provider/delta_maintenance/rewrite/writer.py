"""Writes one data file: row groups of bounded size, dictionaries where they pay, statistics in the same pass.

The writer collects rows until a row group is full, since many small row groups cost every later reader. A thread encodes one row
group while the caller collects the next. Arrow's encoder releases Python's lock, so decoding and encoding use one processor
each. Memory holds two decoded row groups, whatever the size of the file.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq

from delta_log.errors import InvalidRequest
from delta_log.stats.file_stats import StatsCollector, stats_columns, string_prefix_length
from delta_log.table_config.schema import StructType
from delta_maintenance.rewrite.dictionary import dictionary_columns, leaf_paths
from delta_maintenance.rewrite.float_leaves import FloatLeaves, OddValues
from delta_maintenance.rewrite.footer_stats import FooterStats
from delta_maintenance.rewrite.held_tail import HeldTail

#: Spark's value.
_BLOOM_FALSE_POSITIVES = 0.01

CODEC_PROPERTY = "delta.parquet.compression.codec"
_CODECS = {
    "zstd": "zstd",
    "snappy": "snappy",
    "gzip": "gzip",
    "lz4": "lz4",
    "lz4_raw": "lz4",
    "lz4raw": "lz4",  # the spelling of Spark 3.5.0
    "brotli": "brotli",
    "none": "none",
    "uncompressed": "none",
}


@dataclass(frozen=True, slots=True)
class WriterSettings:
    """A table's settings for one new file.

    :param stats: gathers the statistics of the file.
    :param row_group_bytes: decoded bytes of a row group.
    """

    codec: str
    stats: StatsCollector
    row_group_bytes: int = 128 << 20

    @staticmethod
    def codec_of(configuration: Mapping[str, str]) -> str:
        """Return the codec of the table's property, else zstd."""
        name = configuration.get(CODEC_PROPERTY, "zstd").lower()
        if name not in _CODECS:
            raise InvalidRequest(
                f"The table's property {CODEC_PROPERTY} is {name!r}, and files cannot be written so here. Nothing was "
                f"written. Set it to one of {', '.join(sorted(_CODECS))}."
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
    """The facts of a finished file; ``stats`` is the JSON text for the log."""

    num_records: int
    stats: str


class DataFileWriter:
    """Writes batches of one physical schema to an open file. When its context ends, its thread has ended.

    :param schema: of the batches.
    :param key_values: key-value metadata for the footer.
    :param bloom_filters: returns the paths of the leaves that get a Bloom filter; called when the first row group is full.
    """

    def __init__(
        self,
        file: IO[bytes],
        schema: pa.Schema,
        settings: WriterSettings,
        key_values: Mapping[str, str] | None = None,
        bloom_filters: Callable[[], Collection[str]] = frozenset,
    ) -> None:
        self._file, self._settings, self._key_values = HeldTail(file), settings, dict(key_values or {})
        self._bloom_filters = bloom_filters
        # All columns are optional, as in the files of every Delta writer: constraints are in the log, not in the files.
        self._read_schema, self._schema = schema, pa.schema([_nullable(field) for field in schema])
        self._stats = FooterStats(settings.stats, self._schema)
        self._float_leaves = FloatLeaves()
        self._odd_values: list[OddValues] = []
        self._footers: list[pq.FileMetaData] = []
        self._writer: pq.ParquetWriter | None = None
        self._pending: list[pa.RecordBatch] = []
        self._pending_bytes = 0
        self._num_records = 0
        self._thread = ThreadPoolExecutor(1)
        self._encoding: Future[None] | None = None

    def __enter__(self) -> DataFileWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._thread.shutdown()
        if kind is not None and self._writer is not None:
            # Arrow would try to complete the file when it releases the writer, and report that second failure instead of the
            # first one, for example a full disk.
            self._writer.is_open = False

    def write(self, batch: pa.RecordBatch) -> None:
        self._pending.append(batch)
        self._pending_bytes += batch.nbytes
        self._num_records += batch.num_rows
        if self._pending_bytes >= self._settings.row_group_bytes:
            self._flush()

    def close(self) -> Written:
        """Write the rest of the file; the caller closes it."""
        if self._pending or self._encoding is None:
            self._flush()
        self._await_encoding()
        assert self._writer is not None
        # Most files need no edit, and their ends are written directly.
        if any(odd.nan or odd.zero for odd in self._odd_values):
            self._file.hold()
            self._writer.close()
            self._file.release(self._odd_values)
        else:
            self._writer.close()
        return Written(self._num_records, self._stats.finish(self._footers[0]))

    def _flush(self) -> None:
        self._await_encoding()
        full, self._pending, self._pending_bytes = self._pending, [], 0
        self._encoding = self._thread.submit(self._encode, full)

    def _await_encoding(self) -> None:
        if self._encoding is not None:
            self._encoding.result()

    def _encode(self, batches: list[pa.RecordBatch]) -> None:
        read = pa.Table.from_batches(batches, self._read_schema)
        group = pa.Table.from_arrays(_relabelled(read, self._schema), schema=self._schema)
        self._stats.update(group)
        if self._writer is None:
            dictionaries, bloom_filters = (
                dictionary_columns(group),
                self._bloom_filter_options(group.num_rows),
            )
            self._float_leaves = FloatLeaves.of(self._schema, {*dictionaries, *(bloom_filters or ())})
            self._writer = pq.ParquetWriter(
                self._file,
                self._schema,
                compression=self._settings.codec,
                use_dictionary=dictionaries,
                store_decimal_as_integer=True,
                write_page_index=True,
                # Spark ignores Arrow's own schema, and the Parquet schema has the field ids.
                store_schema=False,
                metadata_collector=self._footers,
                bloom_filter_options=bloom_filters,
            )
            if self._key_values:
                self._writer.add_key_value_metadata(self._key_values)
        if group.num_rows:
            self._odd_values.append(self._float_leaves.odd_values(group))
            self._writer.write_table(group, row_group_size=group.num_rows)

    def _bloom_filter_options(self, rows: int) -> dict[str, Any] | None:
        wanted = self._bloom_filters()
        if not wanted:
            return None
        paths = {path for field in self._schema for path in leaf_paths(field)}
        return {
            path: {"ndv": max(1, rows), "fpp": _BLOOM_FALSE_POSITIVES} for path in sorted(paths & set(wanted))
        }


def _relabelled(table: pa.Table, schema: pa.Schema) -> list[pa.ChunkedArray]:
    """Give columns types that differ only in nullability; the buffers stay."""
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
        # The format requires keys to be non-null.
        key = pa.field("key", _nullable_type(kind.key_type), False, kind.key_field.metadata)
        return pa.map_(key, _nullable(kind.item_field))
    if pa.types.is_list(kind):
        return pa.list_(_nullable(kind.value_field))
    return kind
