"""Row groups of a source that become a part of a new file as they are, and what has to be read of them all the same."""

from __future__ import annotations

from msgspec import Struct

from delta_log.arrow.row_hash import RowHash
from delta_log.parquet.assembled_file import AssembledFile
from delta_log.parquet.footer import RowGroup
from delta_log.stats.file_stats import StatsCollector
from delta_maintenance.rewrite.copied_files import CopiedFile
from delta_maintenance.rewrite.copied_stats import CopiedStats
from delta_maintenance.rewrite.sources import SourceSlice


class ReadOfCopied(Struct, frozen=True):
    """What was read of row groups that are copied.

    :param rows: the checksum of their rows, if it was asked for.
    :param floats: the bounds of the float columns that were read, since the footer's are not trusted.
    """

    rows: RowHash
    floats: StatsCollector | None = None


class CopiedPart(Struct, frozen=True):
    """Row groups to copy."""

    slice: SourceSlice

    @property
    def num_rows(self) -> int:
        return sum(group.num_rows for group in self._row_groups)

    @property
    def num_bytes(self) -> int:
        extents = [group.extent for group in self._row_groups if group.num_rows]
        return sum(end - start for start, end in extents)

    def append_to(self, file: AssembledFile) -> None:
        """Put the row groups behind those of a new file."""
        copied, groups = self._copied, self._row_groups
        file.append(
            copied.file, copied.footer, (copied.copies.distrust,) * len(groups), self.slice.row_groups
        )

    def add_stats_to(self, stats: CopiedStats, read: ReadOfCopied) -> None:
        stats.add(self._row_groups, self._copied.copies.distrust, read.floats)

    @property
    def _copied(self) -> CopiedFile:
        assert self.slice.opened.copied is not None
        return self.slice.opened.copied

    @property
    def _row_groups(self) -> list[RowGroup]:
        groups = self.slice.row_groups
        assert groups is not None
        return self._copied.footer.row_groups[groups.start : groups.stop]
