"""Live files by size, and partitions by need: what a person looks at to see where the small files are.

The size classes are wider than the size classes of the version checksum. Each of them starts where a class of the checksum starts,
so a checksum tells the same as the list of files.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence

from delta_log.errors import brief
from delta_log.snapshot.deletion_ratio import DeletedRows
from delta_log.snapshot.version_checksum import VersionChecksum
from delta_log.stats.file_histogram import SIZE_BOUNDARIES, FileHistogram
from delta_maintenance.health.facts import FileTotal, PartitionNeed, PlannedRewrite, SizeClass

_KIB, _MIB, _GIB = 1 << 10, 1 << 20, 1 << 30
#: Where each class begins; the last one has no end.
CLASSES = (0, 64 * _KIB, 512 * _KIB, 4 * _MIB, 32 * _MIB, 128 * _MIB, 512 * _MIB, _GIB, 4 * _GIB)
#: Partitions that a reading names, and the longest value of a partition column that it quotes.
_MAX_NEEDS, _MAX_VALUE = 10, 120


def in_classes(histogram: FileHistogram) -> dict[int, FileTotal]:
    """The classes that have files, by where they begin."""
    return _summed(SIZE_BOUNDARIES, histogram.files.tolist(), histogram.size_bytes.tolist())


def size_classes(
    found: Mapping[int, FileTotal] | None, to_merge: Mapping[int, FileTotal]
) -> tuple[SizeClass, ...] | None:
    """
    :param to_merge: the files among those found that OPTIMIZE would put together.
    """
    if found is None:
        return None
    return tuple(SizeClass(start, found[start], to_merge.get(start, FileTotal())) for start in sorted(found))


def classes_of_checksum(checksum: VersionChecksum) -> dict[int, FileTotal] | None:
    """The classes by a version checksum; ``None``: it does not tell, or makes no sense."""
    histogram = checksum.fileSizeHistogram or checksum.histogramOpt
    if histogram is None:
        return None
    starts, files, sizes = histogram.sortedBinBoundaries, histogram.fileCounts, histogram.totalBytes
    if not len(starts) == len(files) == len(sizes) or min((*starts, *files, *sizes), default=0) < 0:
        return None
    return _summed(starts, files, sizes)


def partition_needs(
    plan: PlannedRewrite | None, deleted: Iterable[DeletedRows]
) -> tuple[tuple[PartitionNeed, ...], int]:
    """The partitions with the most files to merge, then with the most deleted rows; and how many need something.

    A table without partition columns has none.
    """
    merged = {key: total for key, total in (plan.merged_by_partition if plan else {}).items() if key}
    ratios = {tuple(one.partition.items()): one.ratio for one in deleted if one.partition}
    needs = [
        PartitionNeed(
            {name: value if value is None else brief(value, _MAX_VALUE) for name, value in key},
            merged.get(key, FileTotal()),
            ratios.get(key),
        )
        for key in {**merged, **ratios}
    ]
    needs.sort(key=lambda need: (need.to_merge.files, need.deleted_rows_ratio or 0.0), reverse=True)
    return tuple(needs[:_MAX_NEEDS]), len(needs)


def _summed(starts: Sequence[int], files: Sequence[int], sizes: Sequence[int]) -> dict[int, FileTotal]:
    found: dict[int, FileTotal] = {}
    for start, count, size in zip(starts, files, sizes, strict=True):
        if count:
            class_start = CLASSES[bisect_right(CLASSES, start) - 1]
            found[class_start] = found.get(class_start, FileTotal()).plus(count, size)
    return found
