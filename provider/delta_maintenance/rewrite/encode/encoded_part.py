"""Encodes rows as a part of a data file: a Parquet file in memory, with row groups of bounded size and the rows' statistics.

Many small row groups cost every later reader, so the encoder collects rows until a row group is full. The last one of a part has
between a half and one and a half times the size of the others, unless it is the only one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from functools import lru_cache, reduce
from itertools import accumulate
from typing import Any, ClassVar, Protocol, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import Struct

from delta_log.arrow.row_hash import RowHash
from delta_log.stats.file_stats import StatsCollector
from delta_log.table_config.schema import is_variant
from delta_maintenance.errors import EncodingFailed
from delta_maintenance.rewrite.encode.codec_choice import column_codecs
from delta_maintenance.rewrite.encode.dictionary_choice import dictionary_columns, leaf_paths, num_distinct
from delta_maintenance.rewrite.encode.float_leaves import FloatLeaves, leaf_types
from delta_maintenance.rewrite.encode.footer_stats import FooterStats
from delta_maintenance.rewrite.encode.writer_settings import WriterSettings
from delta_maintenance.rewrite.limits import (
    ENCODED_BATCH_BYTES,
    MAX_BATCH_ROWS,
    MIN_BATCH_ROWS,
    MIN_REPETITIONS,
)
from parquet_parts.assembled_file import AssembledFile, OmittedClaims
from parquet_parts.footer import Footer
from parquet_parts.part_file import PartFile

#: Spark's value.
_BLOOM_FALSE_POSITIVES = 0.01

#: The chunks of a table's columns need not be alike.
_Rows: TypeAlias = pa.RecordBatch | pa.Table


class StatsSum(Protocol):
    """The statistics of a file that parts add theirs to."""

    def include(self, stats: StatsCollector) -> None: ...


class EncodedPart(Struct, frozen=True):
    """Rows that are encoded as a Parquet file in memory.

    :param stats: statistics of the rows.
    :param distrust: claims that the footer of each row group must not make.
    :param read: the checksum of the rows, if it was asked for.
    """

    content: PartFile
    stats: StatsCollector
    distrust: tuple[OmittedClaims, ...]
    read: RowHash
    bytes_copied: ClassVar[int] = 0

    @property
    def num_rows(self) -> int:
        return self.stats.num_records

    def append_to(self, file: AssembledFile) -> None:
        """Append the row groups to a new file. The part's memory is free afterwards."""
        file.append(self.content, self.content.footer(), lambda: self.distrust)
        self.content.release()

    def add_stats_to(self, stats: StatsSum) -> None:
        stats.include(self.stats)


class PartEncoder:
    """Encodes batches of one physical schema.

    :param schema: schema of the batches.
    :param bloom_filters: paths of the leaves that get a Bloom filter.
    :param hashes_rows: ``True``: compute the checksum of the rows.
    """

    def __init__(
        self,
        schema: pa.Schema,
        settings: WriterSettings,
        bloom_filters: Collection[str] = frozenset(),
        *,
        hashes_rows: bool = False,
    ) -> None:
        self._settings, self._bloom_filters, self._hashes_rows = settings, bloom_filters, hashes_rows
        # All columns are optional, as in the files of every Delta writer: constraints are in the log, not in the files.
        self._read_schema, self._schema = schema, pa.schema([_nullable(field) for field in schema])
        self._stats = FooterStats(settings.new_stats(), self._schema)
        self._float_leaves = FloatLeaves()
        self._distrust: list[OmittedClaims] = []
        self._footers: list[pq.FileMetaData] = []
        self._content = PartFile()
        self._writer: pq.ParquetWriter | None = None
        self._read = RowHash()
        self._pending: list[_Rows] = []
        self._dictionaries: frozenset[str] | None = None

    def dictionaries(self) -> frozenset[str]:
        """Return the names of texts that get a dictionary and repeat often, as far as the rows so far tell.

        The caller may pass their further values as dictionary arrays, as files have them. The encoder then does not look up each
        value, but the values of each file's dictionary, which takes longer where there are nearly as many.
        """
        if self._dictionaries is None and self._pending and not (self._bloom_filters or self._hashes_rows):
            texts = pa.schema([field for field in self._read_schema if pa.types.is_string(field.type)])
            columns = [_column(self._pending, field, as_dictionary=False) for field in texts]
            read = pa.table(columns, schema=texts)
            self._dictionaries = frozenset(
                name for name in dictionary_columns(read) if _repeats_often(read.column(name))
            )
        return self._dictionaries or frozenset()

    def encode(self, batches: Iterable[_Rows]) -> EncodedPart:
        """Encode all rows. Without rows, the part has no row group."""
        full_bytes, pending_bytes = self._settings.row_group_bytes, 0
        for rows in batches:
            if self._hashes_rows:
                self._read = self._read.plus(_hash_of(rows))
            self._pending.append(rows)
            pending_bytes += size_of(rows)
            # The end may be near, and a larger row group is better than a small one at the end.
            while pending_bytes >= full_bytes * 3 // 2:
                full = _num_first(self._pending, full_bytes)
                group, self._pending = self._pending[:full], self._pending[full:]
                pending_bytes = sum(map(size_of, self._pending))
                self._write_row_group(group)
        if self._pending or self._writer is None:
            self._write_row_group(self._pending)
        assert self._writer is not None
        with _encoding():
            self._writer.close()
        self._stats.finish(self._footers[0])
        return EncodedPart(self._content, self._stats.collector, tuple(self._distrust), self._read)

    def _write_row_group(self, batches: list[_Rows]) -> None:
        self._dictionaries = self._dictionaries or frozenset()
        columns = [_column(batches, field, field.name in self._dictionaries) for field in self._schema]
        batches.clear()
        schema = pa.schema(
            [field.with_type(column.type) for field, column in zip(self._schema, columns, strict=True)]
        )
        group = pa.Table.from_arrays(columns, schema=schema).unify_dictionaries()
        self._stats.update(group)
        with _encoding():
            if self._writer is None:
                self._writer = self._open_writer(group)
            if group.num_rows:
                self._distrust.append(self._float_leaves.distrust(group))
                self._writer.write_table(group, row_group_size=group.num_rows)

    def _open_writer(self, group: pa.Table) -> pq.ParquetWriter:
        dictionaries, bloom_filters = dictionary_columns(group), self._bloom_filter_options(group.num_rows)
        as_integers = self._settings.decimals_as_integers
        self._float_leaves = FloatLeaves.of(self._schema, {*dictionaries, *(bloom_filters or ())})
        return pq.ParquetWriter(
            pa.PythonFile(self._content, mode="w"),
            group.schema,
            compression=column_codecs(
                group, self._settings.codec, dictionaries, decimals_as_integers=as_integers
            ),
            use_dictionary=dictionaries,
            store_decimal_as_integer=as_integers,
            write_page_index=True,
            write_batch_size=_batch_rows(group),
            # Spark ignores Arrow's own schema, and the Parquet schema has the field ids.
            store_schema=False,
            metadata_collector=self._footers,
            bloom_filter_options=bloom_filters,
        )

    def _bloom_filter_options(self, rows: int) -> dict[str, Any] | None:
        if not self._bloom_filters:
            return None
        return {
            path: {"ndv": max(1, rows), "fpp": _BLOOM_FALSE_POSITIVES}
            for field in self._schema
            for path, kind in zip(leaf_paths(field), leaf_types(field.type), strict=True)
            # A Bloom filter of booleans tells nothing, and Arrow writes none. parquet-rs and parquet-java do.
            if path in self._bloom_filters and not pa.types.is_boolean(kind)
        }


