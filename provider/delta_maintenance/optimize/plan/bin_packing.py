"""Packs files into bins, next-fit, on arrays.

The files of a group (a partition) are sorted by size, equal sizes by path. A bin takes files until the next one would exceed
the maximum. A bin is kept if it joins at least two files, or holds a file that was chosen for its own sake.

A file must also *earn* its place. If it is much larger than all files before it in the bin, rewriting its bytes would remove
little, and the next run would do it again. Such a file begins a new bin (:class:`MergeRule`). Without this rule, two outputs of
one group would together always exceed the maximum.

Bins do not depend on each other: if the files of some bins are gone, the others are packed as before.

Files are handled by array operations; Python code runs per bin, never per file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct, field

from delta_log.arrow.arrays import arrow_array
from delta_maintenance.optimize.plan.selection import ALONE, LEFT_OVER, TOO_LARGE_TOGETHER, UNMATCHED

Int64s = npt.NDArray[np.int64]


class MergeRule(Struct, frozen=True):
    """When a file may join smaller ones.

    :param factor: how many times as large as all of them together it may be.
    :param free_bytes: a file of at most this size always may.
    """

    factor: float
    free_bytes: int


class Bins(Struct, frozen=True):
    """The bins that are kept.

    1. ``order[starts[i]:ends[i]]`` are the files of bin i, as indices into what was packed, in the bin's
       order.
    2. Bins of one group follow each other, smaller files first; groups come in the order of their codes.
    3. ``left`` has the files that are in no bin, as such indices, by the reason.
    """

    order: Int64s
    starts: Int64s
    ends: Int64s
    left: Mapping[str, Int64s] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.starts)

    def __iter__(self) -> Iterator[Int64s]:
        for start, end in zip(self.starts, self.ends, strict=True):
            yield self.order[start:end]


def pack(
    groups: Int64s,
    sizes: Int64s,
    paths: pa.Array | pa.ChunkedArray,
    max_bytes: int,
    chosen_alone: npt.NDArray[np.bool_] | None = None,
    merge_rule: MergeRule | None = None,
    first_by: Int64s | None = None,
) -> Bins:
    """Pack files into bins.

    :param groups: a code per file; files of different groups never meet.
    :param sizes: bytes per file, none negative.
    :param paths: paths, which order files of equal size, so that the order of the input does not matter.
    :param chosen_alone: files that are worth a bin of their own.
    :param merge_rule: ``None``: every file earns its place.
    :param first_by: numbers that order the files of a group before their sizes do.
    """
    if len(sizes) == 0:
        empty = np.empty(0, np.int64)
        return Bins(empty, empty, empty)
    order = _order(groups, sizes, paths, first_by)
    sorted_groups, sorted_sizes = groups[order], sizes[order]
    alone = np.zeros(len(order), np.bool_) if chosen_alone is None else chosen_alone[order]
    starts = _starts(sorted_groups, sorted_sizes, max_bytes, alone, merge_rule)
    ends = np.append(starts[1:], len(order))
    worth = (ends - starts >= 2) | np.logical_or.reduceat(alone, starts)
    left = _left(sorted_groups, sorted_sizes, max_bytes, starts, worth)
    return Bins(order, starts[worth], ends[worth], {reason: order[rows] for reason, rows in left.items()})


def _order(
    groups: Int64s, sizes: Int64s, paths: pa.Array | pa.ChunkedArray, first_by: Int64s | None
) -> Int64s:
    ranks = np.zeros_like(groups) if first_by is None else first_by
    order: Int64s = np.lexsort((sizes, ranks, groups)).astype(np.int64, copy=False)
    same = (np.diff(groups[order]) == 0) & (np.diff(ranks[order]) == 0) & (np.diff(sizes[order]) == 0)
    if not same.any():
        return order
    # Comparing texts is slow, so only files of equal size are ordered by path.
    tied = np.zeros(len(order), np.bool_)
    tied[1:] |= same
    tied[:-1] |= same
    runs = np.cumsum(np.append(True, ~same))[tied]
    members = order[tied]
    table = pa.table({"run": arrow_array(runs), "path": paths.take(arrow_array(members))})
    by_path = pc.sort_indices(table, sort_keys=[("run", "ascending"), ("path", "ascending")]).to_numpy()
    order[tied] = members[by_path]
    return order


def _starts(
    groups: Int64s,
    sizes: Int64s,
    max_bytes: int,
    alone: npt.NDArray[np.bool_],
    merge_rule: MergeRule | None,
) -> Int64s:
    """Where each bin starts among files sorted by group and size."""
    until = np.cumsum(sizes)
    # For a bin that starts at i: the first file that does not fit, or that is of another group.
    too_much = np.searchsorted(until, until - sizes + max_bytes, side="right")
    group_ends = np.append(np.flatnonzero(np.diff(groups)) + 1, len(groups))
    group_end = group_ends[np.searchsorted(group_ends, np.arange(len(groups)), side="right")]
    following = np.minimum(np.maximum(too_much, np.arange(len(groups)) + 1), group_end).tolist()
    starts, at = [], 0
    while at < len(following):
        starts.append(at)
        full = following[at]
        if merge_rule is not None and sizes[full - 1] > merge_rule.free_bytes:
            full = _unearned(sizes, until, alone, merge_rule, at, full)
        at = full
    return np.array(starts, np.int64)


def _left(
    groups: Int64s, sizes: Int64s, max_bytes: int, starts: Int64s, worth: npt.NDArray[np.bool_]
) -> dict[str, Int64s]:
    """Say why files are in no bin.

    :param groups: group of each file; ``sizes``: the size of each file.
    :param starts: place of the first file of each bin; ``worth``: the bins that are kept. Each of the other bins has one file.
    """
    at = np.flatnonzero(~worth)
    rows = starts[at]
    if not len(rows):
        return {}
    firsts = np.append(0, np.flatnonzero(np.diff(groups)) + 1)
    number = np.searchsorted(firsts, rows, side="right") - 1
    is_alone = np.diff(np.append(firsts, len(groups)))[number] == 1
    by_size = np.lexsort((sizes, groups))
    least, second = by_size[firsts[number]], by_size[np.minimum(firsts[number] + 1, len(groups) - 1)]
    smallest_other = np.where(rows == least, second, least)
    is_too_large = ~is_alone & (sizes[rows] + sizes[smallest_other] > max_bytes)
    # Files that would fit together, and of which none joined others, are kept apart by their sizes alone.
    is_unmatched = np.isin(smallest_other, rows)
    # So are a file and the bin before it, if that had room, or the file after it.
    before = np.maximum(at - 1, 0)
    has_room = (groups[starts[before]] == groups[rows]) & (at > 0)
    has_room &= np.add.reduceat(sizes, starts)[before] + sizes[rows] <= max_bytes
    after = np.minimum(rows + 1, len(groups) - 1)
    fits_next = (groups[after] == groups[rows]) & (after > rows) & (sizes[rows] + sizes[after] <= max_bytes)
    is_unmatched = ~is_alone & ~is_too_large & (is_unmatched | has_room | fits_next)
    return {
        ALONE: rows[is_alone],
        TOO_LARGE_TOGETHER: rows[is_too_large],
        UNMATCHED: rows[is_unmatched],
        LEFT_OVER: rows[~(is_alone | is_too_large | is_unmatched)],
    }


def _unearned(
    sizes: Int64s, until: Int64s, alone: npt.NDArray[np.bool_], merge_rule: MergeRule, start: int, end: int
) -> int:
    """The first file of a bin that does not earn its place; `end` if all do."""
    before = until[start : end - 1] - until[start] + sizes[start]
    allowed = np.maximum(merge_rule.factor * before, merge_rule.free_bytes)
    unearned = (sizes[start + 1 : end] > allowed) & ~alone[start + 1 : end]
    first = int(np.argmax(unearned)) if len(unearned) else 0
    return start + 1 + first if len(unearned) and unearned[first] else end
