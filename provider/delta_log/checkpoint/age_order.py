"""Live files in the order of their age, the newest first, in bounded memory.

Sidecars are taken over from one checkpoint to the next, and what changes are mostly the newest files, so each sidecar
is to hold files of one age. Checkpoints of ours are in that order already. Another writer's may be in any (by a hash of
the path, oldest first): then all files are read several times, and each time those of some ages are taken. It happens
once in the life of a table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from delta_log.errors import CorruptLog

Read = Callable[[Sequence[str]], Iterator[pa.RecordBatch]]
_Ranks = npt.NDArray[np.int64]

#: Of the files that are held at a time.
_HELD_BYTES = 256 << 20
#: So many may be in a neighbouring group or farther away, and the order will do.
_MISPLACED = 0.1


def by_age(
    read: Read, columns: Sequence[str], group_rows: int, held_bytes: int = _HELD_BYTES
) -> Iterator[pa.RecordBatch]:
    """
    :param read: gives some columns of all files, always in the same order.
    :param group_rows: files that become a sidecar; within one, the order means nothing.
    """
    ranks = _ranks(read)
    if _in_order(ranks, group_rows):
        yield from read(columns)
        return
    row_bytes = next(max(1, batch.nbytes // max(1, batch.num_rows)) for batch in read(columns))
    step = max(group_rows, held_bytes // row_bytes // group_rows * group_rows)
    for first in range(0, len(ranks), step):
        held, order = [], []
        at = 0
        for batch in read(columns):
            mine = ranks[at : at + batch.num_rows]
            at += batch.num_rows
            rows = np.flatnonzero((mine >= first) & (mine < first + step))
            if len(rows):
                held.append(batch.take(pa.array(rows)))
                order.append(mine[rows])
        if at != len(ranks) or sum(map(len, order)) != min(step, len(ranks) - first):
            raise CorruptLog(
                "the live files", f"there were {len(ranks)} of them, and {at} when they were read again"
            )
        yield from _sorted(held, np.concatenate(order), group_rows)


def _ranks(read: Read) -> _Ranks:
    """The place of each file by its time of modification."""
    times = [batch.column(0).to_numpy(zero_copy_only=False) for batch in read(("modification_time",))]
    if not times:
        return np.empty(0, np.int64)
    ranks = np.empty(sum(map(len, times)), np.int64)
    ranks[np.argsort(-np.concatenate(times), kind="stable")] = np.arange(len(ranks))
    return ranks


def _in_order(ranks: _Ranks, group_rows: int) -> bool:
    groups = np.abs(ranks // group_rows - np.arange(len(ranks)) // group_rows)
    return bool(np.count_nonzero(groups) <= _MISPLACED * len(ranks))


def _sorted(held: list[pa.RecordBatch], ranks: _Ranks, group_rows: int) -> Iterator[pa.RecordBatch]:
    """Group by group, so that no array of texts grows beyond what Arrow can hold."""
    files = pa.Table.from_batches(held)
    order = np.argsort(ranks)
    for start in range(0, len(order), group_rows):
        rows = np.sort(order[start : start + group_rows])
        yield from files.take(pa.array(rows)).to_batches()
