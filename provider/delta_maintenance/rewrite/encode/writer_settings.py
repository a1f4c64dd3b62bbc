"""The settings of a table under which its data files are written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from delta_log.errors import InvalidRequest
from delta_log.stats.file_stats import (
    DEFAULT_STRING_PREFIX_LENGTH,
    StatsCollector,
    StatsColumn,
    stats_columns,
    string_prefix_length,
)
from delta_log.table_config.schema import StructType
from delta_maintenance.rewrite.limits import ROW_GROUP_BYTES

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


class WriterSettings(Struct, frozen=True):
    """A table's settings for its new files.

    :param stats_columns: the leaves that have statistics.
    :param string_prefix_length: prefix length of the bounds of strings.
    :param tight_bounds: the value of ``tightBounds``; ``None`` leaves it out.
    :param row_group_bytes: about the decoded bytes of a row group.
    :param decimals_as_integers: store decimals of at most 18 digits as integers, as Spark does. Otherwise as bytes of a fixed
        length, as pyarrow does.
    """

    codec: str
    stats_columns: Sequence[StatsColumn]
    string_prefix_length: int = DEFAULT_STRING_PREFIX_LENGTH
    tight_bounds: bool | None = None
    row_group_bytes: int = ROW_GROUP_BYTES
    decimals_as_integers: bool = True

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
        cls,
        configuration: Mapping[str, str],
        stored: StructType,
        reader_features: Sequence[str],
        clustering_columns: Sequence[Sequence[str]] = (),
    ) -> WriterSettings:
        """
        :param clustering_columns: columns that have statistics in any case: physical names from the top down.
        """
        return cls(
            cls.codec_of(configuration),
            stats_columns(stored, properties=configuration, clustering_columns=clustering_columns),
            string_prefix_length(configuration),
            True if "deletionVectors" in reader_features else None,
        )

    def new_stats(self) -> StatsCollector:
        """Return an empty collector of a file's statistics."""
        return StatsCollector(self.stats_columns, self.string_prefix_length, self.tight_bounds)
