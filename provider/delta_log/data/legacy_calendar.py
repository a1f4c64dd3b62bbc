"""Dates and times of the Julian calendar, which a reader refuses.

Spark before 3.0 wrote them, and later releases do in their legacy mode. Their values mean other days than the same numbers in
the proleptic Gregorian calendar, which Arrow and Delta use. Newer values are the same in both calendars, so a file is refused
only if it holds old ones.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from msgspec import Struct

from delta_log.arrow.arrays import leaves
from delta_log.errors import UnsupportedFeature

_LEGACY_DATE_KEY, _LEGACY_INT96_KEY = b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96"
_SPARK_VERSION_KEY = b"org.apache.spark.version"
_SPARK_SCHEMA_KEY = b"org.apache.spark.sql.parquet.row.metadata"
#: Days and microseconds since 1970 before which the two calendars differ, or Spark's time zone rules do.
_FIRST_GREGORIAN_DAY = -141_427
_FIRST_COMMON_MICROSECOND = -2_208_988_800_000_000


class LegacyCalendar(Struct, frozen=True):
    """Tells which types of a file may hold values of the Julian calendar, by the marks that Spark leaves."""

    dates: bool
    timestamps: bool

    @classmethod
    def of(cls, parquet: pq.ParquetFile) -> LegacyCalendar | None:
        """Read the marks of a file; ``None`` if it holds no such values."""
        dates, int96 = may_be_julian(parquet.metadata.metadata or {}, parquet.metadata.created_by or "")
        if not (dates or int96):
            return None
        schema = parquet.schema
        stored = {schema.column(index).physical_type for index in range(len(schema))}
        return cls(dates, int96 if "INT96" in stored else dates)

    def check(self, batch: pa.RecordBatch, key: str) -> None:
        """
        :raises UnsupportedFeature: a value is old enough for the calendar to make a difference.
        """
        for leaf in leaves(batch.columns):
            if pa.types.is_date(leaf.type) and self.dates:
                oldest, limit = pc.min(leaf.cast(pa.int32())).as_py(), _FIRST_GREGORIAN_DAY
            elif pa.types.is_timestamp(leaf.type) and self.timestamps:
                oldest = pc.min(
                    leaf.cast(pa.timestamp("us", tz=leaf.type.tz), safe=False).cast(pa.int64())
                ).as_py()
                limit = _FIRST_COMMON_MICROSECOND
            else:
                continue
            if oldest is not None and oldest < limit:
                raise UnsupportedFeature(
                    ("dates of the Julian calendar",),
                    "read",
                    f"{key} was written in Spark's legacy calendar mode",
                )


def may_be_julian(keys: Mapping[bytes, bytes], created_by: str) -> tuple[bool, bool]:
    """Tell whether a file may hold dates of the Julian calendar, and whether INT96 timestamps may be of it.

    :param keys: the file's key-value metadata.
    """
    version = _spark_version(keys, created_by)
    return _LEGACY_DATE_KEY in keys or version < (3, 0), _LEGACY_INT96_KEY in keys or version < (3, 1)


def _spark_version(keys: Mapping[bytes, bytes], created_by: str) -> tuple[int, ...]:
    """Return the major and minor version of the Spark that wrote a file; a number above all for other writers."""
    stamp = keys.get(_SPARK_VERSION_KEY)
    if stamp is not None:
        return tuple(int(part) for part in stamp.split(b".")[:2] if part.isdigit() and len(part) < 5)
    # Spark before 2.4.6 wrote its schema and no version. Other writers that write the schema are not parquet-mr.
    by_java = created_by.startswith("parquet-mr")
    return (2, 4) if by_java and _SPARK_SCHEMA_KEY in keys else (9, 9)
