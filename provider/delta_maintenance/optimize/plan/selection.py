"""Which files of a table a plan chose and which it left, counted by reason, for reports and logs. Pure.

Every live file counts once: the chosen files and those left for any reason add up to the files of the table.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct, field

from delta_log.snapshot.snapshot import Snapshot

#: Why a file was left. A purge says ``clean`` where OPTIMIZE says ``large_enough``.
LARGE_ENOUGH, UP_TO_DATE, CLEAN, BELOW_RATIO = "large_enough", "up_to_date", "clean", "below_ratio"
ALONE, TOO_LARGE_TOGETHER, UNMATCHED, LEFT_OVER = "alone", "too_large_together", "unmatched", "left_over"
LAID_OUT, SEALED, CLUSTERED, CLUSTERED_OTHERWISE = "laid_out", "sealed", "clustered", "clustered_otherwise"
HOT, OVER_BUDGET = "hot", "over_budget"
OUTSIDE_WHERE, UNDECIDED = "outside_where", "undecided"
FOREIGN, FINISHED = "foreign", "finished"
LEFT_REASONS = (
    LARGE_ENOUGH,
    UP_TO_DATE,
    CLEAN,
    BELOW_RATIO,
    ALONE,
    TOO_LARGE_TOGETHER,
    UNMATCHED,
    LEFT_OVER,
    LAID_OUT,
    SEALED,
    CLUSTERED,
    CLUSTERED_OTHERWISE,
    HOT,
    OVER_BUDGET,
    OUTSIDE_WHERE,
    UNDECIDED,
    FOREIGN,
    FINISHED,
)
_MOST_BYTES = (1 << 63) - 1


class FileCount(Struct, frozen=True):
    """Some files, and their bytes."""

    files: int = 0
    bytes: int = 0

    @classmethod
    def of(cls, files: pa.Table) -> FileCount:
        """Count files, whatever sizes the log states for them."""
        size_bytes = pc.sum(files.column("size").cast(pa.float64(), safe=False)).as_py() or 0.0
        return cls(files.num_rows, min(int(size_bytes), _MOST_BYTES))

    @classmethod
    def of_table(cls, snapshot: Snapshot) -> FileCount:
        """Count the live files of a table. A snapshot that was planned on reads nothing for it."""
        return cls.of(snapshot.files(("size",)))

    def to_dict(self) -> dict[str, int]:
        return {"files": self.files, "bytes": self.bytes}


class Selection(Struct, frozen=True):
    """What a plan chose and left.

    :param table: the live files of the planned version.
    :param chosen: the files of the plan's bins.
    :param chosen_by_reason: how many of them were chosen for each reason; a file may have several.
    :param left: the other files, by :data:`LEFT_REASONS`.
    :param partitions: number of partitions of the chosen files; 0: the table is not partitioned.
    :param small_below_bytes: size below which files are small; 0: size does not matter.
    """

    table: FileCount = FileCount()
    chosen: FileCount = FileCount()
    bins: int = 0
    partitions: int = 0
    chosen_by_reason: Mapping[str, int] = field(default_factory=dict)
    left: Mapping[str, FileCount] = field(default_factory=dict)
    small_below_bytes: int = 0

    def to_dict(self) -> dict[str, Any]:
        """The member ``selection`` of a report."""
        return {
            **self.table.to_dict(),
            "small_below_bytes": self.small_below_bytes,
            "chosen": {
                **self.chosen.to_dict(),
                "bins": self.bins,
                "partitions": self.partitions,
                "by_reason": dict(self.chosen_by_reason),
            },
            "left": {name: self.left[name].to_dict() for name in LEFT_REASONS if name in self.left},
        }
