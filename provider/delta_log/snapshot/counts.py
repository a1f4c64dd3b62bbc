"""Totals of a snapshot's live files, which add up batch by batch and carry over from one version to the next."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct, field

from delta_log.errors import OTHER_COMMIT, CorruptLog
from delta_log.stats.file_histogram import FileHistogram

#: The columns that :meth:`Counts.of` needs.
COUNTED_COLUMNS = ("size", "deletion_vector")
_MAX_INT64 = (1 << 63) - 1


class Counts(Struct, frozen=True, eq=False):
    """Files, their bytes, how many have deletion vectors, how many rows those hide, and the distribution of all that.

    Totals are exact, whatever sizes a log states. The bins of the histogram have 64 bits, see :meth:`checked`.
    """

    files: int = 0
    size_bytes: int = 0
    deletion_vectors: int = 0
    deleted_rows: int = 0
    histogram: FileHistogram = field(default_factory=FileHistogram)

    @classmethod
    def of(cls, files: pa.RecordBatch | pa.Table) -> Counts:
        """Count some files, given in :data:`COUNTED_COLUMNS`."""
        sizes, vectors = files.column("size"), files.column("deletion_vector")
        cardinality = pc.struct_field(vectors, "cardinality")
        return cls(
            files.num_rows,
            _exact_sum(sizes),
            len(vectors) - vectors.null_count,
            _exact_sum(cardinality),
            FileHistogram.of(sizes, cardinality),
        )

    def plus(self, other: Counts, sign: int = 1) -> Counts:
        """Add the counts of other files, or with ``sign`` -1 take them away."""
        return Counts(
            self.files + sign * other.files,
            self.size_bytes + sign * other.size_bytes,
            self.deletion_vectors + sign * other.deletion_vectors,
            self.deleted_rows + sign * other.deleted_rows,
            self.histogram.plus(other.histogram, sign),
        )

    def checked(self) -> Counts:
        """These counts, if each total fits into 64 bits, as members of a version checksum do.

        :raises CorruptLog: one does not. No store holds so much.
        """
        for member, total in (("size", self.size_bytes), ("deletionVector.cardinality", self.deleted_rows)):
            if total > _MAX_INT64:
                raise CorruptLog(
                    f"add.{member}",
                    f"the table's files add up to {total:,}, which cannot be true",
                    OTHER_COMMIT,
                )
        return self


def _exact_sum(numbers: pa.Array | pa.ChunkedArray) -> int:
    """The sum of a column. Arrow's own wraps around at 64 bits."""
    bounds = pc.min_max(numbers).as_py()
    if max(-(bounds["min"] or 0), bounds["max"] or 0) * len(numbers) <= _MAX_INT64:
        return pc.sum(numbers).as_py() or 0
    return sum(number or 0 for number in numbers.to_pylist())
