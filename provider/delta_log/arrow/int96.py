"""Refuses a file whose INT96 timestamps Arrow misreads.

INT96 is Spark's default for timestamps: a Julian day and the nanoseconds of that day. Spark takes the day for a signed number,
Arrow for an unsigned one. So Arrow reads a timestamp before the first Julian day (24 November 4714 BC) as a different one, and
a rewrite would make the change permanent.

============================================  ==============================================================
microseconds as Arrow reads them              meaning
============================================  ==============================================================
before the first Julian day                   misread: an unsigned day cannot give them
from there to the end of the year 9999        right: a misread one would be before the year -58000
later                                         read again in seconds, which do not overflow
============================================  ==============================================================

Arrow reads day 0 as the epoch; the two cannot be told apart.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from msgspec import Struct

from delta_log.arrow.arrays import leaves
from delta_log.errors import UnsupportedFeature

_FIRST_MICROSECOND = -210_866_716_800_000_000  # of Julian day 1
_YEAR_10000_MICROSECONDS = 253_402_300_800_000_000
#: The largest timestamp that 64 bits hold in microseconds.
_MAX_SECONDS = (1 << 63) // 1_000_000
_BATCH_ROWS = 1 << 14


class Int96Check(Struct):
    """Checks the batches of one file.

    :param paths: paths of the leaves that are stored as INT96.
    :param open_in_seconds: function that opens the file again, with these timestamps in seconds.
    """

    key: str
    paths: tuple[str, ...]
    open_in_seconds: Callable[[], pq.ParquetFile]
    _is_proved: bool = False

    @staticmethod
    def paths_in(parquet: pq.ParquetFile) -> tuple[str, ...]:
        """Return the paths of the leaves that are stored as INT96; none of a file without rows."""
        metadata = parquet.metadata
        if not metadata.num_row_groups:
            return ()
        # The schema that the metadata give and they hold each other, and use memory until Python looks for cycles. A column chunk
        # is not asked, since pyarrow ends the process where its description is broken.
        schema = pq.ParquetSchema(metadata)
        columns = (schema.column(number) for number in range(len(schema)))
        return tuple(column.path for column in columns if column.physical_type == "INT96")

    def check(self, batch: pa.RecordBatch) -> None:
        """Check the timestamps of a batch, as Arrow read them.

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
