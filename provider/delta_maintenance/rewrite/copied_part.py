"""Row groups of a source that become a part of a new file as they are, and what has to be read of them all the same."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pyarrow as pa
from msgspec import Struct
from msgspec.structs import replace

from delta_log.arrow.row_hash import RowHash
from delta_log.stats.file_stats import StatsCollector
from delta_maintenance.rewrite.bin_context import BinContext
from delta_maintenance.rewrite.copy.copied_stats import NewFileStats, unknown_floats
from delta_maintenance.rewrite.copy.source_footers import CopiedFile, ReadAhead
from delta_maintenance.rewrite.read.sources import SourceSlice
from parquet_parts.assembled_file import AssembledFile, OmittedClaims
from parquet_parts.float_bounds import Source, has_nan_bound, lacks_nan
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
    """Row groups to copy.

    :param scan: function that returns what was read of them, and waits for it. It is called after the bytes were copied.
    """

    slice: SourceSlice
    scan: Callable[[], CopyScan]

    @property
    def num_rows(self) -> int:
        return sum(group.num_rows for group in row_groups_of(self.slice))

    @property
    def bytes_copied(self) -> int:
        extents = [group.extent for group in row_groups_of(self.slice) if group.num_rows]
        return sum(end - start for start, end in extents)

    @property
    def read(self) -> RowHash:
        return self.scan().rows

    def append_to(self, file: AssembledFile) -> None:
        """Append the row groups to a new file."""
        copied = copied_file_of(self.slice)

        def omitted() -> list[OmittedClaims]:
            return [self._omitted()] * len(row_groups_of(self.slice))

        file.append(copied.file, copied.footer, omitted, self.slice.row_groups)

    def add_stats_to(self, stats: NewFileStats) -> None:
        stats.add(row_groups_of(self.slice), self._omitted(), self.scan().floats)

    def _omitted(self) -> OmittedClaims:
        """Say what the new file leaves out. Writers differ in the zeros of page indexes, which are copied as they are."""
        said, true_floats = copied_file_of(self.slice).copies.distrust, self.scan().true_floats
        if not true_floats:
            return said
        return replace(
            said, bounds=set(said.bounds) - true_floats, page_bounds=set(said.page_bounds) | true_floats
        )


def scanned(
    context: BinContext, part: SourceSlice, batches: Callable[[], Iterable[pa.RecordBatch]]
) -> CopyScan:
    """Read what is needed beside the bytes of row groups: a checksum of the rows, and the bounds of floats."""
    found = RowHash()
    if context.is_verified:
        for batch in batches():
            found = found.plus(RowHash.of(batch))
    if context.task.rewrite != "auto":
        # rewrite="copy" does not read float columns, so they get no bounds.
        return CopyScan(found)
    omitted, live = copied_file_of(part).copies.distrust, context.live
    unknown = unknown_floats(context.settings.stats_columns, live.schema, omitted) if omitted.bounds else {}
    true_floats = _true_floats(part, unknown) if unknown else frozenset()
    columns = [column for number, column in unknown.items() if number not in true_floats]
    floats = StatsCollector(columns) if columns else None
    if floats is not None:
        for batch in live.columns_of(part, {column.path[0] for column in columns}):
            floats.update(batch)
    return CopyScan(found, floats, true_floats)


def _true_floats(part: SourceSlice, numbers: Iterable[int]) -> frozenset[int]:
    """Return the float leaves whose bounds in the footer are true, since their pages hold no NaN.

    :param numbers: numbers of float leaves outside of lists and maps.
    """
    copied = copied_file_of(part)
    if not copied.footer.has_type_orders:
        return frozenset()
    leaves, true = leaves_of(copied.footer.schema), frozenset(numbers)
    groups = [group.chunks for group in row_groups_of(part) if group.num_rows]
    file: Source = copied.file
    if copied.file.storage.concurrency > 1:
        file = ReadAhead(copied.file, [chunks[number].place for chunks in groups for number in true])
    for chunks in groups:
        true = frozenset(n for n in sorted(true) if _has_true_bounds(file, chunks[n], leaves[n]))
    return true


def copied_file_of(part: SourceSlice) -> CopiedFile:
    assert part.opened.copied is not None
    return part.opened.copied


def row_groups_of(part: SourceSlice) -> list[RowGroup]:
    assert part.row_groups is not None
    return copied_file_of(part).footer.row_groups[part.row_groups.start : part.row_groups.stop]


def _has_true_bounds(file: Source, chunk: ColumnChunk, leaf: Leaf) -> bool:
    if chunk.is_null:
        return True
    return chunk.bounds is not None and not has_nan_bound(chunk) and lacks_nan(file, chunk, leaf)
