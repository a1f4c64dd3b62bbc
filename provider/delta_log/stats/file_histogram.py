"""Histograms of the live files' sizes and of their deleted rows.

Protocol sections "File Size Histogram Schema" and "DeletedRecordCounts Histogram Schema". All writers use the same bins, so a
writer can add to the histogram of another and carry it from one version to the next.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct, field

_Numbers = npt.NDArray[np.int64]
_KIB, _MIB, _GIB = 1 << 10, 1 << 20, 1 << 30

#: The start of each bin of file sizes, in bytes; the last bin has no end.
SIZE_BOUNDARIES = (
    0,
    *(_KIB << n for n in range(3, 13)),
    *range(8 * _MIB, 40 * _MIB, 4 * _MIB),
    *range(40 * _MIB, 120 * _MIB, 8 * _MIB),
    *range(120 * _MIB, 144 * _MIB, 4 * _MIB),
    *range(144 * _MIB, 576 * _MIB, 16 * _MIB),
    *range(576 * _MIB, 1408 * _MIB, 64 * _MIB),
    *range(1408 * _MIB, 2048 * _MIB, 128 * _MIB),
    *range(2 * _GIB, 4 * _GIB, 256 * _MIB),
    *(4 * _GIB << n for n in range(7)),
)
#: The start of each bin of a file's deleted rows: none, 1 to 9, 10 to 99, …
DELETED_ROWS_BOUNDARIES = (0, *(10**n for n in range(8)), 2**31 - 1)
_SIZES = np.array(SIZE_BOUNDARIES, np.int64)
_DELETED = np.array(DELETED_ROWS_BOUNDARIES, np.int64)
_LOW = (1 << 32) - 1


def _zeros(bins: int) -> _Numbers:
    return np.zeros(bins, np.int64)


class FileHistogram(Struct, frozen=True, eq=False):
    """Counts by bin: files and their bytes by size, and files by deleted rows."""

    files: _Numbers = field(default_factory=lambda: _zeros(len(_SIZES)))
    size_bytes: _Numbers = field(default_factory=lambda: _zeros(len(_SIZES)))
    files_by_deleted_rows: _Numbers = field(default_factory=lambda: _zeros(len(_DELETED)))

    @classmethod
    def of(cls, sizes: pa.Array | pa.ChunkedArray, deleted_rows: pa.Array | pa.ChunkedArray) -> FileHistogram:
        """Count some files.

        :param sizes: the size of each file in bytes.
        :param deleted_rows: the deleted rows of each file; null where a file has no deletion vector.
        """
        found = pc.fill_null(sizes, 0).to_numpy()
        bins = _bins(found, _SIZES)
        if deleted_rows.null_count == len(deleted_rows):
            by_deleted_rows = _zeros(len(_DELETED))
            by_deleted_rows[0] = len(deleted_rows)
        else:
            deleted = pc.fill_null(deleted_rows, 0).to_numpy()
            by_deleted_rows = np.bincount(_bins(deleted, _DELETED), minlength=len(_DELETED))
        # bincount adds floats. These are exact for the two halves of a size and any number of files in memory.
        high, low = (
            np.bincount(bins, half, len(_SIZES)).astype(np.int64) for half in (found >> 32, found & _LOW)
        )
        size_bytes = (high << 32) + low
        return cls(np.bincount(bins, minlength=len(_SIZES)), size_bytes, by_deleted_rows)

    def plus(self, other: FileHistogram, sign: int = 1) -> FileHistogram:
        return FileHistogram(
            self.files + sign * other.files,
            self.size_bytes + sign * other.size_bytes,
            self.files_by_deleted_rows + sign * other.files_by_deleted_rows,
        )


def _bins(values: _Numbers, boundaries: _Numbers) -> _Numbers:
    return np.maximum(np.searchsorted(boundaries, values, "right") - 1, 0)
