"""Row groups of a source that become a part of a new file as they are, and what has to be read of them all the same."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from msgspec import Struct
from msgspec.structs import replace

from delta_log.arrow.row_hash import RowHash
from delta_log.stats.file_stats import StatsCollector
from delta_maintenance.rewrite.copy.copied_stats import CopiedStats
from delta_maintenance.rewrite.copy.source_footers import CopiedFile, ReadAhead
from delta_maintenance.rewrite.read.sources import SourceSlice
from parquet_parts.assembled_file import AssembledFile, OmittedClaims
from parquet_parts.float_pages import Source, lacks_nan
from parquet_parts.footer import ColumnChunk, RowGroup
from parquet_parts.schema_elements import Leaf, leaves_of


class CopyScan(Struct, frozen=True):
    """What was read of row groups that are copied.

    :param rows: the checksum of their rows, if it was asked for.
    :param floats: the bounds of the float columns that were read, since the footer's are not trusted.
    :param true_floats: numbers of the float leaves whose bounds in the footer are true after all: there is no NaN.
    """

    rows: RowHash
    floats: StatsCollector | None = None
    true_floats: frozenset[int] = frozenset()


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

    def append_to(self, file: AssembledFile, read: Callable[[], CopyScan]) -> None:
        """Put the row groups behind those of a new file.

        :param read: returns what was read of them. It is called after the bytes were copied.
        """

        def distrust() -> list[OmittedClaims]:
            return [self._distrust(read())] * len(self._row_groups)

        file.append(self._copied.file, self._copied.footer, distrust, self.slice.row_groups)

    def add_stats_to(self, stats: CopiedStats, read: CopyScan) -> None:
        stats.add(self._row_groups, self._distrust(read), read.floats)

    def true_floats(self, numbers: Iterable[int]) -> frozenset[int]:
        """Return the float leaves whose bounds in the footer are true, since their pages hold no NaN.

        :param numbers: of float leaves outside of lists and maps.
        """
        copied = self._copied
        if not copied.footer.has_type_orders:
            return frozenset()
        leaves, true = leaves_of(copied.footer.schema), frozenset(numbers)
        groups = [group.chunks for group in self._row_groups if group.num_rows]
        file: Source = copied.file
        if copied.file.storage.concurrency > 1:
            file = ReadAhead(copied.file, [chunks[number].place for chunks in groups for number in true])
        for chunks in groups:
            true = frozenset(n for n in sorted(true) if _has_true_bounds(file, chunks[n], leaves[n]))
        return true

    def _distrust(self, read: CopyScan) -> OmittedClaims:
        """Say what the new file leaves out. Writers differ in the zeros of page indexes, which are copied as they are."""
        said = self._copied.copies.distrust
        if not read.true_floats:
            return said
        return replace(
            said,
            bounds=set(said.bounds) - read.true_floats,
            page_bounds=set(said.page_bounds) | read.true_floats,
        )

    @property
    def _copied(self) -> CopiedFile:
        assert self.slice.opened.copied is not None
        return self.slice.opened.copied

    @property
    def _row_groups(self) -> list[RowGroup]:
        groups = self.slice.row_groups
        assert groups is not None
        return self._copied.footer.row_groups[groups.start : groups.stop]


def _has_true_bounds(file: Source, chunk: ColumnChunk, leaf: Leaf) -> bool:
    if chunk.is_null:
        return True
    return chunk.bounds is not None and not chunk.has_nan_bound and lacks_nan(file, chunk, leaf)
