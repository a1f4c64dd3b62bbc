"""Where the rows of a bin's sources are in its new files, and so which of those a later deletion concerns.

A bin's live rows follow each other in its outputs in the order of its sources and of the rows in them. Row ``i`` of a
source whose deletion vector hid ``D`` when it was read is therefore row ``start + i - |{d in D: d < i}|`` of the
outputs taken together, ``start`` being the live rows of the sources before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from delta_log.data.row_bitmap import RowBitmap


class NotRemappable(ValueError):
    """Why deletions cannot be carried over to the new files."""


@dataclass(frozen=True, slots=True)
class SourceRows:
    """
    :param rows: of the file, hidden ones included.
    :param read: those that were hidden when the file was read.
    :param now: those that are hidden now; ``None``: the whole file is gone, its live rows with it.
    """

    rows: int
    read: RowBitmap
    now: RowBitmap | None


def remapped(sources: Sequence[SourceRows], output_rows: Sequence[int]) -> list[RowBitmap]:
    """The rows of each output that are not live any more.

    :param sources: in the order in which they were read.
    :param output_rows: of each output, in the order in which they were written.
    :raises NotRemappable: rows have come back that the outputs do not have, or the counts do not agree.
    """
    dead = [np.empty(0, np.int64)]
    start = still_live = 0
    for source in sources:
        live = source.rows - len(source.read)
        if source.now is None:
            dead.append(np.arange(start, start + live))
        else:
            if not source.read <= source.now:
                raise NotRemappable("rows came back that had been deleted when it was read")
            gone = (source.now - source.read).rows()
            if gone.size and gone[-1] >= source.rows:
                raise NotRemappable(f"row {gone[-1]} was deleted, and it has {source.rows}")
            dead.append(start + gone - np.searchsorted(source.read.rows(), gone))
            still_live += source.rows - len(source.now)
        start += live
    if start != sum(output_rows):
        raise NotRemappable(f"{start} rows were live in the sources, and {sum(output_rows)} were written")
    places = np.concatenate(dead)
    bounds = np.concatenate(([0], np.cumsum(output_rows))).tolist()
    found = [
        RowBitmap(places[(places >= first) & (places < last)] - first) for first, last in pairwise(bounds)
    ]
    if start - sum(map(len, found)) != still_live:
        raise NotRemappable(
            f"{still_live} rows are live in the sources, and {start - sum(map(len, found))} would be"
        )
    return found
