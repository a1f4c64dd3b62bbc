"""Divides the sources of a bin into segments. Each segment is decoded and encoded on its own, so that all processors share a bin.

Row groups that are copied stand between segments, in their order. A segment has about the rows of one row group of the new file.
All segments of a bin are about equally large, so that the threads end together.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from delta_maintenance.rewrite.limits import MIN_SEGMENT_BYTES
from delta_maintenance.rewrite.read.sources import OpenedSource, SourceSlice

Segment = Sequence[SourceSlice]


def segments(
    sources: Iterable[OpenedSource], bytes_in: int, row_group_bytes: int, threads: int
) -> Iterator[Segment]:
    """Divide sources, in their order. A large source is divided between its row groups.

    :param bytes_in: the bytes of all sources in storage.
    :param row_group_bytes: decoded bytes of the largest row group.
    """
    segment: list[SourceSlice] = []
    size = limit = 0
    for opened in sources:
        for groups, is_copied in _ways(opened):
            if is_copied:
                if segment:
                    yield segment
                    segment, size = [], 0
                yield [SourceSlice(opened, groups, is_copied=True)]
                continue
            decoded = opened.data_file.row_group_bytes
            # The first source tells how large the others will be, once they are decoded.
            limit = limit or segment_bytes(
                sum(decoded) * bytes_in // max(1, opened.source.size_bytes), row_group_bytes, threads
            )
            first = groups.start
            for number in groups:
                size += decoded[number]
                if size >= limit:
                    segment.append(_slice(opened, range(first, number + 1)))
                    yield segment
                    segment, size, first = [], 0, number + 1
            if first < groups.stop or not groups:
                segment.append(_slice(opened, range(first, groups.stop)))
    if segment:
        yield segment


def _ways(opened: OpenedSource) -> Iterator[tuple[range, bool]]:
    """Yield consecutive row groups of a source that are all copied, or all decoded."""
    if opened.copied is None:
        yield range(opened.num_row_groups) if opened.wanted is None else opened.wanted, False
        return
    stop = 0
    for is_copied, reasons in groupby(opened.copied.copies.reasons, lambda reason: reason is None):
        start, stop = stop, stop + len(list(reasons))
        yield range(start, stop), is_copied


def segment_bytes(decoded_bytes: int, row_group_bytes: int, threads: int) -> int:
    """Return the decoded bytes of a segment, so that every thread gets as many segments.

    :param decoded_bytes: decoded size of all sources.
    """
    rounds = max(1, -(-decoded_bytes // (row_group_bytes * threads)))
    equal = -(-decoded_bytes // (rounds * threads))
    return max(1, min(row_group_bytes, max(equal, MIN_SEGMENT_BYTES)))


def _slice(opened: OpenedSource, groups: range) -> SourceSlice:
    whole = len(groups) == opened.data_file.num_row_groups
    return SourceSlice(opened, None if whole else groups)
