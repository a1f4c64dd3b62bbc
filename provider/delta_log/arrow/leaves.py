"""The leaves of nested Arrow arrays."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa


def leaves(arrays: Iterable[pa.Array]) -> Iterator[pa.Array]:
    """The arrays that hold values, at any depth; of a slice perhaps more than the slice shows."""
    for array in arrays:
        if pa.types.is_struct(array.type):
            yield from leaves(array.flatten())
        elif pa.types.is_map(array.type):
            yield from leaves([array.keys, array.items])
        elif pa.types.is_list(array.type) or pa.types.is_large_list(array.type):
            yield from leaves([array.values])
        else:
            yield array
