"""Where the rows of a bin's sources are in its new files, and so which of those a later deletion concerns.

A bin's live rows follow each other in its outputs in the order of its sources and of the rows in them. Row ``i`` of a
source whose deletion vector hid ``D`` when it was read is therefore row ``start + i - |{d in D: d < i}|`` of the
outputs taken together, ``start`` being the live rows of the sources before it. Where a layout has moved the rows, that number is
looked up in the bin's row map (:mod:`delta_maintenance.rewrite.manifest.row_map`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from delta_log.data.row_bitmap import RowBitmap

if TYPE_CHECKING:
    import numpy.typing as npt

#: The places in the outputs, taken together, of live rows of the sources that are given by their numbers; both ascending.
NewPlaces = Callable[["npt.NDArray[np.int64]"], "npt.NDArray[np.int64]"]


class NotRemappable(ValueError):
    """Deletions cannot be carried over to the new files; the text says why."""


class SourceRows(Struct, frozen=True):
    """The rows of a source file.

    :param rows: the number of its rows, deleted ones included.
    :param read: the rows that were deleted when the task read the file.
    :param now: the rows that are deleted now; ``None``: the whole file was removed.
    """

    rows: int
    read: RowBitmap
    now: RowBitmap | None


def remapped(
    sources: Sequence[SourceRows], output_rows: Sequence[int], new_places: NewPlaces | None = None
) -> list[RowBitmap]:
    """Return the rows of each output that are deleted now.

    :param sources: in the order in which the task read them.
    :param output_rows: the rows of each output, in the order in which the task wrote them.
    :param new_places: where the rows went; ``None``: they kept their order.
    :raises NotRemappable: rows are live again that the outputs lack, or the counts do not add up.
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
    if new_places is not None:
        places = new_places(places)
    bounds = np.concatenate(([0], np.cumsum(output_rows))).tolist()
    found = [
        RowBitmap(places[(places >= first) & (places < last)] - first) for first, last in pairwise(bounds)
    ]
    if start - sum(map(len, found)) != still_live:
        raise NotRemappable(
            f"{still_live} rows are live in the sources, and {start - sum(map(len, found))} would be"
        )
    return found
