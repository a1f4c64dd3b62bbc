"""Ranks of values among a sample: numbers of a few bits that order values of any type, evenly spread whatever the distribution.

Null comes first, and NaN after all numbers. Texts are compared by their bytes, as the bounds of statistics are.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

Uint64s = npt.NDArray[np.uint64]


class Ranks(Struct, frozen=True, eq=False):
    """Gives the values of one column their ranks.

    A value's rank is the share of the sample that is less than it, in units of ``2 ** -bits``. So equal values have equal ranks,
    and a value that fills half of the sample leaves half of the numbers to the others.

    :param bounds: distinct values, ascending: numbers of numpy, or an Arrow array of a type that numpy cannot order.
    :param ranks: rank of the values below the first bound, and of the values from each bound on.
    """

    bounds: Any
    ranks: Uint64s

    @classmethod
    def of(cls, sample: pa.Array, bits: int) -> Ranks:
        """Choose at most ``2 ** bits`` bounds from a sample.

        The ranks of other values of the same distribution err by about ``1 / sqrt(len(sample))``.
        """
        nulls, total = sample.null_count, max(1, len(sample))
        present = sample.drop_null()
        if len(present) == 0:
            return cls(np.empty(0, np.int64), np.zeros(1, np.uint64))
        numbers = _numbers(present)
        if numbers is not None:
            ascending: Any = np.sort(numbers)
        else:
            ascending = present.take(pc.sort_indices(present))
        count = min(1 << bits, len(present))
        chosen = (np.arange(count) * len(present)) // count
        if numbers is not None:
            bounds, first = np.unique(ascending[chosen], return_index=True)
            first = np.searchsorted(ascending, bounds, side="left")
        else:
            bounds, first = _distinct(ascending, chosen)
        shares = np.concatenate([[nulls], nulls + first]) / total
        return cls(bounds, np.minimum(shares * (1 << bits), (1 << bits) - 1).astype(np.uint64))

    def __call__(self, values: pa.Array) -> Uint64s:
        """Return the rank of each value; 0 for null."""
        if len(self.bounds) == 0 or values.null_count == len(values):
            return np.full(len(values), 0 if values.null_count else int(self.ranks[0]), np.uint64)
        numbers = _numbers(values)
        if numbers is not None:
            found = self.ranks[np.searchsorted(self.bounds, numbers, side="right")]
        else:
            found = self._of_distinct(values)
        if values.null_count:
            found[values.is_null().to_numpy(zero_copy_only=False)] = 0
        return found

    def _of_distinct(self, values: pa.Array) -> Uint64s:
        """Rank each distinct value once: such values are slow to compare."""
        encoded = values.dictionary_encode()
        distinct, count = encoded.dictionary, len(self.bounds)
        # The sort is stable, so a bound comes before the values that equal it.
        order = pc.sort_indices(pa.concat_arrays([self.bounds, distinct.cast(self.bounds.type)])).to_numpy()
        are_bounds = order < count
        bounds_before = np.cumsum(are_bounds)[~are_bounds]
        ranks = np.empty(len(distinct), np.uint64)
        ranks[order[~are_bounds] - count] = self.ranks[bounds_before]
        found: Uint64s = ranks[encoded.indices.fill_null(0).to_numpy(zero_copy_only=False)]
        return found


def has_order(kind: pa.DataType) -> bool:
    """Tell whether values of a type can be ranked."""
    types = pa.types
    return bool(
        types.is_primitive(kind)
        or types.is_string(kind)
        or types.is_large_string(kind)
        or types.is_binary(kind)
        or types.is_large_binary(kind)
        or types.is_decimal(kind)
    )


def _numbers(values: pa.Array) -> npt.NDArray[Any] | None:
    """The values as numbers of the same order; null as 0. ``None``: numpy cannot order values of the type."""
    kind = values.type
    if pa.types.is_boolean(kind):
        values = values.cast(pa.uint8())
    elif pa.types.is_temporal(kind):
        values = values.view(pa.int32() if kind.bit_width == 32 else pa.int64())
    elif not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        return None
    if values.null_count:
        values = values.fill_null(0)
    found: npt.NDArray[Any] = values.to_numpy(zero_copy_only=False)
    return found


def _distinct(ascending: pa.Array, chosen: npt.NDArray[np.int64]) -> tuple[pa.Array, npt.NDArray[np.int64]]:
    """The distinct values at some places, and the place of the first value that equals each."""
    runs = pc.run_end_encode(ascending)
    starts = np.concatenate([[0], runs.run_ends.to_numpy()[:-1]]).astype(np.int64)
    hit = np.unique(np.searchsorted(starts, chosen, side="right") - 1)
    return runs.values.take(pa.array(hit)), starts[hit]
