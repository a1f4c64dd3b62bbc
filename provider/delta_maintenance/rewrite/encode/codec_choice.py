"""Chooses the columns of a new file that are compressed, as LevelDB and RocksDB choose blocks.

Compressing random numbers, or identifiers in hexadecimal digits, takes most of the time of writing them, and each reader pays for
it again. So a column whose pages the codec makes smaller by less than an eighth is stored without compression. The format names a
codec for each column chunk, so every reader can read such a file.

The writer of a part of a file decides by a sample of its first row group.
"""

from __future__ import annotations

from collections.abc import Collection

import pyarrow as pa
import pyarrow.parquet as pq

from delta_maintenance.rewrite.encode.dictionary_choice import leaf_paths, slices_of
from delta_maintenance.rewrite.limits import (
    CODEC_SAMPLE_BYTES,
    CODEC_SAMPLE_PART,
    CODEC_SAMPLE_ROWS,
    CODEC_SAMPLE_SLICES,
    MAX_COMPRESSED_SHARE,
)

_NONE = "none"


def column_codecs(
    group: pa.Table, codec: str, dictionaries: Collection[str], *, decimals_as_integers: bool = True
) -> str | dict[str, str]:
    """Return the codec of each leaf of a row group, by its path.

    :param codec: codec of the columns that it makes smaller.
    :param dictionaries: paths of the leaves that get a dictionary. These have the codec: a sample does not tell how large their
        dictionaries are.
    :param decimals_as_integers: how decimals of at most 18 digits are stored; else, as bytes.
    """
    paths = {path for field in group.schema for path in leaf_paths(field)}
    plain = [field.name for field in group.schema if not set(dictionaries).issuperset(leaf_paths(field))]
    if codec == _NONE or not group.num_rows or not plain:
        return codec
    rest = _incompressible(sample_of(group.select(plain)), codec, decimals_as_integers) - set(dictionaries)
    return {path: _NONE if path in rest else codec for path in paths}


def sample_of(group: pa.Table) -> pa.Table:
    """Return the rows of a row group that tell what compressing it is worth."""
    num_rows: int = group.num_rows
    bounded: int = max(CODEC_SAMPLE_BYTES * num_rows // max(1, group.nbytes), num_rows // CODEC_SAMPLE_PART)
    return slices_of(group, max(1, min(CODEC_SAMPLE_ROWS, bounded)), CODEC_SAMPLE_SLICES)


def _incompressible(sample: pa.Table, codec: str, decimals_as_integers: bool) -> set[str]:
    footers: list[pq.FileMetaData] = []
    with pq.ParquetWriter(
        pa.BufferOutputStream(),
        sample.schema,
        compression=codec,
        use_dictionary=False,
        write_statistics=False,
        store_schema=False,
        store_decimal_as_integer=decimals_as_integers,
        metadata_collector=footers,
    ) as writer:
        writer.write_table(sample)
    chunks = map(footers[0].row_group(0).column, range(footers[0].num_columns))
    return {
        chunk.path_in_schema
        for chunk in chunks
        if chunk.total_compressed_size > MAX_COMPRESSED_SHARE * chunk.total_uncompressed_size
    }
