"""Which partitions are hot: writers other than this rewriter have written to them lately."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from delta_log.snapshot.snapshot import Snapshot
from delta_log.storage.store_clock import CLOCK_MARGIN_MS
from delta_maintenance.optimize.plan.bin_packing import Int64s
from delta_maintenance.partitions.partition_groups import partition_groups
from delta_maintenance.rewrite.task import REWRITE_TAG


def hot_groups(
    snapshot: Snapshot, files: pa.Table, groups: Int64s, quiet_minutes: int | None, now_ms: int
) -> npt.NDArray[np.bool_]:
    """Tell for each group (a partition) whether it is hot.

    Deleting rows with a deletion vector does not change the file's time, but it leaves a tombstone of the file's earlier
    state. A rewrite leaves tombstones, too, marked as changing no data. A checkpoint marks all tombstones so; then a group
    counts as quiet if this rewriter has lately written a file of it.

    :param groups: the group of each file.
    :param quiet_minutes: how long a group must have been left alone; ``None``: none is hot.
    """
    hot = np.zeros(int(groups.max()) + 1 if len(groups) else 0, np.bool_)
    if quiet_minutes is None or not len(groups):
        return hot
    span = (now_ms - 60_000 * quiet_minutes, now_ms + CLOCK_MARGIN_MS)
    recent = _is_within(files.column("modification_time"), *span)
    ours = pc.is_valid(pc.map_lookup(files.column("tags"), pa.scalar(REWRITE_TAG), "first")).to_numpy()
    hot[groups[recent & ~ours]] = True
    rewritten = np.zeros(len(hot), np.bool_)
    rewritten[groups[recent & ours]] = True
    removed = snapshot.tombstones(("deletion_timestamp", "data_change", "partition_values"))
    removed = removed.filter(pa.array(_is_within(removed.column("deletion_timestamp"), *span)))
    values = [files.column("partition_values"), removed.column("partition_values")]
    chunks = [chunk for column in values for chunk in column.chunks]
    codes = partition_groups(pa.chunked_array(chunks, values[0].type), snapshot.partition_schema)
    known = np.full(int(codes.max()) + 1, -1, np.int64)
    known[codes[: files.num_rows]] = groups
    of_removed = known[codes[files.num_rows :]]
    changed = pc.fill_null(removed.column("data_change"), True).to_numpy()
    counts = (of_removed >= 0) & (changed | ~rewritten[of_removed])
    hot[of_removed[counts]] = True
    return hot


def _is_within(times_ms: pa.ChunkedArray, since_ms: int, until_ms: int) -> npt.NDArray[np.bool_]:
    """Whether each time lies in a span. Some writers state microseconds; a time in the future tells nothing."""
    within = pc.and_(pc.greater_equal(times_ms, since_ms), pc.less_equal(times_ms, until_ms))
    found: npt.NDArray[np.bool_] = pc.fill_null(within, False).to_numpy()
    return found
