"""Timestamps that a Parquet file stores as INT96, Spark's default: a Julian day and the nanoseconds of that day.

Spark reads and writes the day as a signed number, Arrow reads it as an unsigned one. A timestamp before the first Julian day
(24 November 4714 BC) therefore comes out of Arrow as another one, and a rewrite would make the change permanent. A file
that holds such a timestamp is refused.

============================================  ==============================================================
microseconds as Arrow reads them              what they are
============================================  ==============================================================
before the first Julian day                   misread: no day that Arrow takes for positive gives them
from there to the end of the year 9999        taken as they are; misread, they would lie before the year -58000
later                                         read once more in seconds, which do not overflow
============================================  ==============================================================

Day 0 itself comes out as the epoch and cannot be told from it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from delta_log.arrow.leaves import leaves
from delta_log.errors import UnsupportedFeature

_FIRST_MICROSECOND = -210_866_716_800_000_000  # of Julian day 1
_YEAR_10000_MICROSECONDS = 253_402_300_800_000_000
#: No timestamp of 64 bits in microseconds lies beyond.
_MAX_SECONDS = (1 << 63) // 1_000_000
_BATCH_ROWS = 1 << 14


@dataclass(slots=True)
class Int96Check:
    """Watches the batches of one file.

    :param paths: of the leaves that are stored so.
    :param open_in_seconds: opens the file once more, with such timestamps in seconds.
    """

    key: str
    paths: tuple[str, ...]
    open_in_seconds: Callable[[], pq.ParquetFile]
    _is_proved: bool = field(default=False, init=False)

    @staticmethod
    def paths_in(parquet: pq.ParquetFile) -> tuple[str, ...]:
        """The leaves of a file that are stored as INT96."""
        schema = parquet.schema
        columns = (schema.column(number) for number in range(len(schema)))
        return tuple(column.path for column in columns if column.physical_type == "INT96")

    def check(self, batch: pa.RecordBatch) -> None:
        """Look at the timestamps of a batch, as Arrow read them.

        :raises UnsupportedFeature: the file holds a timestamp that Arrow misreads.
        """
        for leaf in leaves(batch.columns):
            if not pa.types.is_timestamp(leaf.type) or leaf.type.unit != "us":
                continue
            found = pc.min_max(leaf.cast(pa.int64()))
            least, most = found["min"].as_py(), found["max"].as_py()
            if least is None:
                continue
            if least < _FIRST_MICROSECOND:
                raise self._misread()
            if most >= _YEAR_10000_MICROSECONDS and not self._is_proved:
                self._prove()

    def _prove(self) -> None:
        batches = self.open_in_seconds().iter_batches(_BATCH_ROWS, columns=list(self.paths))
        for batch in batches:
            for leaf in leaves(batch.columns):
                most = pc.max(leaf.cast(pa.int64())).as_py() if pa.types.is_timestamp(leaf.type) else None
                if most is not None and most > _MAX_SECONDS:
                    raise self._misread()
        self._is_proved = True

    def _misread(self) -> UnsupportedFeature:
        return UnsupportedFeature(
            ("INT96 timestamps before 4713 BC",), "read", f"{self.key} holds one in {' or '.join(self.paths)}"
        )