@contextmanager
def _encoding() -> Iterator[None]:
    """Tell errors of the encoder, which writes to memory, from errors of a store: Arrow raises some of them as ``OSError``.

    :raises EncodingFailed: the encoder refused its input.
    """
    try:
        yield
    except MemoryError:
        raise
    except (pa.ArrowException, OSError) as error:
        raise EncodingFailed(str(error)) from error


def empty_footer(schema: pa.Schema, settings: WriterSettings) -> Footer:
    """Return the footer that the encoder writes for no rows, with the columns as it stores them."""
    return _empty_footer(schema.serialize().to_pybytes(), settings.codec, settings.decimals_as_integers)


@lru_cache
def _empty_footer(schema: bytes, codec: str, decimals_as_integers: bool) -> Footer:
    """Remember the footers of a table, for which every bin asks."""
    settings = WriterSettings(codec, (), decimals_as_integers=decimals_as_integers)
    return PartEncoder(pa.ipc.read_schema(pa.py_buffer(schema)), settings).encode(()).content.footer()


def size_of(rows: _Rows) -> int:
    """Return the bytes of rows. Tables share their memory with no others, so it need not be found out which part of it is theirs."""
    found: int = rows.get_total_buffer_size() if isinstance(rows, pa.Table) else rows.nbytes
    return found


def _hash_of(rows: _Rows) -> RowHash:
    batches = rows.to_batches() if isinstance(rows, pa.Table) else [rows]
    return reduce(RowHash.plus, map(RowHash.of, batches), RowHash())


def _num_first(batches: list[_Rows], num_bytes: int) -> int:
    """Return how many of the first batches have so many bytes together."""
    sizes = accumulate(map(size_of, batches))
    return next(number for number, size in enumerate(sizes, start=1) if size >= num_bytes)


def _batch_rows(group: pa.Table) -> int:
    """Choose the rows to encode at once: many, so that narrow values cost no time for each batch."""
    widest: int = max((column.nbytes for column in group.columns), default=0)
    rows: int = ENCODED_BATCH_BYTES * group.num_rows // max(1, widest)
    return max(MIN_BATCH_ROWS, min(MAX_BATCH_ROWS, rows))


def _column(batches: list[_Rows], field: pa.Field, as_dictionary: bool) -> pa.ChunkedArray:
    """Give a column of rows the field's type, or a dictionary type. Types that differ only in nullability share the buffers."""
    arrays: list[pa.Array] = []
    for rows in batches:
        column = rows.column(field.name)
        arrays += column.chunks if isinstance(column, pa.ChunkedArray) else (column,)
    if as_dictionary:
        kind = pa.dictionary(pa.int32(), field.type)
        return pa.chunked_array([_as_dictionary(array) for array in arrays], kind)
    return pa.chunked_array(
        [array if array.type == field.type else array.cast(field.type) for array in arrays], field.type
    )


def _repeats_often(values: pa.ChunkedArray) -> bool:
    return num_distinct(values) * MIN_REPETITIONS <= len(values)


def _as_dictionary(array: pa.Array) -> pa.Array:
    return array if pa.types.is_dictionary(array.type) else array.dictionary_encode()


def _nullable(field: pa.Field) -> pa.Field:
    return pa.field(field.name, _nullable_type(field.type), True, field.metadata)


def _nullable_type(kind: pa.DataType) -> pa.DataType:
    if is_variant(kind):
        return kind
    if pa.types.is_struct(kind):
        return pa.struct([_nullable(member) for member in kind])
    if pa.types.is_map(kind):
        # The format requires keys to be non-null.
        key = pa.field("key", _nullable_type(kind.key_type), False, kind.key_field.metadata)
        return pa.map_(key, _nullable(kind.item_field))
    if pa.types.is_list(kind):
        return pa.list_(_nullable(kind.value_field))
    return kind
