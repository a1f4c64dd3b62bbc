"""A tree of quantiles: each level splits the rows by one column, into so many parts that the parts are as many as the files.

For 100 files and 4 columns, the first three columns are split into 3 parts each, and the last one into 3 or 4. A query for one
value of any column then reads about a third of the files. That is near the best possible for all columns together.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from delta_maintenance.layout.ranks import Uint64s

_Int64s = npt.NDArray[np.int64]
_NOISE_BITS = 32


class _Node(Struct, frozen=True):
    """Rows that are split by one column, or the rows of some files.

    :param column: number of the column by which the rows are split; ``None``: no column is left that tells them apart.
    :param bounds: the least ranks of the parts but the first.
    :param parts: child nodes, one more than there are bounds.
    :param files: the number of files that the rows fill.
    """

    files: int
    column: int | None = None
    bounds: Uint64s | None = None
    parts: tuple[_Node, ...] = ()


class KdTree(Struct, frozen=True):
    """Gives rows the number of a file by the ranks of their columns."""

    root: _Node

    @classmethod
    def of(cls, sample: Sequence[Uint64s], files: int) -> KdTree:
        """Make a tree for so many files.

        :param sample: the ranks of sampled rows, by column.
        """
        # A column of few values cannot be split into many parts: the others then take over what it leaves.
        order = sorted(range(len(sample)), key=lambda column: min(files, len(np.unique(sample[column]))))
        ranks = np.stack(sample) if len(sample[0]) else np.zeros((len(sample), 1), np.uint64)
        return cls(_split(ranks, tuple(order), files))

    def files_of(self, ranks: Sequence[Uint64s], noise: npt.NDArray[np.uint32]) -> _Int64s:
        """Return the number of the file of each row.

        :param ranks: ranks of the rows, by column.
        :param noise: random numbers, which divide rows that no column tells apart.
        """
        found = np.zeros(len(noise), np.int64)
        waiting = [(self.root, 0, np.arange(len(noise)))]
        while waiting:
            node, first, rows = waiting.pop()
            if node.column is None:
                share = (noise[rows].astype(np.uint64) * np.uint64(node.files)) >> np.uint64(_NOISE_BITS)
                found[rows] = first + share.astype(np.int64)
                continue
            assert node.bounds is not None
            number = np.searchsorted(node.bounds, ranks[node.column][rows], side="right")
            # Sorting once is cheaper than one comparison of all rows for each part.
            order = np.argsort(number, kind="stable")
            ends = np.cumsum(np.bincount(number, minlength=len(node.parts)))
            start = 0
            for part, end in zip(node.parts, ends.tolist(), strict=True):
                if end > start:
                    waiting.append((part, first, rows[order[start:end]]))
                first, start = first + part.files, end
        return found


def _split(ranks: npt.NDArray[np.uint64], columns: tuple[int, ...], files: int) -> _Node:
    if files == 1 or not columns:
        return _Node(files)
    column, rest = columns[0], columns[1:]
    ascending = np.sort(ranks[column])
    bounds = _bounds(ascending, _even_shares(files, max(1, round(files ** (1 / len(columns))))))
    if not len(bounds):
        return _split(ranks, rest, files)
    number = np.searchsorted(bounds, ranks[column], side="right")
    shares = _shares(np.bincount(number, minlength=len(bounds) + 1), files)
    parts = [_split(ranks[:, number == part], rest, share) for part, share in enumerate(shares)]
    return _Node(files, column, bounds, tuple(parts))


def _even_shares(files: int, parts: int) -> list[int]:
    """Divide files between parts, as evenly as whole numbers allow."""
    return [files * (part + 1) // parts - files * part // parts for part in range(parts)]


def _bounds(ascending: Uint64s, shares: list[int]) -> Uint64s:
    """Choose the bounds of parts whose sizes are near the shares. A bound lies between two values."""
    wanted = np.cumsum(shares)[:-1] * len(ascending) // sum(shares)
    found = []
    for place in wanted.tolist():
        value = ascending[place]
        begin = int(np.searchsorted(ascending, value, side="left"))
        end = int(np.searchsorted(ascending, value, side="right"))
        # The nearer end of the run of equal values; behind the last value there is nothing to bound.
        at = begin if place - begin <= end - place or end == len(ascending) else end
        if at > 0:
            found.append(ascending[at])
    return np.unique(np.array(found, np.uint64))


def _shares(rows: _Int64s, files: int) -> list[int]:
    """Divide files between parts by their rows, so that files are evenly large. Each part gets one at least."""
    exact = rows * files / max(1, int(rows.sum()))
    shares = np.maximum(1, np.floor(exact).astype(np.int64))
    while shares.sum() < files:
        shares[np.argmax(exact - shares)] += 1
    while shares.sum() > files:
        # More parts than files is impossible, so some part has more than one.
        excess = np.where(shares > 1, shares - exact, -np.inf)
        shares[np.argmax(excess)] -= 1
    return [int(share) for share in shares]
